use super::*;

fn read(words: &[&str]) -> Result<Request, String> {
    parse(["foster"].iter().chain(words).map(OsString::from))
}

fn run(words: &[&str]) -> RunOptions {
    match read(&[&["run"], words].concat()) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{words:?} is read as {other:?}"),
    }
}

fn refusal(words: &[&str]) -> String {
    let line = read(&[&["run"], words].concat()).expect_err("it is refused");
    assert!(!line.contains('\n'), "{line:?}");
    assert!(!line.starts_with("error"), "{line:?}");
    line
}

#[test]
fn the_defaults_are_those_of_the_page() {
    let options = run(&["true"]);
    assert_eq!(options.timeout, None);
    assert_eq!(options.grace, Duration::from_secs(1));
    assert_eq!(options.signal, 15);
    assert_eq!(options.on_exit, AtExit::End);
    assert_eq!(options.level, LevelChoice::Auto);
    assert_eq!(options.require, None);
    assert_eq!(options.report, None);
    assert_eq!(options.detail, Detail::Unusual);
    assert_eq!(options.program, "true");
    assert!(options.args.is_empty() && options.env.is_empty() && options.directory.is_none());
    assert!(!options.env_clear && !options.preserve_status && !options.outlive_parent);
}

#[test]
fn every_option_is_read_in_its_short_and_long_spelling() {
    let options = run(&[
        "-t", "2", "-k500ms", "-s", "INT", "-C", "/", "-e", "A=1", "-v", "true",
    ]);
    assert_eq!(options.timeout, Some(Duration::from_secs(2)));
    assert_eq!(options.grace, Duration::from_millis(500));
    assert_eq!(options.signal, 2);
    assert_eq!(options.directory, Some(PathBuf::from("/")));
    assert_eq!(options.env, [("A".into(), "1".into())]);
    assert_eq!(options.detail, Detail::Everything);
    let options = run(&[
        "--timeout=1m",
        "--grace=0",
        "--signal=SIGHUP",
        "--on-exit=wait:3s",
        "--chdir=/tmp",
        "--env=B=x=y",
        "--env-clear",
        "--level=group",
        "--require=tree",
        "--report=fd:7",
        "--preserve-status",
        "--quiet",
        "--outlive-parent",
        "true",
    ]);
    assert_eq!(options.timeout, Some(Duration::from_secs(60)));
    assert_eq!(options.grace, Duration::ZERO);
    assert_eq!(options.signal, 1);
    assert_eq!(options.on_exit, AtExit::Wait(limit(Duration::from_secs(3))));
    assert_eq!(options.env, [("B".into(), "x=y".into())]);
    assert_eq!(options.level, LevelChoice::Exactly(Level::Group));
    assert_eq!(options.require, Some(Level::Tree));
    assert_eq!(options.report, Some(ReportTarget::Descriptor(7)));
    assert_eq!(options.detail, Detail::Quiet);
    assert!(options.env_clear && options.preserve_status && options.outlive_parent);
}

#[test]
fn options_end_at_the_command() {
    let options = run(&["-t1", "sh", "-t", "9", "--bogus", "--", "-q"]);
    assert_eq!(options.timeout, Some(Duration::from_secs(1)));
    assert_eq!(options.program, "sh");
    assert_eq!(options.args, ["-t", "9", "--bogus", "--", "-q"]);
    let options = run(&["--", "-t", "--help"]);
    assert_eq!(
        (options.program, options.args),
        ("-t".into(), vec!["--help".into()])
    );
    let options = run(&["echo", "--help", "--version"]);
    assert_eq!(options.args, ["--help", "--version"]);
}

#[test]
fn the_last_of_a_repeated_option_counts_and_variables_add_up() {
    let options = run(&["-t1", "-t2", "-e", "A=1", "-e", "A=2", "-e", "B=", "true"]);
    assert_eq!(options.timeout, Some(Duration::from_secs(2)));
    let expected: [(OsString, OsString); 3] = [
        ("A".into(), "1".into()),
        ("A".into(), "2".into()),
        ("B".into(), "".into()),
    ];
    assert_eq!(options.env, expected);
}

