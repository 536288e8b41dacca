//! What a spawn through a helper costs beside std's, in the same run.
//!
//! ```text
//! cargo build --release -p foster-helper
//! FOSTER_HELPER=$PWD/target/release/foster-helper taskset -c 1 cargo bench --bench spawn
//! ```
//!
//! Without `FOSTER_HELPER` the helper is this program, re-executed. Options, after `--`:
//! `--count N` (samples of each cell, 3000), `--ballast MIB` (memory that the host touches first),
//! `--level group|tree|cgroup|namespace` (group).
//! Both ways take turns in short blocks, so that what else happens on the machine hits both.

#![expect(clippy::print_stdout, reason = "the figures are the result")]

#[path = "spawn/figures.rs"]
mod figures;
#[path = "spawn/program.rs"]
mod program;

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use foster::{Helper, Level, LevelChoice};

use figures::{Samples, print_head, print_pair};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Samples of one way in a row before the other has its turn.
const BLOCK: usize = 20;

/// The level of every command.
static LEVEL: OnceLock<Level> = OnceLock::new();

/// The samples of each cell without `--count`: a 99th percentile rests on 30 of them.
const COUNT: usize = 3000;

/// Helpers that are launched for the time of a launch, at most.
const LAUNCHES: usize = 200;

/// Two ways of doing the same.
struct Pair {
    std: Samples,
    foster: Samples,
}

/// What the command line says.
struct Options {
    count: usize,
    ballast: usize,
}

fn main() -> Outcome<()> {
    if std::env::var_os("FOSTER_HELPER").is_none() {
        foster::init();
    }
    let options = options()?;
    let ballast = vec![1_u8; options.ballast << 20];
    let folder = program::Scratch::new()?;
    let tiny = program::compile(folder.path())?;
    let helper = Helper::launch()?;
    print_setting(&options);
    print_head();
    for path in [tiny.as_path(), Path::new("/bin/true")] {
        let pair = spawn_and_wait(&helper, path, options.count)?;
        print_pair(
            &format!("spawn, wait: {}", name(path)),
            pair.std,
            pair.foster,
        );
    }
    let pair = kill_and_know(&helper, &tiny, options.count)?;
    print_pair("kill, known to be gone", pair.std, pair.foster);
    let pair = launch(options.count.min(LAUNCHES))?;
    print_pair(
        "std: spawn, wait /bin/true; foster: launch, hello",
        pair.std,
        pair.foster,
    );
    print_memory("after all of it", &helper)?;
    let live = (0..options.count.min(1000))
        .map(|_| command(&helper, &tiny).arg("wait").spawn())
        .collect::<foster::Result<Vec<_>>>()?;
    print_memory(&format!("with {} live sessions", live.len()), &helper)?;
    let count = live.len();
    drop(live);
    let from = Instant::now();
    let farewell = helper.shutdown(Duration::ZERO)?;
    let took = from.elapsed();
    let survivors = farewell.survivors.len();
    println!("shutdown with {count} live sessions: {took:.1?}, {survivors} survivors");
    black_box(ballast);
    if survivors > 0 {
        return Err("the helper could not end everything".into());
    }
    Ok(())
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        count: COUNT,
        ballast: 0,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Outcome<usize> {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            Ok(value.parse()?)
        };
        match arg.as_str() {
            "--count" => options.count = number()?,
            "--ballast" => options.ballast = number()?,
            "--level" => {
                let word = args.next().ok_or("--level needs a level")?;
                let level = match word.as_str() {
                    "direct" => Level::Direct,
                    "group" => Level::Group,
                    "tree" => Level::Tree,
                    "cgroup" => Level::Cgroup,
                    "namespace" => Level::Namespace,
                    _ => return Err(format!("{word} is no level").into()),
                };
                LEVEL.set(level).map_err(|_| "--level came twice")?;
            }
            "--bench" => {} // cargo passes it.
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    Ok(options)
}

fn name(path: &Path) -> String {
    if path == Path::new("/bin/true") {
        "/bin/true".into()
    } else {
        "tiny static program".into()
    }
}

fn print_setting(options: &Options) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let cpus = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or("?");
    println!(
        "linux {}, cpus {}, load {}, {} samples, host {} MiB, helper {}\n",
        read("/proc/sys/kernel/osrelease").trim(),
        cpus.trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or("?"),
        options.count,
        options.ballast,
        std::env::var_os("FOSTER_HELPER").map_or("by self re-exec".into(), |path| PathBuf::from(
            path
        )
        .display()
        .to_string()),
    );
}

