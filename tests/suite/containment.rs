//! Containment of a whole program: on request through a variable, and by `foster contain`.

#[path = "containment/acknowledgement.rs"]
mod acknowledgement;
#[path = "containment/contain_command.rs"]
mod contain_command;
#[path = "containment/ground.rs"]
mod ground;
#[path = "containment/program_ends.rs"]
mod program_ends;
#[path = "containment/request.rs"]
mod request;
#[path = "containment/starter.rs"]
mod starter;
