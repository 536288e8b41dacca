//! Files that are not what a registry writes: each is refused with what is wrong, and left.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use foster::registry::{Decision, Fault, Registry, RegistryError, Service, Stop};
use foster_tests::{Stage, is_root, note_not_run};

use crate::ground::{KEY, Running, SLEEP, folder, registry};

/// What is wrong with the only file, by every call that reads it.
fn fault(registry: &Registry) -> Fault {
    let mut told = registry.reconcile().expect("the folder");
    assert_eq!(told.len(), 1, "{told:?}");
    let Decision::Refused(error) = told.remove(0).decision else {
        panic!("it was not refused");
    };
    assert!(
        registry
            .list()
            .expect("the folder")
            .iter()
            .all(Result::is_err)
    );
    assert_eq!(registry.stop_all(Stop::default()).expect("the folder"), []);
    let RegistryError::RowRefused { file, fault } = error else {
        panic!("{error}");
    };
    assert_eq!(file, "web.service");
    fault
}

fn each(make: impl FnOnce(&Path)) -> Fault {
    let stage = Stage::new();
    let registry = registry(&stage);
    let path = folder(&stage).join("web.service");
    make(&path);
    let fault = fault(&registry);
    assert!(path.symlink_metadata().is_ok(), "it is left as it is");
    fault
}

#[test]
fn garbage_is_refused_as_no_row() {
    for bytes in [&b""[..], b"\0\0\0", b"{", b"[]", b"\xff\xfe", b"12"] {
        let fault = each(|path| fs::write(path, bytes).expect("a file"));
        assert!(matches!(fault, Fault::Content { .. }), "{bytes:?}: {fault}");
    }
}

#[test]
fn links_folders_and_pipes_are_refused_and_nothing_hangs() {
    let fault = each(|path| symlink("/etc/passwd", path).expect("a link"));
    assert_eq!(fault, Fault::Kind);
    let fault = each(|path| symlink("/nowhere", path).expect("a link"));
    assert_eq!(fault, Fault::Kind);
    let fault = each(|path| fs::create_dir(path).expect("a folder"));
    assert_eq!(fault, Fault::Kind);
    let fault = each(|path| {
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(path, mode).expect("a pipe");
    });
    assert_eq!(fault, Fault::Kind);
}

#[test]
fn huge_file_is_refused_unread() {
    let fault = each(|path| {
        let file = fs::File::create(path).expect("a file");
        file.set_len(1 << 40).expect("a hole");
    });
    assert!(matches!(fault, Fault::Size { .. }), "{fault}");
}

#[test]
fn file_that_others_can_write_or_own_is_refused() {
    let fault = each(|path| {
        fs::write(path, "{}").expect("a file");
        fs::set_permissions(path, Permissions::from_mode(0o666)).expect("its mode");
    });
    assert_eq!(fault, Fault::Writable { mode: 0o666 });
    if !is_root() {
        return note_not_run("a file of another user", "only root can make one");
    }
    let fault = each(|path| {
        fs::write(path, "{}").expect("a file");
        chown(path, Some(65534), None).expect("root may");
    });
    assert_eq!(fault, Fault::Owner { uid: 65534 });
}

#[test]
fn row_of_another_service_under_this_name_is_refused() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "db", SLEEP);
    let (from, to) = (
        folder(&stage).join("db.service"),
        folder(&stage).join("web.service"),
    );
    fs::rename(from, to).expect("a rename");
    let fault = fault(&registry);
    assert!(matches!(fault, Fault::OtherName { .. }), "{fault}");
    assert!(running.witness.is_alive());
    running.end();
}

#[test]
fn folder_that_others_can_write_to_or_that_is_a_link_is_refused() {
    let stage = Stage::new();
    let open = fs::create_dir(folder(&stage))
        .and_then(|()| fs::set_permissions(folder(&stage), Permissions::from_mode(0o777)));
    open.expect("a folder");
    let refused = |path: &Path| {
        let error = Registry::open(path, KEY).expect_err("it is refused");
        let RegistryError::FolderUnsafe { fault, .. } = error else {
            panic!("{error}");
        };
        fault
    };
    assert_eq!(refused(&folder(&stage)), Fault::Writable { mode: 0o777 });
    let real = stage.scratch().join("real");
    fs::create_dir(&real).expect("a folder");
    let link = stage.scratch().join("link");
    symlink(&real, &link).expect("a link");
    assert_eq!(refused(&link), Fault::Kind);
}

#[test]
fn writer_that_died_in_mid_row_leaves_the_row_of_before() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let running = Running::registered(&stage, &registry, "web", SLEEP);
    fs::write(folder(&stage).join("fresh"), "{\"version\":1,\"na").expect("half a row");
    let told = registry.reconcile().expect("the folder");
    assert!(matches!(told.as_slice(), [one] if matches!(one.decision, Decision::Kept { .. })));
    let other = Service::new("db").expect("a name");
    registry
        .announce(&other)
        .expect("the half row is in nobody's way");
    assert_eq!(registry.list().expect("the folder").len(), 2);
    running.end();
}
