//! The guarantees, with real processes: nothing of a command is left, whoever dies.

#[path = "guarantees/controls.rs"]
mod controls;
#[path = "guarantees/ground.rs"]
mod ground;
#[path = "guarantees/grounds.rs"]
mod grounds;
#[path = "guarantees/helper_lost.rs"]
mod helper_lost;
#[path = "guarantees/honesty.rs"]
mod honesty;
#[path = "guarantees/host_death.rs"]
mod host_death;
#[path = "guarantees/hosts.rs"]
mod hosts;
#[path = "guarantees/library.rs"]
mod library;
#[path = "guarantees/load.rs"]
mod load;
#[path = "guarantees/loss.rs"]
mod loss;
#[path = "guarantees/matrix.rs"]
mod matrix;
#[path = "guarantees/memory.rs"]
mod memory;
#[path = "guarantees/others.rs"]
mod others;
#[path = "guarantees/phases.rs"]
mod phases;
#[path = "guarantees/privacy.rs"]
mod privacy;
#[path = "guarantees/privilege.rs"]
mod privilege;
#[path = "guarantees/same_signals.rs"]
mod same_signals;
#[path = "guarantees/shapes.rs"]
mod shapes;
