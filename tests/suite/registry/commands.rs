//! `foster ps` and `foster stop`.

use foster_tests::{DEATH, Finished, Program, Stage, places};

use crate::ground::{Running, SLEEP, folder, registry};

fn foster(stage: &Stage, words: &[&str]) -> Finished {
    let (verb, rest) = words.split_first().expect("a subcommand");
    Program::new(stage, places::foster())
        .arg(verb)
        .arg("--folder")
        .arg(folder(stage))
        .args(rest)
        .run()
}

fn json(finished: &Finished) -> serde_json::Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

#[test]
fn ps_shows_what_runs_and_what_does_not_and_changes_nothing() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let web = Running::registered(&stage, &registry, "web", SLEEP);
    let db = Running::registered(&stage, &registry, "db", SLEEP);
    db.end();
    let finished = foster(&stage, &["ps", "--json"]);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let pid = web.child.id();
    let listing = json(&finished);
    let services = listing.get("services").and_then(|list| list.as_array());
    let told: Vec<_> = services
        .expect("a list")
        .iter()
        .map(|row| (row["name"].as_str(), row["standing"].as_str()))
        .collect();
    assert_eq!(
        told,
        [(Some("db"), Some("dead")), (Some("web"), Some("running"))]
    );
    let table = foster(&stage, &["ps"]);
    let wanted = format!("web      running   {pid}");
    assert!(table.stdout.contains(&wanted), "{table:?}");
    assert!(folder(&stage).join("db.service").exists());
    web.end();
}

#[test]
fn stop_ends_the_named_service_and_no_other() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let mut web = Running::registered(&stage, &registry, "web", SLEEP);
    let db = Running::registered(&stage, &registry, "db", SLEEP);
    let finished = foster(&stage, &["stop", "web"]);
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.stdout, "web: ended by the first signal\n");
    web.tracer.wait_for_end(DEATH);
    assert!(db.witness.is_alive());
    let finished = foster(&stage, &["stop", "--all", "--json"]);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let report = json(&finished);
    assert_eq!(report["services"][0]["name"], "db");
    assert_eq!(report["services"][0]["over"], true);
    assert_eq!(report["services"][0]["outcome"], "first-signal");
    db.witness.wait_for_death(DEATH);
    web.end();
    db.end();
}

#[test]
fn stop_of_an_unknown_name_signals_nobody_and_exits_with_125() {
    let stage = Stage::new();
    let registry = registry(&stage);
    let web = Running::registered(&stage, &registry, "web", SLEEP);
    let finished = foster(&stage, &["stop", "web", "wbe"]);
    assert_eq!(finished.code(), 125, "{finished:?}");
    assert_eq!(finished.stderr, "foster: no service wbe is registered\n");
    assert!(web.witness.is_alive());
    for wrong in [&["stop"][..], &["stop", "--all", "web"]] {
        assert_eq!(foster(&stage, wrong).code(), 125);
    }
    web.end();
}

#[test]
fn registry_that_is_not_there_is_empty_and_is_not_made() {
    let stage = Stage::new();
    let finished = foster(&stage, &["ps", "--json"]);
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(json(&finished)["services"], serde_json::json!([]));
    assert_eq!(foster(&stage, &["stop", "--all"]).code(), 0);
    assert_eq!(foster(&stage, &["stop", "web"]).code(), 125);
    assert!(!folder(&stage).exists());
}

#[test]
fn file_that_is_no_row_is_named_and_makes_the_exit_code_1() {
    let stage = Stage::new();
    let _registry = registry(&stage);
    std::fs::write(folder(&stage).join("web.service"), "{").expect("a file");
    let finished = foster(&stage, &["ps"]);
    assert_eq!(finished.code(), 1, "{finished:?}");
    let line = finished.stdout.lines().last().unwrap_or_default();
    assert!(line.starts_with("refused: registry file \"web.service\""));
}
