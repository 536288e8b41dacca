//! Runs a small tree, ends it and says what became of it.

use std::time::Duration;

use foster::{Command, Helper};

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn main() -> foster::Result<()> {
    foster::init();
    let helper = Helper::launch()?;
    let child = Command::new("sh")
        .args(["-c", "sleep 600 & sleep 600"])
        .helper(&helper)
        .spawn()?;
    println!(
        "{} runs, contained by {:?}",
        child.id(),
        child.containment().level
    );
    let ending = child.end(Duration::from_secs(1))?;
    println!(
        "{:?} by {:?} in {} us",
        ending.verdict, ending.proof, ending.took.0
    );
    for member in ending.members {
        println!("  {} {:?}: {:?}", member.pid, member.name, member.ended);
    }
    Ok(())
}
