//! What a spawn through a helper costs at each level beside std's, in the same run.
//!
//! ```text
//! cargo build --release -p foster-helper
//! FOSTER_HELPER=$PWD/target/release/foster-helper taskset -c 1 cargo bench --bench spawn
//! ```
//!
//! Without `FOSTER_HELPER` the helper is this program, re-executed. Options, after `--`:
//! `--count N` (samples of each cell, 1000), `--ballast MIB` (memory that the host touches first),
//! `--level group|tree|cgroup|namespace` (may come again; every level that can be had here).
//! All ways take turns in short blocks, so that what else happens on the machine hits each of
//! them; one helper serves all levels, and the keepers of the others wait. Nothing is asserted
//! about a figure.

#![expect(clippy::print_stdout, reason = "the figures are the result")]

#[path = "spawn/figures.rs"]
mod figures;
#[path = "spawn/program.rs"]
mod program;
#[path = "spawn/turns.rs"]
mod turns;

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use foster::{Helper, Level, LevelChoice, Verdict};

use figures::{print_head, print_rows};
use turns::{Way, in_turns};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The samples of each cell without `--count`: a 90th percentile rests on 100 of them.
const COUNT: usize = 1000;

/// Helpers that are launched for the time of a launch, at most.
const LAUNCHES: usize = 200;

/// What the command line says.
struct Options {
    count: usize,
    ballast: usize,
    levels: Vec<Level>,
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
    let ways = ways(&helper, &options.levels);
    print_setting(&options);
    print_head();
    for path in [tiny.as_path(), Path::new("/bin/true")] {
        let cells = in_turns(&ways, options.count, |way| {
            spawn_and_wait(&helper, way, path)
        })?;
        print_rows(&format!("spawn, wait: {}", name(path)), cells);
    }
    let cells = in_turns(&ways, options.count, |way| {
        kill_and_know(&helper, way, &tiny)
    })?;
    print_rows("kill, known to be gone", cells);
    let cells = in_turns(&[Way::Launch], options.count.min(LAUNCHES), |_| launch())?;
    print_rows("launch, hello", cells);
    print_memory("after all of it", &helper)?;
    shut_down(helper, &tiny, options.count.min(1000))?;
    black_box(ballast);
    Ok(())
}

/// std, and each level that was asked for and can be had.
fn ways(helper: &Helper, wanted: &[Level]) -> Vec<Way> {
    let mut ways = vec![Way::Std];
    for one in &helper.capabilities().levels {
        if !wanted.is_empty() && !wanted.contains(&one.level) {
            continue;
        }
        match one.obstacle {
            None => ways.push(Way::Foster(one.level)),
            Some(obstacle) => println!("not here: {:?}, for {obstacle:?}", one.level),
        }
    }
    ways
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        count: COUNT,
        ballast: 0,
        levels: Vec::new(),
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
                options.levels.push(match word.as_str() {
                    "group" => Level::Group,
                    "tree" => Level::Tree,
                    "cgroup" => Level::Cgroup,
                    "namespace" => Level::Namespace,
                    _ => return Err(format!("{word} is no level").into()),
                });
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

fn command(helper: &Helper, path: &Path, level: Level) -> foster::Command {
    let mut command = foster::Command::new(path);
    command.helper(helper).level(LevelChoice::Exactly(level));
    command
}

/// From the call to the exit status. Standard streams are inherited.
fn spawn_and_wait(helper: &Helper, way: Way, path: &Path) -> Outcome<Duration> {
    let from = Instant::now();
    let success = match way {
        Way::Foster(level) => command(helper, path, level).status()?.success(),
        Way::Std | Way::Launch => process::Command::new(path).status()?.success(),
    };
    let took = from.elapsed();
    match success {
        true => Ok(took),
        false => Err(format!("{} failed", path.display()).into()),
    }
}

/// From KILL to where std has reaped the child, and the helper has proven the tree to be gone.
fn kill_and_know(helper: &Helper, way: Way, path: &Path) -> Outcome<Duration> {
    match way {
        Way::Foster(level) => {
            let child = command(helper, path, level).arg("wait").spawn()?;
            let from = Instant::now();
            let ending = child.kill()?;
            let took = from.elapsed();
            match ending.verdict {
                Verdict::AllGone => Ok(took),
                _ => Err(format!("not all are gone: {ending:?}").into()),
            }
        }
        Way::Std | Way::Launch => {
            let mut child = process::Command::new(path).arg("wait").spawn()?;
            let from = Instant::now();
            child.kill()?;
            child.wait()?;
            Ok(from.elapsed())
        }
    }
}

/// A helper's launch up to its hello.
fn launch() -> Outcome<Duration> {
    let from = Instant::now();
    let helper = Helper::launch()?;
    let took = from.elapsed();
    helper.shutdown(Duration::ZERO)?;
    Ok(took)
}

/// The time of a shutdown with many live sessions of the lowest level.
fn shut_down(helper: Helper, path: &Path, count: usize) -> Outcome<()> {
    let live = (0..count)
        .map(|_| command(&helper, path, Level::Group).arg("wait").spawn())
        .collect::<foster::Result<Vec<_>>>()?;
    print_memory(&format!("with {count} live sessions"), &helper)?;
    drop(live);
    let from = Instant::now();
    let farewell = helper.shutdown(Duration::ZERO)?;
    let took = from.elapsed();
    let survivors = farewell.survivors.len();
    println!("shutdown with {count} live sessions: {took:.1?}, {survivors} survivors");
    match survivors {
        0 => Ok(()),
        _ => Err("the helper could not end everything".into()),
    }
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
