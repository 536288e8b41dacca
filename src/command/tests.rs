//! The builder, and what it sends.

use std::fs::File;

use foster_protocol::{Bytes, MAX_DESCRIPTORS, Micros, OnExit as WireOnExit};

use super::plan::{Defaults, Plan};
use super::*;

fn plan(command: &Command) -> Plan {
    command
        .plan(Defaults::Capture, false)
        .expect("it can be planned")
}

#[test]
fn a_builder_can_cross_threads() {
    fn crosses<T: Send + Sync + std::fmt::Debug>() {}
    crosses::<Command>();
    crosses::<Stdio>();
    crosses::<crate::Child>();
    crosses::<crate::Session>();
    crosses::<Helper>();
    crosses::<crate::Error>();
}

#[test]
fn getters_give_back_what_was_set() {
    let mut command = Command::new("prog");
    command
        .args(["a", "b"])
        .env("K", "v")
        .env_remove("GONE")
        .current_dir("/d");
    assert_eq!(command.get_program(), "prog");
    assert_eq!(command.get_args().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(
        command.get_envs().collect::<Vec<_>>(),
        [("GONE".as_ref(), None), ("K".as_ref(), Some("v".as_ref()))]
    );
    assert_eq!(command.get_current_dir(), Some(Path::new("/d")));
    assert_eq!(
        format!("{command:?}"),
        "cd \"/d\" && env -u GONE K=\"v\" \"prog\" \"a\" \"b\""
    );
}

#[test]
fn stds_builder_is_taken_over() {
    let mut std = std::process::Command::new("prog");
    std.arg("a")
        .env("K", "v")
        .env_remove("GONE")
        .current_dir("/d");
    let command = Command::from(std);
    assert_eq!(
        format!("{command:?}"),
        "cd \"/d\" && env -u GONE K=\"v\" \"prog\" \"a\""
    );
}

#[test]
fn a_plan_has_the_programs_own_name_first_and_the_directory_last() {
    let mut command = Command::new("prog");
    command
        .arg("x")
        .arg0("other")
        .current_dir("sub")
        .stdin(Stdio::null());
    let plan = plan(&command);
    assert_eq!(plan.spec.program, Bytes::from("prog"));
    assert_eq!(plan.spec.args, [Bytes::from("other"), Bytes::from("x")]);
    assert_eq!(plan.spec.directory, Some(Bytes::from("sub")));
    // Both outputs and this process's directory; null input needs no descriptor.
    assert_eq!(plan.descriptors.len(), 3);
    assert_eq!(plan.spec.directory_base, Some(2));
    let targets: Vec<_> = plan
        .spec
        .descriptors
        .iter()
        .map(|mapping| mapping.target)
        .collect();
    assert_eq!(targets, [1, 2]);
    assert!(plan.ends.stdin.is_none() && plan.ends.stdout.is_some() && plan.ends.stderr.is_some());
}

#[test]
fn a_descriptor_that_is_named_twice_is_the_last_one() {
    let open = || File::open("/dev/null").expect("it is there");
    let mut command = Command::new("prog");
    command
        .fd(5, open())
        .fd(5, open())
        .fd(0, open())
        .fd(-1, open());
    let plan = plan(&command);
    let targets: Vec<_> = plan
        .spec
        .descriptors
        .iter()
        .map(|mapping| mapping.target)
        .collect();
    assert_eq!(targets, [0, 1, 2, 5, -1]);
}

#[test]
fn options_reach_the_spec() {
    let grace = Duration::from_millis(5);
    let mut command = Command::new("prog");
    command
        .umask(0o77)
        .resource_limit(7, 1, 2)
        .resource_limit(7, 3, 4)
        .nice(5)
        .oom_score_adj(6)
        .uid(1)
        .gid(2)
        .groups(&[3])
        .no_new_privs(true)
        .parent_death_signal(0)
        .first_signal(2)
        .level(LevelChoice::Exactly(Level::Group))
        .require(Level::Group)
        .on_exit(OnExit::Linger {
            limit: grace,
            grace,
        })
        .deadline(grace)
        .grace(grace)
        .detachable(true)
        .label("text");
    let spec = plan(&command).spec;
    assert_eq!(
        (spec.umask, spec.nice, spec.oom_score_adj),
        (Some(0o77), Some(5), Some(6))
    );
    assert_eq!(
        (spec.uid, spec.gid, spec.groups.as_deref()),
        (Some(1), Some(2), Some(&[3][..]))
    );
    assert_eq!(spec.resource_limits.len(), 1);
    assert_eq!(spec.resource_limits[0].hard, 4);
    assert_eq!((spec.death_signal, spec.first_signal), (Some(0), Some(2)));
    assert!(spec.no_new_privs && spec.detachable && !spec.gated);
    assert_eq!(spec.level, LevelChoice::Exactly(Level::Group));
    assert_eq!(spec.require, Some(Level::Group));
    assert_eq!(
        spec.on_exit,
        WireOnExit::Linger {
            limit: Micros(5000),
            grace: Micros(5000)
        }
    );
    assert_eq!(
        (spec.deadline, spec.grace),
        (Some(Micros(5000)), Micros(5000))
    );
    assert_eq!(spec.label, Bytes::from("text"));
}

#[test]
fn what_does_not_fit_is_named_with_its_size_and_the_limit() {
    // Nothing is sent: the fake helper sees only the hangup.
    let (helper, fake) = crate::connection::fake::helper(|mut fake| {
        assert!(fake.next().is_none(), "nothing was sent");
    });
    let mut large = Command::new("prog");
    large.env_clear().helper(&helper);
    for index in 0..50 {
        large.env(format!("V{index}"), "x".repeat(100_000 + index));
    }
    let error = large.spawn().expect_err("it is too large");
    assert!(error.is_too_large());
    let text = error.to_string();
    assert!(text.starts_with("spawn request of 5001"), "{text}");
    assert!(
        text.ends_with("limit of 4194304; largest: environment variable V49 of 100053 bytes"),
        "{text}"
    );
    let mut many = Command::new("prog");
    many.helper(&helper);
    for target in 3..=260 {
        many.fd(target, File::open("/dev/null").expect("it is there"));
    }
    let error = many.spawn().expect_err("there are too many");
    assert!(error.is_too_large());
    assert!(
        error
            .to_string()
            .ends_with(&format!("above the limit of {MAX_DESCRIPTORS}"))
    );
    drop((large, many, helper));
    fake.join().expect("the script ran");
}

#[test]
fn a_nul_anywhere_is_invalid_input() {
    let with = |change: fn(&mut Command)| {
        let mut command = Command::new("prog");
        change(&mut command);
        command
            .plan(Defaults::Inherit, false)
            .expect_err("it holds a NUL")
            .to_string()
    };
    assert_eq!(
        with(|command| *command = Command::new("p\0")),
        "program holds a NUL byte"
    );
    assert_eq!(
        with(|command| _ = command.arg("a\0")),
        "argument 1 holds a NUL byte"
    );
    assert_eq!(
        with(|command| _ = command.env("N", "a\0")),
        "environment variable N holds a NUL byte"
    );
    assert_eq!(
        with(|command| _ = command.current_dir("a\0")),
        "directory holds a NUL byte"
    );
    assert_eq!(
        with(|command| _ = command.label("a\0")),
        "label holds a NUL byte"
    );
}
