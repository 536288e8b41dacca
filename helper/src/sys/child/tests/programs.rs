use std::fs::{self, File};
use std::os::fd::OwnedFd;

use foster_protocol::{Bytes, Step};

use crate::sys::testing::{
    Scratch, command, context, failure, mapped, output, pipe, read_to_end, reaped, running, waiting,
};

#[test]
fn a_program_that_is_not_there_is_told_apart_from_its_interpreter() {
    let scratch = Scratch::new("interpreter");
    let script = scratch.program("script", "#!/nonexistent/interpreter\n", 0o755);
    let missing = command(&["/nonexistent/program"]);
    assert_eq!(failure(&missing, Vec::new()), (Step::Exec, libc::ENOENT));
    let unknown = command(&["no-such-program-anywhere"]);
    assert_eq!(failure(&unknown, Vec::new()), (Step::Exec, libc::ENOENT));
    assert_eq!(
        failure(&command(&[&script]), Vec::new()),
        (Step::Interpreter, libc::ENOENT)
    );
    let empty = command(&[""]);
    assert_eq!(failure(&empty, Vec::new()), (Step::Exec, libc::ENOENT));
}

#[test]
fn the_search_goes_on_behind_a_program_that_cannot_be_run() {
    let scratch = Scratch::new("search");
    let folder = scratch.path().to_str().unwrap();
    let denied = scratch.program("true", "", 0o644);
    assert_eq!(
        failure(&command(&[&denied]), Vec::new()),
        (Step::Exec, libc::EACCES)
    );
    let path = format!("PATH={denied}:/nonexistent:{folder}:/bin:/usr/bin");
    let mut spec = command(&["true"]);
    spec.env = vec![Bytes::from(path.as_str())];
    assert_eq!(reaped(running(&spec, Vec::new(), &context())), 0);
    spec.env = vec![Bytes::from(format!("PATH={folder}:/nonexistent").as_str())];
    assert_eq!(failure(&spec, Vec::new()), (Step::Exec, libc::EACCES));
}

#[test]
fn a_program_is_searched_from_the_new_directory() {
    let scratch = Scratch::new("directory");
    scratch.program("here", "#!/bin/sh\npwd -P\n", 0o755);
    let mut spec = command(&["here"]);
    spec.env = vec![Bytes::from("PATH=")];
    spec.directory = Some(Bytes::from(scratch.path().to_str().unwrap()));
    let expected = format!("{}\n", fs::canonicalize(scratch.path()).unwrap().display());
    assert_eq!(output(spec, &context()), expected);
}

#[test]
fn a_directory_is_taken_from_a_passed_descriptor() {
    let base = OwnedFd::from(File::open("/usr").unwrap());
    let (reader, writer) = pipe();
    let mut spec = mapped(command(&["pwd"]), &[1]);
    spec.directory_base = Some(1);
    spec.directory = Some(Bytes::from("lib"));
    let leader = running(&spec, vec![writer, base], &context());
    assert_eq!(read_to_end(reader), "/usr/lib\n");
    assert_eq!(reaped(leader), 0);
}

#[test]
fn a_directory_that_is_not_there_is_named_as_the_step() {
    let mut spec = command(&["true"]);
    spec.directory = Some(Bytes::from("/nonexistent"));
    assert_eq!(failure(&spec, Vec::new()), (Step::Directory, libc::ENOENT));
    spec.directory = Some(Bytes::from("/dev/null"));
    assert_eq!(failure(&spec, Vec::new()), (Step::Directory, libc::ENOTDIR));
}

#[test]
fn arguments_and_environment_arrive_byte_for_byte() {
    let (_, passed, talk) = waiting();
    let script = "read line; echo $line; read line; exit 3";
    let mut spec = mapped(command(&["sh", "-c", script, "", "a b\n", "last"]), &[0, 1]);
    spec.args.push(Bytes(vec![0xff, 0xfe, b'=']));
    spec.args.push(Bytes::default());
    spec.env.extend([
        Bytes(vec![b'N', b'=', 0x80]),
        Bytes::from("EMPTY="),
        Bytes::from("odd"),
    ]);
    let leader = running(&spec, passed.into(), &context());
    talk.settle();
    let joined = |strings: &[Bytes]| {
        strings
            .iter()
            .flat_map(|s| s.0.iter().copied().chain([0]))
            .collect::<Vec<u8>>()
    };
    let pid = leader.pid().0;
    assert_eq!(
        fs::read(format!("/proc/{pid}/cmdline")).unwrap(),
        joined(&spec.args)
    );
    assert_eq!(
        fs::read(format!("/proc/{pid}/environ")).unwrap(),
        joined(&spec.env)
    );
    drop(talk);
    assert_eq!(reaped(leader), 3 << 8);
}

#[test]
fn an_argument_above_the_kernels_limit_is_an_error_of_exec() {
    let mut spec = command(&["true"]);
    spec.args.push(Bytes(vec![b'x'; 4 << 20]));
    assert_eq!(failure(&spec, Vec::new()), (Step::Exec, libc::E2BIG));
}
