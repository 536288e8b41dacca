//! The guarantee table: every level, every shape of a tree, every death or act. What is observed
//! is `docs/GUARANTEES.md`, and this suite compares the two.

#[path = "promises/cell.rs"]
mod cell;
#[path = "promises/events.rs"]
mod events;
#[path = "promises/ground.rs"]
mod ground;
#[path = "promises/levels.rs"]
mod levels;
#[path = "promises/outcome.rs"]
mod outcome;
#[path = "promises/page.rs"]
mod page;
#[path = "promises/shapes.rs"]
mod shapes;
#[path = "promises/stranger.rs"]
mod stranger;
#[path = "promises/swept.rs"]
mod swept;
#[path = "promises/table.rs"]
mod table;
#[path = "promises/told.rs"]
mod told;
