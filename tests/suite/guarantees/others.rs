//! The same 42 runs with other tools in foster's place: how many leave their member. The page
//! `docs/GUARANTEES.md` has the bounds.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use foster_tests::{
    DEATH, Process, Program, Stage, Witness, clean_up, hold_tagged, not_run, only_child_of, pass,
};

use crate::shapes::{GRACE, Leader, MARGIN, SHAPES, Shape};

const PAGE: &str = include_str!("../../../docs/GUARANTEES.md");

/// The tools, as the page names them.
const TOOLS: [&[&str]; 3] = [
    &["timeout", "-k", "0.3", "30"],
    &["tini", "-s", "-g", "--"],
    &["dumb-init"],
];

/// How many runs are under way at once.
const AT_ONCE: usize = 4;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    Exits,
    KillsItself,
    Term,
    TermAndLeaves,
    KillTool,
    KillParent,
}

const EVENTS: [Event; 6] = [
    Event::Exits,
    Event::KillsItself,
    Event::Term,
    Event::TermAndLeaves,
    Event::KillTool,
    Event::KillParent,
];

impl Event {
    fn leader(self) -> Leader {
        match self {
            Self::Exits => Leader::Exits,
            Self::KillsItself => Leader::KillsItself,
            Self::TermAndLeaves => Leader::LeavesAtTerm,
            Self::Term | Self::KillTool | Self::KillParent => Leader::Waits,
        }
    }

    /// Makes it happen. The tool is over after it, but for the death of its parent.
    fn happen(self, process: &mut Process, tool: &Witness) {
        match self {
            Self::Exits | Self::KillsItself => process.say("go"),
            Self::Term | Self::TermAndLeaves => tool.signal(libc::SIGTERM),
            Self::KillTool => tool.signal(libc::SIGKILL),
            Self::KillParent => process.signal(libc::SIGKILL),
        }
    }
}

/// Whether a member is left of one run.
fn is_left(tool: &[&str], shape: Shape, event: Event) -> bool {
    let stage = Stage::new();
    let (name, options) = tool.split_first().expect("a tool has a name");
    let program = Program::new(&stage, name)
        .args(options)
        .args(shape.command(event.leader()));
    let (mut process, tool) = match event {
        Event::KillParent => {
            let process = program.below_a_parent(&stage).start();
            let tool = only_child_of(process.pid());
            (process, tool)
        }
        Event::Exits
        | Event::KillsItself
        | Event::Term
        | Event::TermAndLeaves
        | Event::KillTool => {
            let process = program.start();
            let tool = Witness::of(process.pid());
            (process, tool)
        }
    };
    let member = shape.member(&mut process.stdout);
    event.happen(&mut process, &tool);
    // The time is the subject here: the same time after which foster has left nothing.
    pass(GRACE + MARGIN);
    let is_left = member.is_alive();
    clean_up(&[tool, member]);
    // The leader, where it is left too, and the parent of a tool.
    clean_up(&hold_tagged(stage.tag()));
    process.wait(DEATH);
    process.stdout.wait_for_end(Duration::from_secs(5));
    is_left
}

/// How many of the runs leave their member.
fn count_left(tool: &[&str]) -> usize {
    let pairs = SHAPES
        .iter()
        .flat_map(|shape| EVENTS.map(|event| (*shape, event)));
    let queue: Mutex<VecDeque<(Shape, Event)>> = Mutex::new(pairs.collect());
    let count = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no run panics").pop_front();
                    let Some((shape, event)) = next else { break };
                    if is_left(tool, shape, event) {
                        *count.lock().expect("no run panics") += 1;
                    }
                }
            });
        }
    });
    count.into_inner().expect("no run panics")
}

/// What the page says of a tool: "| `tini -s -g` | 35 to 38 |".
fn bounds(tool: &str) -> (usize, usize) {
    let row = PAGE
        .lines()
        .find(|line| line.starts_with(&format!("| `{tool}` |")));
    let row = row.unwrap_or_else(|| panic!("docs/GUARANTEES.md has no row of {tool}"));
    let mut numbers = row.rsplit('|').nth(1).unwrap_or_default().split(" to ");
    let mut next = || numbers.next().and_then(|number| number.trim().parse().ok());
    (next().expect("a number"), next().expect("a second number"))
}

#[expect(clippy::print_stderr, reason = "a figure is to be read")]
fn assert_leaves(tool: &[&str]) {
    let (name, shown) = (tool.first().expect("a name"), tool.join(" "));
    let shown = shown.trim_end_matches(" --");
    if std::process::Command::new(name)
        .arg("--version")
        .output()
        .is_err()
    {
        not_run(shown, "it is not installed");
        return;
    }
    let count = count_left(tool);
    eprintln!("{shown} leaves {count} of {}", SHAPES.len() * EVENTS.len());
    let (least, most) = bounds(shown);
    assert!(
        (least..=most).contains(&count),
        "{shown}: {count}, and the page says {least} to {most}"
    );
}

#[test]
fn control_timeout_leaves_as_many_of_the_matrix_as_the_page_says() {
    assert_leaves(TOOLS[0]);
}

#[test]
fn control_tini_leaves_as_many_of_the_matrix_as_the_page_says() {
    assert_leaves(TOOLS[1]);
}

#[test]
fn control_dumb_init_leaves_as_many_of_the_matrix_as_the_page_says() {
    assert_leaves(TOOLS[2]);
}
