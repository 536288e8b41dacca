//! A program that puts itself into a job.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::held::Process;
use crate::{Words, roles};

fn program(role: &str) -> Child {
    Command::new(roles::program())
        .args(roles::ARGUMENTS)
        .env(roles::ROLE, role)
        .env(roles::CONTAIN, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program starts")
}

/// Reads up to the acknowledgement; the test harness of the role writes before it.
fn acknowledged(program: &mut Child) -> Words {
    let mut output = BufReader::new(program.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !line.ends_with("{\"foster_session_containment\":1}\n") {
        assert!(
            !line.contains(roles::SAYS),
            "a word before the acknowledgement"
        );
        line.clear();
        assert!(
            output.read_line(&mut line).expect("it can be read") > 0,
            "no line"
        );
    }
    Words(output)
}

#[test]
fn whatever_a_contained_program_starts_ends_with_its_exit() {
    let mut program = program("contained");
    let mut words = acknowledged(&mut program);
    assert_eq!(words.next(), "true", "the variable is gone");
    let member = words.process();
    let mut input = program.stdin.take().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    assert_eq!(program.wait().expect("it is ours").code(), Some(5));
    member.assert_ends("member of a contained program");
}

#[test]
fn whatever_a_contained_program_starts_ends_when_it_is_killed() {
    let mut program = program("contained");
    let mut words = acknowledged(&mut program);
    words.next();
    let member = words.process();
    program.kill().expect("it is ours");
    program.wait().expect("it is ours");
    member.assert_ends("member of a contained program");
}

#[test]
fn contained_program_has_sessions_of_its_own() {
    let mut program = program("contained-host");
    let mut words = acknowledged(&mut program);
    let members: [Process; 2] = [words.process(), words.process()];
    let input = program.stdin.as_mut().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    assert_eq!(words.next(), "AllGone");
    for member in &members {
        member.assert_has_ended("member of a session inside");
    }
    assert!(
        program.try_wait().expect("it is ours").is_none(),
        "the program itself lives"
    );
    program.kill().expect("it is ours");
    program.wait().expect("it is ours");
}
