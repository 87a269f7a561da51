//! FD-3: a process reads only what it made, inherited, or was handed. Followed by tokens: none
//! turns up where it was not brought.

use dormouse_content::Content;
use dormouse_kernel::process::{ChildEvent, Completion, Fact, HostRequest, Image, Input};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::record::{
    AlarmFact, CallFact, ChildFact, DescriptorFact, EffectOutcome, Entry, MailFact, Phase, TurnFact,
};
use dormouse_proto::temp_file::TempFileReply;

use super::{Held, ensure};
use crate::tokens::{Token, tokens_in};
use crate::world::World;

type ReadResult<'a> = &'a mut dyn FnMut(Token);

/// Who may have said what an input brings.
enum Giver {
    /// The world, which makes it for one process.
    Outside,
    /// Another process.
    Process(Pid),
    /// The files of the tree, or of the host.
    Tree,
}

impl World {
    /// What an input brings is for this process; from then on the process knows it.
    pub(crate) fn check_input(&mut self, pid: Pid, input: &Input) -> Held {
        let mut brought = Vec::new();
        let giver = of_input(input, &mut |token| brought.push(token));
        let Some(ledger) = self.ledgers.get(&pid) else {
            return Ok(());
        };
        for token in &brought {
            let is_given = || match giver {
                Giver::Outside => self.tokens.is_for(*token, pid),
                Giver::Process(giver) => self
                    .ledgers
                    .get(&giver)
                    .is_some_and(|giver| giver.known.contains(token)),
                Giver::Tree => {
                    let of_tree = |other: &&super::ledger::Ledger| other.root == ledger.root;
                    self.ledgers
                        .values()
                        .filter(of_tree)
                        .any(|other| other.known.contains(token))
                }
            };
            let may = ledger.known.contains(token) || self.tokens.is_public(*token) || is_given();
            ensure(may, "FD-3", || {
                format!("{pid} is brought token {token}, which is not for it")
            })?;
        }
        if let Some(ledger) = self.ledgers.get_mut(&pid) {
            ledger.known.extend(brought);
        }
        Ok(())
    }

