//! Who listens on a TCP port of this network namespace. It only looks: whoever it is, nobody is
//! signalled for a port.

use std::fs;
use std::io;
use std::path::Path;

use super::members::{self, pids};
use super::standing::stand;
use super::{Registry, RegistryError, Service, ServiceName};

/// The state of a listening socket in `/proc/net/tcp` (`proc_pid_net(5)`).
const LISTEN: &str = "0A";

/// The longest program name that is shown.
const NAME_LIMIT: usize = 128;

/// Who listens on a port that a service wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// Nobody.
    Free,
    /// A registered service.
    HeldBy(ServiceName),
}

impl Registry {
    /// Looks who listens on the port that a service wants.
    ///
    /// The answer is about the moment: whoever comes next may take the port.
    ///
    /// # Errors
    ///
    /// [`PortTaken`](RegistryError::PortTaken) where it is nobody who can be shown to be a
    /// registered service of this registry. Nobody is signalled.
    pub fn check_port(&self, service: &Service) -> Result<Port, RegistryError> {
        let Some(port) = service.port else {
            return Ok(Port::Free);
        };
        let inodes = listeners(port).map_err(|source| RegistryError::System {
            what: "listening sockets cannot be read:",
            path: "/proc/self/net/tcp".into(),
            source,
        })?;
        if inodes.is_empty() {
            return Ok(Port::Free);
        }
        let strangers = holders(&inodes);
        for (_, row) in self.folder.rows()? {
            let Ok(row) = row else { continue };
            let (_, Some(leader)) = stand(&row) else {
                continue;
            };
            let mut members = Vec::new();
            members::find(&leader, &mut members);
            let mut own = members.iter().chain([&leader]);
            if own.any(|one| strangers.iter().any(|holder| holder.pid == one.pid())) {
                return Ok(Port::HeldBy(row.name));
            }
        }
        let stranger = strangers.into_iter().next();
        Err(RegistryError::PortTaken {
            port,
            pid: stranger.as_ref().map(|holder| holder.pid),
            program: stranger.and_then(|holder| holder.program),
        })
    }
}

/// A process that holds a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) program: Option<String>,
}

/// The sockets that listen on this port, by their inodes, over IPv4 and IPv6.
pub(super) fn listeners(port: u16) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) => inodes.extend(parse(&text, port)),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inodes)
}

/// Every process that can be seen to hold one of these sockets.
pub(super) fn holders(inodes: &[u64]) -> Vec<Holder> {
    let names: Vec<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let holds = |pid: &u32| {
        // What is not ours to see is passed over: the holder is unknown then.
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        entries.filter_map(Result::ok).any(|entry| {
            let target = fs::read_link(entry.path());
            target.is_ok_and(|target| names.iter().any(|name| Path::new(name) == target))
        })
    };
    let found = pids().into_iter().filter(holds);
    found
        .map(|pid| Holder {
            pid,
            program: program(pid),
        })
        .collect()
}

/// The program's file, or its name where the file cannot be seen. Either may be chosen by the
/// stranger: it is shown without control characters and cut.
fn program(pid: u32) -> Option<String> {
    let file = fs::read_link(format!("/proc/{pid}/exe"));
    let text = match file {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => fs::read_to_string(format!("/proc/{pid}/comm")).ok()?,
    };
    let shown = text.trim().chars().take(NAME_LIMIT);
    Some(
        shown
            .map(|c| if c.is_control() { '?' } else { c })
            .collect(),
    )
}

/// The inodes of the lines that listen on this port. A line that is not as expected is none.
fn parse(table: &str, port: u16) -> Vec<u64> {
    let lines = table.lines().skip(1);
    lines.filter_map(|line| listener(line, port)).collect()
}

fn listener(line: &str, port: u16) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let is_meant = u16::from_str_radix(local, 16).ok()? == port && state == LISTEN;
    is_meant.then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:9999 0100007F:1F90 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
   3: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4714 1
   4: rubbish
   5: :1F90 : 0A";

    #[test]
    fn only_sockets_that_listen_on_the_port_count() {
        assert_eq!(parse(TABLE, 8080), [4711, 4714]);
        assert!(parse(TABLE, 1).is_empty());
        assert!(parse("", 8080).is_empty());
    }

    #[test]
    fn the_own_listener_is_found_with_its_program() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                // Without IPv6 there is no such listener to be found.
                assert!(address.starts_with('['), "{address} can be had");
                continue;
            };
            let port = listener.local_addr().expect("it is bound").port();
            let inodes = listeners(port).expect("the tables can be read");
            let found = holders(&inodes);
            let own = found.iter().find(|one| one.pid == std::process::id());
            let program = own.and_then(|own| own.program.as_deref());
            assert!(
                program.is_some_and(|name| name.contains("foster")),
                "{found:?}"
            );
            drop(listener);
            let left = listeners(port).expect("the tables can be read");
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
