//! The command's story, told as news from its spawn to the helper's farewell.
//!
//! One thread, one straight line: spawn, exit, end, farewell. It decides nothing.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crate::cli::news::News;
use crate::cli::options::RunOptions;
use crate::cli::plan::Plan;
use crate::{Command, Ended, Helper, Result, Session};

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct Story {
    helper: Helper,
    command: Command,
    grace: Duration,
    news: Sender<News>,
}

/// Says at the end of the thread, however it ends, that nothing more will come.
struct LastWord(Sender<News>);

impl Drop for LastWord {
    fn drop(&mut self) {
        tell(&self.0, News::Over);
    }
}

impl Story {
    /// Prepares the command of a command line.
    pub(crate) fn new(
        helper: Helper,
        options: &RunOptions,
        plan: Plan,
        news: Sender<News>,
    ) -> Self {
        let mut command = Command::new(&options.program);
        command
            .args(&options.args)
            .helper(&helper)
            .level(options.level);
        if options.env_clear {
            command.env_clear();
        }
        for (name, value) in &options.env {
            command.env(name, value);
        }
        if let Some(directory) = &options.directory {
            command.current_dir(directory);
        }
        if let Some(level) = options.require {
            command.require(level);
        }
        if let Some(deadline) = plan.deadline {
            command.deadline(deadline);
        }
        command
            .on_exit(plan.on_exit)
            .grace(plan.grace)
            .first_signal(plan.first);
        Self {
            helper,
            command,
            grace: plan.grace,
            news,
        }
    }

    /// Tells the story on a thread of its own.
    ///
    /// # Errors
    ///
    /// `EAGAIN` where no thread can be had.
    pub(crate) fn start(self) -> io::Result<()> {
        let tell_it = move || {
            let last = LastWord(self.news.clone());
            if let Err(error) = self.follow() {
                tell(&last.0, News::Failed(error));
            }
        };
        thread::Builder::new()
            .name("follow".to_owned())
            .spawn(tell_it)
            .map(drop)
    }

    fn follow(mut self) -> Result<()> {
        let child = self.command.spawn()?;
        let session = child.session().clone();
        tell(&self.news, News::Started(session.clone()));
        let exit = known(|| session.wait_exit(None))?;
        tell(&self.news, News::Exited(exit));
        let ended = known(|| session.wait_end(None))?;
        let is_released = matches!(ended, Ended::Released { .. });
        tell(&self.news, News::Ended(ended));
        drop(child);
        // What was let go may have children that left its session: nobody is ended then.
        let farewell = if is_released {
            None
        } else {
            Some(self.helper.shutdown(self.grace)?)
        };
        tell(&self.news, News::Done(farewell));
        Ok(())
    }
}

/// Waits until there is an answer; without a limit on the wait, that is the first.
fn known<T>(mut wait: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(answer) = wait()? {
            return Ok(answer);
        }
    }
}

/// Asks for an ending on a thread of its own, because the answer comes when everything has
/// ended and another request may have to shorten the grace meanwhile.
///
/// # Errors
///
/// `EAGAIN` where no thread can be had.
pub(crate) fn end_beside(
    session: Session,
    first: i32,
    grace: Duration,
    news: Sender<News>,
) -> io::Result<()> {
    let ask = move || {
        if let Err(error) = session.end(first, grace) {
            tell(&news, News::NotEnded(error));
        }
    };
    thread::Builder::new()
        .name("end".to_owned())
        .spawn(ask)
        .map(drop)
}

fn tell(news: &Sender<News>, item: News) {
    // Nobody listens any more where foster is on its way out, and nothing is left to do then.
    drop(news.send(item));
}
