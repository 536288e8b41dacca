//! A service that outlives its host: found again, or started; `stop` as an argument ends it.

use std::path::PathBuf;

use foster::registry::{DEFAULT_KEY, Registry, Service, Standing, Stop};
use foster::{Command, Helper, Stdio};

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    foster::init();
    let mut words = std::env::args().skip(1);
    let folder = words
        .next()
        .map_or_else(Registry::default_folder, |word| Ok(PathBuf::from(word)));
    let registry = Registry::open(folder?, DEFAULT_KEY)?;
    if words.next().as_deref() == Some("stop") {
        for (name, outcome) in registry.stop_all(Stop::default())? {
            println!("{name}: {outcome:?}");
        }
        return Ok(());
    }
    // 1. What the host before this one has left: its rows are looked at, nobody is signalled.
    for one in registry.reconcile()? {
        println!("{}: {:?}", one.file, one.decision);
    }
    let service = Service::new("sleeper")?;
    let is_there = registry
        .list()?
        .into_iter()
        .flatten()
        .any(|one| one.name == *service.name() && one.standing == Standing::Ours);
    if is_there {
        println!("the service runs already");
        return Ok(());
    }
    // 2. Nobody else may have its port, if it has one.
    registry.check_port(&service)?;
    // 3. Marked, so that it is known again, and detachable, so that it can be released. It
    //    holds no pipe of this host's.
    let helper = Helper::launch()?;
    let child = Command::new("sleep")
        .arg("600")
        .markers(&registry.markers(&service)?)
        .detachable(true)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .helper(&helper)
        .spawn()?;
    // 4. Registered while it is held. Until then it ends with this host, so that there is no
    //    moment in which it runs and nobody knows of it.
    registry.register(&service, &child)?;
    // 5. From here on it outlives this host.
    println!("the service runs as process {}", child.id());
    child.release()?;
    Ok(())
}
