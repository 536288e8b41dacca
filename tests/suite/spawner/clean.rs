//! What a command without a helper starts with: its descriptors, clean signals, its options.

use foster::{Command, Stdio};
use foster_tests::{DEATH, Program, SETTLE, Stage, Tracer, places, proc};

use crate::ground::direct;

/// What a host without a helper says that runs this program.
fn said(program: Program) -> Vec<String> {
    let finished = program.run();
    assert!(finished.status.success(), "{finished:?}");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn command_has_the_standard_streams_and_what_was_mapped_and_nothing_else() {
    let stage = Stage::new();
    // Descriptors of this process that are not marked close-on-exec, as a careless library
    // makes them: the fixture opens some, and becomes the host.
    let host = places::fixture("host-direct");
    let prints = places::fixture("prints-descriptors");
    let lines = said(
        Program::fixture(&stage, "with-leaked-descriptors")
            .args(["5", "--"])
            .arg(host)
            .arg("--")
            .arg(prints),
    );
    let numbers: Vec<&str> = lines
        .iter()
        .take_while(|line| !line.starts_with("exit"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(numbers, ["0", "1", "2"], "{lines:?}");
}

#[test]
fn descriptors_are_mapped_whatever_stands_at_their_numbers() {
    let stage = Stage::new();
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "echo 3 >&3; echo 9 >&9"])
        .env(foster_tests::TAG, stage.tag())
        .level(foster::LevelChoice::Exactly(foster::Level::Direct))
        .stdin(Stdio::null());
    let mut tracers = Vec::new();
    for target in [3, 4, 5, 6, 7, 8, 9] {
        let (tracer, writer) = Tracer::new();
        command.fd(target, writer);
        tracers.push((target, tracer));
    }
    let status = command.status().expect("a status");
    drop(command);
    assert!(status.success());
    for (target, mut tracer) in tracers {
        let expected = match target {
            3 | 9 => format!("{target}\n"),
            _ => String::new(),
        };
        assert_eq!(tracer.wait_for_end(DEATH), expected.as_bytes(), "{target}");
    }
}

#[test]
fn standard_streams_can_be_swapped() {
    let stage = Stage::new();
    let (mut out, to_out) = Tracer::new();
    let (mut err, to_err) = Tracer::new();
    let mut command = direct(&stage, "echo out; echo err >&2");
    command.stdout(to_err).stderr(to_out);
    command.status().expect("a status");
    drop(command);
    assert_eq!(out.wait_for_end(SETTLE), b"err\n");
    assert_eq!(err.wait_for_end(SETTLE), b"out\n");
}

#[test]
fn command_starts_with_clean_signals_whatever_its_host_ignores_and_blocks() {
    let stage = Stage::new();
    let lines = said(
        Program::fixture(&stage, "with-dirty-signals")
            .arg("--")
            .arg(places::fixture("host-direct"))
            .args(["--", "/bin/cat", "/proc/self/status"]),
    );
    let status = lines.join("\n");
    for field in ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"] {
        let mask = proc::field_of(&status, field).expect("the field is there");
        let mask = u64::from_str_radix(&mask, 16).expect("a mask");
        assert_eq!(mask, 0, "{field} is {mask:016x}");
    }
}

#[test]
fn host_gets_no_signal_handler() {
    let stage = Stage::new();
    let lines = said(Program::fixture(&stage, "host-direct").args([
        "--",
        "/bin/sh",
        "-c",
        "sleep 60 & exit 3",
    ]));
    let expected = [
        "exit 768",
        "all gone Some(SessionScanEmpty) None",
        "no handler",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn environment_arguments_and_directory_arrive_byte_by_byte() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    let odd = OsStr::from_bytes(b"\xff\xfe n\n");
    let folder = stage.scratch().join(odd);
    std::fs::create_dir(&folder).expect("a folder");
    let mut command = Command::new("sh");
    let output = command
        .args(["-c", "printf %s \"$1$ODD\"; pwd; env | wc -l", "sh"])
        .arg(odd)
        .env_clear()
        .env("ODD", odd)
        .env("PATH", "/usr/bin:/bin")
        .current_dir(&folder)
        .level(foster::LevelChoice::Exactly(foster::Level::Direct))
        .output()
        .expect("an output");
    let mut expected = Vec::new();
    expected.extend_from_slice(odd.as_bytes());
    expected.extend_from_slice(odd.as_bytes());
    expected.extend_from_slice(
        folder
            .canonicalize()
            .expect("it is there")
            .as_os_str()
            .as_bytes(),
    );
    assert!(output.stdout.starts_with(&expected), "{:?}", output.stdout);
}

#[test]
fn options_of_the_process_are_set() {
    let stage = Stage::new();
    let output = direct(
        &stage,
        "umask; nice; ulimit -n; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status",
    )
    .umask(0o027)
    .nice(7)
    .resource_limit(7, 64, 64)
    .oom_score_adj(500)
    .no_new_privs(true)
    .output()
    .expect("an output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "0027\n7\n64\n500\nNoNewPrivs:\t1\n");
}

#[test]
fn credentials_are_changed_where_the_host_may() {
    if !foster_tests::is_root() {
        foster_tests::not_run("credentials of a direct command", "only root changes them");
        return;
    }
    let stage = Stage::new();
    let output = direct(&stage, "id -u; id -g; id -G")
        .uid(65534)
        .gid(65533)
        .groups(&[65532])
        .output()
        .expect("an output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "65534\n65533\n65533 65532\n");
}