#[test]
fn zero_turns_a_limit_off() {
    assert_eq!(run(&["-t0", "true"]).timeout, None);
    assert_eq!(
        run(&["--on-exit", "wait:0", "true"]).on_exit,
        AtExit::Wait(None)
    );
    assert_eq!(
        run(&["--on-exit", "wait", "true"]).on_exit,
        AtExit::Wait(None)
    );
    assert_eq!(run(&["--on-exit", "leave", "true"]).on_exit, AtExit::Leave);
}

#[test]
fn a_report_goes_to_standard_error_a_descriptor_or_a_file() {
    assert_eq!(
        run(&["--report", "-", "true"]).report,
        Some(ReportTarget::Stderr)
    );
    assert_eq!(
        run(&["--report", "fd:3", "true"]).report,
        Some(ReportTarget::Descriptor(3))
    );
    let file = ReportTarget::File(PathBuf::from("fd.json"));
    assert_eq!(run(&["--report", "fd.json", "true"]).report, Some(file));
}

#[test]
fn what_is_wrong_is_one_line_that_names_it() {
    for (words, named) in [
        (&["--bogus", "true"][..], "--bogus"),
        (&["-x", "true"], "-x"),
        (&["-t", "5x", "true"], "unknown unit"),
        (&["-t", "inf", "true"], "inf"),
        (&["-t", "-5", "true"], "-5"),
        (&["-k", "", "true"], "--grace"),
        (&["-s", "NOPE", "true"], "NOPE"),
        (&["--on-exit", "never", "true"], "never"),
        (&["--on-exit", "wait:x", "true"], "wait:x"),
        (&["--on-exit", "end:1s", "true"], "end:1s"),
        (&["--level", "bottle", "true"], "bottle"),
        (&["--require", "auto", "true"], "auto"),
        (&["-e", "novalue", "true"], "novalue"),
        (&["-e", "=value", "true"], "=value"),
        (&["--report", "fd:", "true"], "fd:"),
        (&["--report", "fd:-1", "true"], "fd:-1"),
        (&["--report", "fd:99999999999", "true"], "fd:99999999999"),
        (&["--report", "", "true"], "--report"),
        (&["-q", "-v", "true"], "--quiet"),
        (&["-t"], "--timeout"),
        (&[], "COMMAND"),
        (&["--"], "COMMAND"),
        (&[""], "empty"),
        (&["-e", "a\nb", "true"], "a b"),
    ] {
        let line = refusal(words);
        assert!(line.contains(named), "{words:?}: {line:?}");
    }
    assert!(read(&[]).is_err_and(|line| line.contains("subcommand") && !line.contains('\n')));
    assert!(read(&["walk"]).is_err_and(|line| line.contains("walk") && !line.contains('\n')));
}

#[test]
fn doctor_answers_with_a_table_unless_json_is_asked_for() {
    for (words, format) in [
        (&["doctor"][..], Format::Table),
        (&["doctor", "--json"], Format::Json),
        (&["doctor", "--json", "--json"], Format::Json),
    ] {
        let request = read(words);
        assert!(
            matches!(request, Ok(Request::Doctor(read)) if read == format),
            "{words:?} is read as {request:?}"
        );
    }
    for wrong in [["doctor", "x"], ["doctor", "--jsn"], ["doctor", "-v"]] {
        let line = read(&wrong).expect_err("it is refused");
        assert!(!line.contains('\n'), "{line:?}");
    }
}

#[test]
fn help_and_version_are_for_standard_output() {
    for words in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"]] {
        assert!(matches!(read(words), Ok(Request::Print(_))), "{words:?}");
    }
    let Ok(Request::Print(help)) = read(&["--help"]) else {
        panic!("help is printed")
    };
    assert!(!help.contains("helper"), "{help}");
}

#[test]
fn words_need_not_be_text() {
    let word = OsString::from_vec(vec![b'x', 0xff]);
    let pair = OsString::from_vec(vec![b'A', b'=', 0xfe]);
    let line = [
        "foster".into(),
        "run".into(),
        "-e".into(),
        pair,
        word.clone(),
        word.clone(),
    ];
    let Ok(Request::Run(options)) = parse(line) else {
        panic!("it is read")
    };
    assert_eq!((options.program, options.args), (word.clone(), vec![word]));
    assert_eq!(options.env, [("A".into(), OsString::from_vec(vec![0xfe]))]);
}
