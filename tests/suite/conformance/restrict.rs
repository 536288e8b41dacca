//! The seal: what a helper may be asked for, for the rest of its life.

use foster_protocol::{Bytes, Level, LevelChoice, Reject, Reply, Request, Seal, Sealed, Spec};
use foster_tests::{Link, Stage, is_root, note_not_run};

fn sealed(stage: &Stage, seal: Seal) -> Link {
    let mut link = stage.link();
    let reply = link.ask(Request::Restrict { seal });
    assert_eq!(reply, Reply::Restricted);
    link
}

#[test]
fn second_restrict_is_rejected_and_the_first_stays_in_force() {
    let stage = Stage::new();
    let programs = Some(vec![Bytes::from("/bin/true")]);
    let mut link = sealed(
        &stage,
        Seal {
            programs,
            ..Seal::default()
        },
    );
    let again = Request::Restrict {
        seal: Seal::default(),
    };
    assert_eq!(link.refusal(again), Reject::RestrictTooLate);
    let reason = link.spawn_refusal(stage.command("/bin/false", &[]));
    assert_eq!(
        reason,
        Reject::NotPermitted {
            what: Sealed::Program
        }
    );
}

#[test]
fn restrict_after_another_request_is_rejected() {
    let stage = Stage::new();
    let mut link = stage.link();
    link.ping();
    let late = Request::Restrict {
        seal: Seal::default(),
    };
    assert_eq!(link.refusal(late), Reject::RestrictTooLate);
}

#[test]
fn sealed_programs_are_compared_byte_by_byte() {
    let stage = Stage::new();
    let programs = Some(vec![Bytes::from("/bin/true")]);
    let mut link = sealed(
        &stage,
        Seal {
            programs,
            ..Seal::default()
        },
    );
    let running = link.spawn(stage.command("/bin/true", &[]));
    assert_eq!(link.exit(running.session).status, 0);
    for program in ["/bin//true", "true", "/bin/true ", ""] {
        let reason = link.spawn_refusal(stage.command(program, &[]));
        assert_eq!(
            reason,
            Reject::NotPermitted {
                what: Sealed::Program
            },
            "{program:?}"
        );
    }
}

#[test]
fn sealed_users_bind_also_a_spawn_that_names_none() {
    let stage = Stage::new();
    let own = nix::unistd::geteuid().as_raw();
    let other = own.wrapping_add(1);
    let mut link = sealed(
        &stage,
        Seal {
            uids: Some(vec![other]),
            ..Seal::default()
        },
    );
    let refused = Reject::NotPermitted { what: Sealed::Uid };
    assert_eq!(link.spawn_refusal(stage.command("/bin/true", &[])), refused);
    let named = Spec {
        uid: Some(own),
        ..stage.command("/bin/true", &[])
    };
    assert_eq!(link.spawn_refusal(named), refused);
}

#[test]
fn sealed_groups_bind_the_supplementary_ones_too() {
    let stage = Stage::new();
    let own = nix::unistd::getegid().as_raw();
    let mut link = sealed(
        &stage,
        Seal {
            gids: Some(vec![own]),
            ..Seal::default()
        },
    );
    let refused = Reject::NotPermitted { what: Sealed::Gid };
    let groups = Some(vec![own, own.wrapping_add(7)]);
    let spec = Spec {
        groups,
        ..stage.command("/bin/true", &[])
    };
    assert_eq!(link.spawn_refusal(spec), refused);
    let spec = Spec {
        gid: Some(own.wrapping_add(7)),
        ..stage.command("/bin/true", &[])
    };
    assert_eq!(link.spawn_refusal(spec), refused);
    link.spawn(stage.command("/bin/true", &[]));
}

#[test]
fn level_outside_the_seal_is_rejected() {
    let stage = Stage::new();
    let mut link = sealed(
        &stage,
        Seal {
            levels: Some(vec![Level::Group]),
            ..Seal::default()
        },
    );
    let level = LevelChoice::Exactly(Level::Namespace);
    let spec = Spec {
        level,
        ..stage.command("/bin/true", &[])
    };
    assert_eq!(
        link.spawn_refusal(spec),
        Reject::NotPermitted {
            what: Sealed::Level
        }
    );
    let level = LevelChoice::Exactly(Level::Group);
    link.spawn(Spec {
        level,
        ..stage.command("/bin/true", &[])
    });
}

#[test]
fn seal_with_no_new_privs_binds_a_command_that_did_not_ask_for_it() {
    let stage = Stage::new();
    let mut link = sealed(
        &stage,
        Seal {
            no_new_privs: true,
            ..Seal::default()
        },
    );
    let (_, output) = link.output(stage.command("/bin/cat", &["/proc/self/status"]));
    let status = String::from_utf8_lossy(&output);
    assert_eq!(
        foster_tests::proc::field_of(&status, "NoNewPrivs").as_deref(),
        Some("1")
    );
}

#[test]
fn user_inside_the_seal_is_taken_by_a_privileged_helper() {
    if !is_root() {
        return note_not_run("a spawn as another user", "this is not root");
    }
    let stage = Stage::new();
    let mut link = sealed(
        &stage,
        Seal {
            uids: Some(vec![65534]),
            ..Seal::default()
        },
    );
    let spec = Spec {
        uid: Some(65534),
        ..stage.command("/bin/cat", &["/proc/self/status"])
    };
    let (exit, output) = link.output(spec);
    assert_eq!(exit.status, 0);
    let status = String::from_utf8_lossy(&output);
    let users = foster_tests::proc::field_of(&status, "Uid").expect("the field is there");
    assert_eq!(users.split_whitespace().collect::<Vec<_>>(), ["65534"; 4]);
}
