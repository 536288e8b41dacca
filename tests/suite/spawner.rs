//! What a host gets when it has no helper, when its helper fails it, and at the gate.

#[path = "spawner/clean.rs"]
mod clean;
#[path = "spawner/direct.rs"]
mod direct;
#[path = "spawner/endings.rs"]
mod endings;
#[path = "spawner/gate.rs"]
mod gate;
#[path = "spawner/ground.rs"]
mod ground;
#[path = "spawner/kernels.rs"]
mod kernels;
#[path = "spawner/notices.rs"]
mod notices;
#[path = "spawner/silent.rs"]
mod silent;
