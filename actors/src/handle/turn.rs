//! Sends an input and waits for the end of the turn that handles it. The actor of the process
//! reports that end (`process/turn_end.rs`). If the actor stops before, the end is looked for in
//! the journal, from the fact on that queued the input.

use dormouse_kernel::process::{TurnEnd, TurnSearch};
use dormouse_proto::id::FactNumber;
use dormouse_proto::mail::Sender;
use dormouse_proto::process::Exit;
use dormouse_proto::user_input::UserInput;
use tokio::sync::oneshot;

use super::process::Process;
use crate::error::KernelError;
use crate::process::TurnRequest;
use crate::recovery::decode_fact;

impl Process {
    /// Sends user input to the process, as [`input`](Self::input) does, and waits for the end of
    /// the turn that handles it. Returns the status of the turn, with the text of the model's last
    /// reply or the reason of a failure. A failed turn is not an `Err`: check the status.
    ///
    /// ```
    /// # use dormouse_actors::{KernelError, handle::Process};
    /// # use dormouse_proto::process::ExitStatus;
    /// async fn ask(session: &Process) -> Result<(), KernelError> {
    ///     let end = session.turn("Why does the build fail?").await?;
    ///     match end.status {
    ///         ExitStatus::Done => println!("{}", end.message),
    ///         status => println!("no answer ({}): {}", status.word(), end.message),
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// * A process in a turn handles the input after that turn. Inputs that wait together are
    ///   handled in one turn, and each caller gets the end of that turn.
    /// * If the process ends before or with the turn, this returns its exit, as
    ///   [`wait`](Self::wait) does.
    /// * A [`goto`](Self::goto) and a [`restore`](Self::restore) of the host end the turn as
    ///   interrupted.
    /// * A hibernated process wakes. A restart of the process after a fault does not end the turn
    ///   or the wait. While the process is stopped, this waits.
    /// * Background children may run on after the turn: `wait_for(View::is_idle)` waits for them
    ///   too.
    ///
    /// The input is durable before any effect of it, and the end of the turn is durable when this
    /// returns. Dropping the future neither withdraws the input nor ends the turn;
    /// [`interrupt`](Self::interrupt) ends the turn. There is no time limit: use
    /// `tokio::time::timeout` and `interrupt`.
    ///
    /// Costs no more than [`input`](Self::input): no events are read, and the number of turns that
    /// are awaited concurrently is limited only by the inboxes. If the process was loaded again
    /// during the turn, the facts since the input are read from its journal, and `spent` is `None`.
    ///
    /// # Errors
    /// As [`input`](Self::input), before the input is durable.
    /// [`ProcessError::EmptyInput`](crate::ProcessError::EmptyInput) for one of nothing but white space.
    /// [`ProcessError::Held`](crate::ProcessError::Held) if the process stops because its journal
    /// cannot be read or written, or if it faults and has no journal;
    /// [`KernelError::Closed`] if the kernel shuts down first: in both cases the input is in the
    /// journal, and the turn continues when the process is resumed.
    /// [`KernelError::Store`] if the process was loaded again and its journal cannot be read.
    pub async fn turn(&self, user_input: impl Into<UserInput>) -> Result<Exit, KernelError> {
        let input = self.checked_input(Sender::Host, user_input.into())?;
        let (queued_reply, queued_at) = oneshot::channel();
        let (end_reply, end) = oneshot::channel();
        self.deliver_for_turn(
            input,
            TurnRequest {
                queued_reply,
                end_reply,
            },
        )
        .await?;
        match end.await {
            Ok(end) => self.wait_for_exit(end).await,
            Err(_) => {
                let queued_at = queued_at.await.map_err(|_| self.unanswered_error())?;
                self.wait_in_journal(queued_at).await
            }
        }
    }

    async fn wait_for_exit(&self, end: TurnEnd) -> Result<Exit, KernelError> {
        match end {
            TurnEnd::Turn(exit) => Ok(exit),
            TurnEnd::Process => self.wait().await,
        }
    }

    /// Waits for the end of the turn that handles the input of fact `queued`, after the actor that
    /// received the input has stopped. Reads each later fact once.
    async fn wait_in_journal(&self, queued: FactNumber) -> Result<Exit, KernelError> {
        let mut receiver = self.watched();
        let mut search = TurnSearch::new(queued);
        loop {
            let (last, has_outcome) = {
                let watched = receiver.borrow_and_update();
                let last = watched.view.as_ref().map(|view| view.fact);
                (last, watched.outcome.is_some())
            };
            if let Some(last) = last.filter(|_| self.kernel.context.has_store)
                && let Some(end) = self.read_turn(&mut search, last).await?
            {
                return self.wait_for_exit(end).await;
            }
            if has_outcome {
                return self.wait().await;
            }
            receiver.changed().await.map_err(|_| KernelError::Closed)?;
        }
    }

    /// Reads the facts up to `last` that were not read before.
    async fn read_turn(
        &self,
        search: &mut TurnSearch,
        last: FactNumber,
    ) -> Result<Option<TurnEnd>, KernelError> {
        let (pid, first) = (self.pid(), search.next());
        if last < first {
            return Ok(None);
        }
        let read = self.kernel.context.query_store(move |store, _| {
            let facts = store.facts(pid, first, last)?;
            let facts: Result<Vec<_>, _> =
                facts.iter().map(|fact| decode_fact(pid, fact)).collect();
            Ok(facts?)
        });
        let facts = read.await?;
        Ok(facts.iter().find_map(|fact| search.apply(fact)))
    }
}
