//! What becomes of a tree when its host ends, in whatever way.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::held::Process;
use crate::{Words, roles};

fn host(role: &str) -> (Child, Words) {
    let mut host = Command::new(roles::program())
        .args(roles::ARGUMENTS)
        .env(roles::ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a host starts");
    let words = Words::of(&mut host.stdout);
    (host, words)
}

fn tell(host: &mut Child) {
    let input = host.stdin.as_mut().expect("it is piped");
    input.write_all(b"\n").expect("the host reads");
    input.flush().expect("the host reads");
}

fn tree(words: &mut Words) -> [Process; 3] {
    [words.process(), words.process(), words.process()]
}

#[test]
fn tree_is_gone_when_its_host_is_killed() {
    let (mut host, mut words) = host("host");
    let tree = tree(&mut words);
    host.kill().expect("it is ours");
    host.wait().expect("it is ours");
    for member in &tree {
        member.assert_ends("member of a killed host's tree");
    }
}

#[test]
fn tree_is_gone_when_its_host_exits_without_a_drop() {
    let (mut host, mut words) = host("host");
    let tree = tree(&mut words);
    tell(&mut host);
    assert_eq!(host.wait().expect("it is ours").code(), Some(9));
    for member in &tree {
        member.assert_ends("member of an exited host's tree");
    }
}

#[test]
fn released_tree_outlives_its_killed_host() {
    let (mut host, mut words) = host("host-that-releases");
    let member = words.process();
    tell(&mut host);
    assert_eq!(words.next(), "1");
    host.kill().expect("it is ours");
    host.wait().expect("it is ours");
    member.assert_lives_on("what was released");
}
