//! The tiny program, compiled where it is needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("foster-bench-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that is left in the temporary place harms nobody.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Compiles the program with the compiler and linker that built this one.
pub(crate) fn compile(folder: &Path) -> io::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs/exits.rs");
    let program = folder.join("exits");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let status = Command::new(&compiler)
        .args([
            "--edition",
            "2024",
            "-C",
            "panic=abort",
            "-C",
            "opt-level=s",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "relocation-model=static",
            "-C",
            "link-arg=-nostartfiles",
        ])
        .args([
            "-C",
            "link-arg=-nostdlib",
            "-C",
            "link-arg=-static",
            "-C",
            "link-arg=-no-pie",
        ])
        .args(["-C", "default-linker-libraries=no", "-o"])
        .arg(&program)
        .arg(source)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "{}: {status}",
            compiler.display()
        )));
    }
    Ok(program)
}
