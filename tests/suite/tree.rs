//! Level `tree`: a keeper per session, what it inherits, what it reaches, and whose death ends
//! what.

#[path = "tree/ground.rs"]
mod ground;

#[path = "tree/birth.rs"]
mod birth;
#[path = "tree/bombs.rs"]
mod bombs;
#[path = "tree/cost.rs"]
mod cost;
#[path = "tree/deaths.rs"]
mod deaths;
#[path = "tree/host_deaths.rs"]
mod host_deaths;
#[path = "tree/keeper_deaths.rs"]
mod keeper_deaths;
#[path = "tree/limits.rs"]
mod limits;
#[path = "tree/many.rs"]
mod many;
#[path = "tree/reach.rs"]
mod reach;
#[path = "tree/released.rs"]
mod released;
#[path = "tree/spares.rs"]
mod spares;
