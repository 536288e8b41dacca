//! What happens to foster from outside, as news: signals and the death of its parent.
//!
//! Handlers are installed before anything is started, so that nothing is lost in between; the
//! thread that waits for them comes after the helper. One poll waits for both sources.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::thread;

use nix::errno::Errno;
use nix::libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::cli::news::News;
use crate::contain::is_ignored;
use crate::parent::{self, Parent};

/// The signals that mean something to foster.
const HANDLED: [i32; 8] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGTSTP,
];

/// The two sources of news.
#[derive(Debug)]
pub(crate) struct Watch {
    signals: SignalDelivery<UnixStream, SignalOnly>,
    parent: Option<OwnedFd>,
    is_parent_gone: bool,
}

impl Watch {
    /// Installs the handlers and unblocks their signals. HUP stays ignored where foster was
    /// started with it ignored, as `nohup` does.
    ///
    /// # Errors
    ///
    /// What the system says about the handlers.
    pub(crate) fn install() -> io::Result<Self> {
        let keep_hup_ignored = is_ignored(SIGHUP);
        let handled = HANDLED
            .iter()
            .filter(|number| !(keep_hup_ignored && **number == SIGHUP));
        let (read, write) = UnixStream::pair()?;
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, handled)?;
        let mut set = SigSet::empty();
        for number in HANDLED {
            set.add(Signal::try_from(number)?);
        }
        set.thread_unblock()?;
        Ok(Self {
            signals,
            parent: None,
            is_parent_gone: false,
        })
    }

    /// Watches foster's parent too.
    ///
    /// # Errors
    ///
    /// What the system says about a pidfd.
    pub(crate) fn hold_parent(&mut self) -> io::Result<()> {
        match parent::hold()? {
            Parent::Watched(pidfd) => self.parent = Some(pidfd),
            Parent::First => {}
            Parent::Gone => self.is_parent_gone = true,
        }
        Ok(())
    }

    /// Takes the news so far, without waiting.
    ///
    /// # Errors
    ///
    /// What `poll(2)` says.
    pub(crate) fn poll_now(&mut self) -> io::Result<Vec<News>> {
        self.poll(PollTimeout::ZERO)
    }

    /// Hands on all news from here on, on a thread of its own.
    ///
    /// # Errors
    ///
    /// `EAGAIN` where no thread can be had.
    pub(crate) fn start(mut self, news: Sender<News>) -> io::Result<()> {
        let watch = move || {
            loop {
                let batch = match self.poll(PollTimeout::NONE) {
                    Ok(batch) => batch,
                    Err(error) => vec![News::Blind(error)],
                };
                let is_last = batch.iter().any(|item| matches!(item, News::Blind(_)));
                let is_heard = batch.into_iter().all(|item| news.send(item).is_ok());
                if is_last || !is_heard {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("watch".to_owned())
            .spawn(watch)
            .map(drop)
    }

    fn poll(&mut self, timeout: PollTimeout) -> io::Result<Vec<News>> {
        let mut batch = Vec::new();
        let mut sources = vec![PollFd::new(
            self.signals.get_read().as_fd(),
            PollFlags::POLLIN,
        )];
        sources.extend(
            self.parent
                .as_ref()
                .map(|pidfd| PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut sources, timeout) {
            // A handler ran in this thread: what it wrote is there at the next turn.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let parent_is_ready = sources.get(1).and_then(PollFd::any).unwrap_or(false);
        if parent_is_ready || self.is_parent_gone {
            self.parent = None;
            self.is_parent_gone = false;
            batch.push(News::ParentGone);
        }
        let mut numbers: Vec<i32> = self.signals.pending().collect();
        // Their order is lost where both came at once, and going on is the side that ends.
        if numbers.contains(&SIGCONT) {
            numbers.retain(|number| *number != SIGTSTP);
        }
        batch.extend(numbers.into_iter().map(News::Signal));
        Ok(batch)
    }
}