    /// What a fact puts where the model reads it.
    pub(super) fn fd_3(&self, pid: Pid, fact: &Fact) -> Held {
        match fact {
            Fact::Descriptor(DescriptorFact::Opened { id, entry }) => self.check_told(
                pid,
                &entry
                    .content
                    .unlimited_reader()
                    .text()
                    .expect("it is in memory"),
                &id.to_string(),
            ),
            Fact::Compacted { entry, summary, .. } => {
                let text = entry.content.unlimited_reader().text();
                self.check_told(pid, &text.expect("it is in memory"), "a history")?;
                self.check_told(pid, &summary.text(), "a summary")
            }
            Fact::Call(CallFact::ToolReturned { answer, .. }) => {
                self.check_told(pid, &answer.text, "an answer")
            }
            Fact::Mail(MailFact::Queued { message, .. } | MailFact::Received { message, .. })
            | Fact::Child(
                ChildFact::Reported { message, .. } | ChildFact::ReportedAgain { message, .. },
            )
            | Fact::Turn(TurnFact::WentTo { message, .. })
            | Fact::WentToCompacted { message, .. }
            | Fact::Alarm(AlarmFact::Fired {
                message: Some(message),
                ..
            })
            | Fact::Restored { message, .. } => {
                let mut found = Vec::new();
                of_message(message, &mut |token| found.push(token));
                found
                    .into_iter()
                    .try_for_each(|token| self.check_known(pid, token, "a message"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_told(&self, pid: Pid, text: &str, what: &str) -> Held {
        let mut found = Vec::new();
        tokens_in(text, &mut |token| found.push(token));
        found
            .into_iter()
            .try_for_each(|token| self.check_known(pid, token, what))
    }

    fn check_known(&self, pid: Pid, token: Token, what: &str) -> Held {
        let is_known = self
            .ledgers
            .get(&pid)
            .is_none_or(|ledger| ledger.known.contains(&token));
        ensure(is_known, "FD-3", || {
            format!("{what} of {pid} holds token {token}, which it was never handed")
        })
    }
}

fn of_input(input: &Input, mut found: ReadResult<'_>) -> Giver {
    match input {
        Input::UserInput { user_input, .. } => user_input
            .parts
            .iter()
            .for_each(|part| of_bytes(&part.bytes, found)),
        Input::Message { from, envelope, .. } => {
            tokens_in(&envelope.text, &mut found);
            envelope
                .descriptors
                .iter()
                .for_each(|handed| of_entry(&handed.entry, found));
            return Giver::Process(*from);
        }
        Input::Host { request, .. } => of_request(request, found),
        Input::Completed { result, .. } => return of_completion(result, found),
        Input::Summarized {
            result: Ok(reply), ..
        } => reply.blocks.iter().for_each(|block| of_block(block, found)),
        Input::Child {
            event: ChildEvent::CreationFailed { why },
            ..
        } => tokens_in(why, &mut found),
        Input::Child {
            event: ChildEvent::Ended { child, exit, .. },
            ..
        } => {
            tokens_in(&exit.message, &mut found);
            return Giver::Process(*child);
        }
        Input::ReopenChild { child, .. } => {
            // Its parent may not have heard of its end.
            if let Some(exit) = child.process.state.exit() {
                tokens_in(&exit.message, &mut found);
            }
            return Giver::Process(child.child);
        }
        Input::Child {
            event: ChildEvent::Started { .. } | ChildEvent::Absent { .. },
            ..
        }
        | Input::Placed(_)
        | Input::Summarized { result: Err(_), .. }
        | Input::Signal(_)
        | Input::SignalBeforeResume(_)
        | Input::TimeUp { .. }
        | Input::WakeDue => {}
    }
    Giver::Outside
}

fn of_request(request: &HostRequest, mut found: ReadResult<'_>) {
    match request {
        HostRequest::Open { capped, .. } => of_bytes(&capped.bytes, found),
        HostRequest::Call { args, .. } => tokens_in(args, &mut found),
        HostRequest::Goto { message, .. } => tokens_in(message, &mut found),
        // It has known what it once was.
        HostRequest::AnswerHeld { .. }
        | HostRequest::Cancel
        | HostRequest::CancelAlarm(_)
        | HostRequest::SetEffectPolicy(_)
        | HostRequest::EndSpeculation
        | HostRequest::Restore(_)
        | HostRequest::Raise { .. }
        | HostRequest::RaiseShare { .. }
        | HostRequest::ReplaceTools { .. } => {}
    }
}

fn of_completion(result: &Completion, mut found: ReadResult<'_>) -> Giver {
    match result {
        Completion::Model(Ok(reply))
        | Completion::Summarized {
            result: Ok(reply), ..
        } => {
            reply.blocks.iter().for_each(|block| of_block(block, found));
        }
        Completion::Tool(output) => of_bytes(&output.bytes, found),
        Completion::MessageSent(receipt) => tokens_in(&receipt.text, &mut found),
        Completion::TempFile {
            result: Ok(TempFileReply::Contents { content, .. }),
            ..
        } => {
            of_content(content, found);
            return Giver::Tree;
        }
        Completion::Fetched {
            result: Ok(fetched),
            ..
        } => {
            let (shown, descriptors) = (fetched.shown(), fetched.descriptors());
            shown.for_each(|shown| tokens_in(shown.xml(), &mut found));
            descriptors.for_each(|(_, entry)| of_content(&entry.content, found));
            return Giver::Tree;
        }
        Completion::Model(Err(_))
        | Completion::Summarized { result: Err(_), .. }
        | Completion::TempFile { .. }
        | Completion::Fetched { .. }
        | Completion::Reply(_)
        | Completion::Read(_)
        | Completion::FileWritten { .. }
        | Completion::Listed { .. }
        | Completion::Checkpoint(_)
        | Completion::TimedOut => {}
    }
    Giver::Outside
}

pub(super) fn of_image(image: &Image, mut found: ReadResult<'_>) {
    tokens_in(&image.system, &mut found);
    for alarm in &image.alarms {
        tokens_in(&alarm.note, &mut found);
    }
    let waiting = image.mailbox.iter().map(|mail| &mail.message);
    image
        .messages
        .iter()
        .chain(waiting)
        .for_each(|message| of_message(message, found));
    for (_, entry) in &image.table {
        of_entry(entry, found);
    }
    for effect in &image.effects.effects {
        if let EffectOutcome::Answered { answer, opened } = &effect.outcome {
            tokens_in(&answer.text, &mut found);
            opened.iter().for_each(|(_, entry)| of_entry(entry, found));
        }
    }
    if let Phase::Acting { pending_calls, .. } = &image.phase {
        for pending_call in pending_calls {
            tokens_in(&pending_call.args, &mut found);
            pending_call
                .answer
                .iter()
                .for_each(|answer| tokens_in(&answer.text, &mut found));
            pending_call
                .ended_children
                .values()
                .for_each(|(_, exit)| tokens_in(&exit.message, &mut found));
        }
    }
}

fn of_message(message: &Message, found: ReadResult<'_>) {
    message
        .blocks
        .iter()
        .for_each(|block| of_block(block, found));
}

fn of_block(block: &Block, mut found: ReadResult<'_>) {
    match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => tokens_in(text, &mut found),
        Block::ToolUse { args, .. } => tokens_in(args, &mut found),
        Block::Opaque(raw) => tokens_in(&raw.json, &mut found),
        Block::Media { .. } => {}
    }
}

/// What a descriptor holds, and what was noted of it, which goes where it goes.
fn of_entry(entry: &Entry<Content>, mut found: ReadResult<'_>) {
    of_content(&entry.content, found);
    entry
        .notes
        .summary
        .iter()
        .for_each(|summary| tokens_in(summary, &mut found));
}

fn of_content(content: &Content, found: ReadResult<'_>) {
    of_bytes(
        &content.unlimited_reader().bytes().expect("it is in memory"),
        found,
    );
}

fn of_bytes(bytes: &[u8], mut found: ReadResult<'_>) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        tokens_in(text, &mut found);
    }
}
