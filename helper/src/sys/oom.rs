//! The helper's place among those whom the kernel kills when memory runs out.
//!
//! A helper or keeper that is killed first leaves its tree without the one that ends it, so it
//! asks to be among the last, where it may. Its commands are given back what it had inherited:
//! nobody's command is to live longer than its host for being started here.

use std::fs::File;
use std::io::{self, Read, Write};

/// What the helper lives with: after every command and host, and before what a machine cannot do
/// without. -1000 would be never (`proc_pid_oom_score_adj(5)`), whatever the helper holds.
const LOWERED: i32 = -900;

/// The helper's own adjustment, open.
#[derive(Debug)]
pub(crate) struct OomScore {
    file: File,
    inherited: i32,
}

impl OomScore {
    /// Opens it. An undumpable process may not, so this comes before.
    ///
    /// # Errors
    ///
    /// `NotFound` without `/proc`; otherwise what the kernel says.
    pub(crate) fn open() -> io::Result<Self> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/oom_score_adj")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let inherited = text.trim().parse().map_err(io::Error::other)?;
        Ok(Self { file, inherited })
    }

    /// Lowers it, and gives what children are to be given back; none where it stays as it is:
    /// lowering takes `CAP_SYS_RESOURCE`.
    pub(crate) fn lower(mut self) -> Option<i32> {
        if self.inherited <= LOWERED {
            return None;
        }
        match self.file.write_all(LOWERED.to_string().as_bytes()) {
            Ok(()) => Some(self.inherited),
            Err(error) => {
                tracing::debug!(%error, "the OOM score stays as it is");
                None
            }
        }
    }
}
