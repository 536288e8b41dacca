//! The janitor: what it finds of instances whose host, helper and keepers were killed, whom it
//! spares, and what it does not believe.

#[path = "sweep/ground.rs"]
mod ground;

#[path = "sweep/records.rs"]
mod records;
#[path = "sweep/shapes.rs"]
mod shapes;
#[path = "sweep/spared.rs"]
mod spared;
