//! Processes of the same user that are none of foster's, beside every cell and every sweep.

use foster_tests::{Process, Program, Stage};

/// Limits of file locks, by which a sweep tells members: the mark of an instance that is none of
/// these, one that bears no mark, and none.
const LIMITS: [&str; 3] = ["2305843009213693953", "7", "unlimited"];

/// Strangers, who live until this is dropped.
pub(crate) struct Strangers {
    processes: Vec<Process>,
    _stage: Stage,
}

impl Strangers {
    pub(crate) fn new() -> Self {
        let stage = Stage::new();
        // Their input ends with these tests, however those end.
        let start = |limit| {
            let script = format!("ulimit -x {limit}; echo ready; read line");
            let program = Program::new(&stage, "/bin/bash").args(["-c", &script]);
            let mut process = program.start();
            assert_eq!(process.stdout.line(), "ready");
            process
        };
        Self {
            processes: LIMITS.map(start).into(),
            _stage: stage,
        }
    }

    /// Asserts that nobody has ended or stopped one.
    pub(crate) fn assert_unharmed(self) {
        for mut process in self.processes {
            process.close_stdin();
            // The script ends by itself, at the end of its input.
            let status = process.wait(foster_tests::DEATH);
            assert_eq!(status.code(), Some(1), "a stranger was signalled");
        }
    }
}