fn command(helper: &Helper, path: &Path) -> foster::Command {
    let mut command = foster::Command::new(path);
    command
        .helper(helper)
        .level(LevelChoice::Exactly(*LEVEL.get_or_init(|| Level::Group)));
    command
}

/// Both ways in turns, one block each, until each has its samples.
fn in_turns(
    count: usize,
    mut std: impl FnMut() -> Outcome<Duration>,
    mut foster: impl FnMut() -> Outcome<Duration>,
) -> Outcome<Pair> {
    for _ in 0..BLOCK {
        std()?;
        foster()?;
    }
    let mut pair = Pair {
        std: Samples::default(),
        foster: Samples::default(),
    };
    while pair.foster.len() < count {
        for _ in 0..BLOCK {
            pair.std.add(std()?);
        }
        for _ in 0..BLOCK {
            pair.foster.add(foster()?);
        }
    }
    Ok(pair)
}

/// From the call to the exit status. Standard streams are inherited.
fn spawn_and_wait(helper: &Helper, path: &Path, count: usize) -> Outcome<Pair> {
    in_turns(
        count,
        || {
            let from = Instant::now();
            let status = process::Command::new(path).status()?;
            let took = from.elapsed();
            assert!(status.success());
            Ok(took)
        },
        || {
            let from = Instant::now();
            let status = command(helper, path).status()?;
            let took = from.elapsed();
            assert!(status.success());
            Ok(took)
        },
    )
}

/// From KILL to where std has reaped the child, and the helper has proven the tree to be gone.
fn kill_and_know(helper: &Helper, path: &Path, count: usize) -> Outcome<Pair> {
    in_turns(
        count,
        || {
            let mut child = process::Command::new(path).arg("wait").spawn()?;
            let from = Instant::now();
            child.kill()?;
            child.wait()?;
            Ok(from.elapsed())
        },
        || {
            let child = command(helper, path).arg("wait").spawn()?;
            let from = Instant::now();
            let ending = child.kill()?;
            let took = from.elapsed();
            assert_eq!(ending.verdict, foster::Verdict::AllGone);
            Ok(took)
        },
    )
}

/// A helper's launch up to its hello, beside the spawn of a dynamic program that does nothing.
fn launch(count: usize) -> Outcome<Pair> {
    in_turns(
        count,
        || {
            let from = Instant::now();
            process::Command::new("/bin/true").status()?;
            Ok(from.elapsed())
        },
        || {
            let from = Instant::now();
            let helper = Helper::launch()?;
            let took = from.elapsed();
            helper.shutdown(Duration::ZERO)?;
            Ok(took)
        },
    )
}

/// The helper is not dumpable, so that only root can read this.
fn print_memory(when: &str, helper: &Helper) -> Outcome<()> {
    let path = format!("/proc/{}/smaps_rollup", helper.id());
    match fs::read_to_string(path) {
        Ok(text) => {
            let wanted = ["Rss:", "Private_Dirty:", "Pss:"];
            let lines = text
                .lines()
                .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
            let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            println!("helper {when}: {}", fields.collect::<Vec<_>>().join(", "));
        }
        Err(error) => println!("helper {when}: memory cannot be read: {error}"),
    }
    Ok(())
}
