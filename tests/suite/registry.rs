//! The registry, with real services: found again, dropped, ended, and nobody else touched.

#[path = "registry/commands.rs"]
mod commands;
#[path = "registry/ground.rs"]
mod ground;
#[path = "registry/hostile.rs"]
mod hostile;
#[path = "registry/ports.rs"]
mod ports;
#[path = "registry/recipe.rs"]
mod recipe;
#[path = "registry/reconcile.rs"]
mod reconcile;
#[path = "registry/recycled.rs"]
mod recycled;
#[path = "registry/stop.rs"]
mod stop;
