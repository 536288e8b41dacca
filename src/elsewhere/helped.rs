//! A session of a helper, of which there is none.

use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use foster_protocol::{Containment, Ending, Exit, Pid, SessionId, Target};

use crate::direct::Failed;
use crate::ended::Ended;
use crate::error::Result;

/// A session of a helper. No value of this type exists; its methods are those of Linux.
#[derive(Clone, Debug)]
pub(crate) struct Helped {
    never: Infallible,
}

/// The methods of a type without values.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $result:ty;)+) => {
        impl Helped {
            $(
                pub(crate) fn $name(&self $(, _: $argument)*) -> $result {
                    match self.never {}
                }
            )+
        }
    };
}

never! {
    id() -> SessionId;
    pid() -> Pid;
    containment() -> &Containment;
    pidfd() -> Option<BorrowedFd<'_>>;
    signal(i32, Target) -> Result<u32>;
    end(i32, Duration) -> Result<Ending>;
    wait_exit(Option<Duration>) -> Result<Option<Exit>>;
    wait_end(Option<Duration>) -> Result<Option<Ended>>;
    release() -> Result<u32>;
    supervisor() -> BorrowedFd<'_>;
    open(Option<Duration>) -> Result<std::result::Result<(), Failed>>;
    close() -> ();
    is_exit_lost() -> bool;
    exit() -> Option<Exit>;
}
