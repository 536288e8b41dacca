//! A registry of the test's own, and services in it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use foster::identity::Held;
use foster::registry::{Registry, Service};
use foster_tests::{Stage, TAG, Tracer, Witness};

/// The key of every test's services.
pub(crate) const KEY: &str = "ACME_SERVICE";

/// The folder of a test's registry.
pub(crate) fn folder(stage: &Stage) -> PathBuf {
    stage.scratch().join("services")
}

/// A registry in the test's scratch folder.
pub(crate) fn registry(stage: &Stage) -> Registry {
    Registry::open(folder(stage), KEY).expect("a folder of this user's own")
}

/// A service that runs as a child of the test, which is its host and a parent that reaps late.
/// It leads a session, as every command of a helper does.
pub(crate) struct Running {
    pub(crate) service: Service,
    pub(crate) child: Child,
    pub(crate) witness: Witness,
    /// The read end of its standard output, which its whole tree holds.
    pub(crate) tracer: Tracer,
}

impl Running {
    /// Starts a script that is marked as this service and says `ready`; it is not registered.
    pub(crate) fn start(stage: &Stage, registry: &Registry, name: &str, script: &str) -> Self {
        let service = Service::new(name).expect("a name");
        let markers = registry.markers(&service).expect("markers");
        let (mut tracer, writer) = Tracer::new();
        let child = Command::new("setsid")
            .args(["sh", "-c", script])
            .env(TAG, stage.tag())
            .envs(markers.variables())
            .stdin(Stdio::null())
            .stdout(writer)
            .spawn()
            .expect("setsid is there");
        while tracer.line() != "ready" {}
        let witness = Witness::of(i32::try_from(child.id()).expect("a pid fits"));
        Self {
            service,
            child,
            witness,
            tracer,
        }
    }

    /// The same, registered.
    pub(crate) fn registered(stage: &Stage, registry: &Registry, name: &str, script: &str) -> Self {
        let mut running = Self::start(stage, registry, name, script);
        let held = Held::of_std(&mut running.child).expect("it lives");
        registry
            .register_held(&running.service, &held)
            .expect("it can be registered");
        running
    }

    /// Ends it, if it lives, and reaps it.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // std signals no child that it has waited for.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
    }
}

/// A script that sleeps.
pub(crate) const SLEEP: &str = "echo ready; exec sleep 60";
