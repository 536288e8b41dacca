//! What these tests stand on: a runtime directory of their own, instances that are killed whole,
//! and sweeps of that directory alone.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use foster_protocol::{Level, Record};
use foster_tests::{
    DEATH, Finished, Launch, Process, Program, Stage, Tracer, Witness, places, proc,
};
use serde_json::Value;

/// A stage with a runtime directory.
pub(crate) struct Ground {
    pub(crate) stage: Stage,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let stage = Stage::new();
        fs::create_dir(stage.scratch().join("run")).expect("a runtime directory");
        Self { stage }
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.stage.scratch().join("run")
    }

    /// Where its helpers keep their records.
    pub(crate) fn folder(&self) -> PathBuf {
        self.runtime().join("foster")
    }

    /// A launch of a helper that keeps its record here.
    pub(crate) fn launch(&self) -> Launch {
        self.stage.launch().with_runtime_directory(self.runtime())
    }

    /// A `foster` with these arguments that uses this runtime directory.
    pub(crate) fn foster(&self, args: &[&str]) -> Program {
        Program::new(&self.stage, places::foster())
            .env("XDG_RUNTIME_DIR", self.runtime())
            .args(args)
    }

    /// The arguments of a sweep of this folder.
    pub(crate) fn sweep_words(&self) -> [String; 6] {
        let folder = self.folder().display().to_string();
        ["sweep", "--json", "--grace", "200ms", "--dir", &folder].map(str::to_owned)
    }

    /// Sweeps and gives the exit code and what was said.
    pub(crate) fn sweep(&self, options: &[&str]) -> (i32, Value) {
        let words = self.sweep_words();
        let program = Program::new(&self.stage, places::foster()).args(words);
        read(&program.args(options).run())
    }

    /// The paths of the records.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.folder()) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.expect("the folder is readable").path())
            .collect()
    }

    /// The one record that there is, and its path.
    pub(crate) fn record(&self) -> (PathBuf, Record) {
        let records = self.records();
        let [path] = records.as_slice() else {
            panic!("one record: {records:?}")
        };
        let text = fs::read(path).expect("the record is readable");
        let record = Record::decode(&text).expect("it is a record");
        (path.clone(), record)
    }
}

/// What a sweep said.
pub(crate) fn read(finished: &Finished) -> (i32, Value) {
    let report = serde_json::from_str(&finished.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    (finished.code(), report)
}

/// The instances of a report.
pub(crate) fn instances(report: &Value) -> &[Value] {
    let list = report.get("instances").and_then(Value::as_array);
    list.expect("a list of instances")
}

/// The state of the one instance of a report.
pub(crate) fn state(report: &Value) -> &str {
    let [one] = instances(report) else {
        panic!("one instance: {report}")
    };
    one.get("state").and_then(Value::as_str).expect("a state")
}

/// The process ids of a list of the one instance of a report.
pub(crate) fn pids(report: &Value, list: &str) -> Vec<i64> {
    let one = instances(report).first().expect("an instance");
    let list = one.get(list).and_then(Value::as_array).expect("a list");
    let pid = |one: &Value| one.get("pid").and_then(Value::as_i64);
    list.iter().map(|one| pid(one).expect("a pid")).collect()
}

/// The cgroups of an instance that are there.
pub(crate) fn cgroups(record: &Record) -> Vec<String> {
    let Some(base) = &record.cgroup else {
        return Vec::new();
    };
    let base = String::from_utf8(base.0.clone()).expect("a path of text");
    let entries = fs::read_dir(base).expect("the cgroup is readable");
    let names = entries.map(|entry| {
        let name = entry.expect("the cgroup is readable").file_name();
        name.to_string_lossy().into_owned()
    });
    names
        .filter(|name| name.starts_with(&record.prefix()))
        .collect()
}

/// A `foster run` whose command and its member have said who they are.
pub(crate) struct Run {
    pub(crate) host: Process,
    helper: Witness,
    keeper: Option<Witness>,
    pub(crate) leader: Witness,
    pub(crate) member: Witness,
}

impl Run {
    /// Starts one. `$1` is the member's script, which says `member` and its pid.
    pub(crate) fn start(ground: &Ground, level: Level, script: &str, member: &str) -> Self {
        let script = format!("echo leader $$; {script} exec sleep 60");
        let word = format!("{level:?}").to_lowercase();
        let tag = ground.stage.tag();
        let mut host = ground
            .foster(&["run", "-q", "--level", &word, "--", "bash", "-c"])
            .args([&script, tag, member])
            .start();
        let helper = host.only_child();
        let (mut leader, mut of_member) = (None, None);
        while leader.is_none() || of_member.is_none() {
            let (who, witness) = speaker(&mut host.stdout);
            match who.as_str() {
                "leader" => leader = Some(witness),
                "member" => of_member = Some(witness),
                other => panic!("somebody says {other}"),
            }
        }
        let leader = leader.expect("the leader has spoken");
        let parent = proc::stat(leader.pid()).expect("the leader lives").parent;
        let keeper = (parent != helper.pid()).then(|| Witness::of(parent));
        assert_eq!(keeper.is_some(), level > Level::Group, "a keeper");
        Self {
            host,
            helper,
            keeper,
            leader,
            member: of_member.expect("the member has spoken"),
        }
    }

    /// Kills host, helper and keeper. All are stopped first, so that none acts on the others'
    /// deaths. The control is here: nothing ends the member. (The leader has a death signal.)
    pub(crate) fn kill_all(&mut self) {
        let said = self.kill_watchers();
        let why = format!("nothing is left to sweep; foster said {said:?}");
        self.member.assert_alive(&why);
    }

    /// The same without the control. Gives what the host has said.
    pub(crate) fn kill_watchers(&mut self) -> String {
        let watchers = [self.host.witness(), &self.helper].into_iter();
        let watchers: Vec<&Witness> = watchers.chain(&self.keeper).collect();
        kill_together(&watchers);
        let status = self.host.wait(DEATH);
        let said = self.host.stderr.so_far();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}: {said}");
        said
    }
}

/// Kills processes of the test's own, all of which are stopped first.
pub(crate) fn kill_together(watchers: &[&Witness]) {
    for watcher in watchers {
        watcher.stop();
    }
    for watcher in watchers {
        watcher.signal(libc::SIGKILL);
    }
    for watcher in watchers {
        watcher.wait_for_death(DEATH);
    }
}

/// Waits for a line of a word and a process id, and takes hold of the process.
pub(crate) fn speaker(tracer: &mut Tracer) -> (String, Witness) {
    let line = tracer.line();
    let (who, pid) = line.split_once(' ').expect("a word and a number");
    let pid = pid.parse().expect("a process id");
    // It lives for a minute, so that the number is its own.
    (who.to_owned(), Witness::of(pid))
}
