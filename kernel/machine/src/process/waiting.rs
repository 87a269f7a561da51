//! The tools `receive_messages` and `wait`, which show messages of the mailbox or wait for them.
//!
//! A message is removed from the mailbox in the same commit as the answer that shows it. The end of
//! a background child arrives as a message, so `wait` waits until these messages are in the
//! mailbox.

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::record::{MailFact, PendingCall};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, Work};
use crate::tool::{ProcessHandler, Refusal};

/// The checked arguments of the tool `wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitArguments {
    /// The background children to wait for; `None` for all of them.
    pub pids: Option<Vec<Pid>>,
    /// Timeout in milliseconds.
    pub timeout_ms: Option<u64>,
}

impl Draft {
    /// Answers each call that waits for messages, if its messages have arrived.
    pub(super) fn answer_waiting_calls(&mut self) {
        let open = self
            .state
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.started && pending_call.answer.is_none());
        let with_handler = |pending_call: &PendingCall| {
            Some((pending_call.call, self.process_handler_of(pending_call)?))
        };
        let calls: Vec<_> = open.filter_map(with_handler).collect();
        for (call, handler) in calls {
            match handler {
                ProcessHandler::Wait(parse_arguments) => {
                    if let Ok(arguments) = parse_arguments(&self.pending_call(call).args) {
                        self.answer_if_wait_is_over(call, &arguments);
                    }
                }
                ProcessHandler::ReceiveMessages(_) => {
                    self.answer_with_messages(call);
                }
                _ => {}
            }
        }
    }

    pub(super) fn receive_messages(
        &mut self,
        call: CallId,
        parse_timeout_ms: fn(&str) -> Result<u64, Refusal>,
    ) {
        match parse_timeout_ms(&self.pending_call(call).args) {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(_) if self.answer_with_messages(call) => {}
            Ok(0) => self.answer_in_full(call, messages_answer(&ShownMail::default())),
            Ok(timeout_ms) => {
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::Wait { timeout_ms },
                });
            }
        }
    }

    /// Answers `receive_messages` with the messages of other processes. Returns false without an
    /// answer if there are none.
    fn answer_with_messages(&mut self, call: CallId) -> bool {
        let shown = self.remove_mail(|_| true);
        let has_messages = !shown.texts.is_empty();
        if has_messages {
            self.answer_in_full(call, messages_answer(&shown));
        }
        has_messages
    }

    pub(super) fn wait(
        &mut self,
        call: CallId,
        parse_arguments: fn(&str) -> Result<WaitArguments, Refusal>,
    ) {
        // A repeated call was checked when it was first made, and its children may have been
        // reported since.
        let is_repeated = self.pending_call(call).started;
        let checked = parse_arguments(&self.pending_call(call).args).and_then(|arguments| {
            if !is_repeated {
                self.check_wait(&arguments)?;
            }
            Ok(arguments)
        });
        let arguments = match checked {
            Ok(arguments) => arguments,
            Err(refusal) => return self.answer_in_full(call, refusal.into()),
        };
        if self.answer_if_wait_is_over(call, &arguments) {
            return;
        }
        self.record_intent(call);
        if let Some(timeout_ms) = arguments.timeout_ms {
            self.schedule(Effect::StartWork {
                call,
                work: Work::Wait { timeout_ms },
            });
        }
    }

    /// Checks that each named child runs in the background, or has ended and is still in the
    /// mailbox.
    fn check_wait(&self, WaitArguments { pids, .. }: &WaitArguments) -> Result<(), Refusal> {
        let is_in_mailbox = |pid: &Pid| {
            self.state
                .mailbox
                .iter()
                .any(|mail| mail.from == Sender::Process(*pid))
        };
        let is_known = |pid: &&Pid| {
            self.state.background_pids().any(|child| child == **pid) || is_in_mailbox(pid)
        };
        let Some(unknown) = pids.iter().flatten().find(|pid| !is_known(pid)) else {
            return Ok(());
        };
        let running: Vec<_> = self
            .state
            .background_pids()
            .map(|pid| pid.to_string())
            .collect();
        let running = if running.is_empty() {
            "none".to_owned()
        } else {
            running.join(", ")
        };
        Err(format!(
            "Process {unknown} is no child of this process that runs in the background, or you \
             have heard of its end. Those that run: {running}."
        )
        .into())
    }

    /// Answers `wait` if none of the awaited children is running. Returns whether it answered.
    fn answer_if_wait_is_over(&mut self, call: CallId, arguments: &WaitArguments) -> bool {
        let is_over = self.running_awaited_children(arguments).is_empty()
            && (arguments.pids.is_some() || !self.has_open_background_spawn());
        if is_over {
            self.answer_wait(call, arguments, Element::new("wait_result"));
        }
        is_over
    }

    /// The awaited children that are still running.
    fn running_awaited_children(&self, WaitArguments { pids, .. }: &WaitArguments) -> Vec<Pid> {
        let is_selected = |pid: &Pid| pids.as_ref().is_none_or(|pids| pids.contains(pid));
        self.state.background_pids().filter(is_selected).collect()
    }

    /// Whether an open `spawn` call is about to start a background child.
    fn has_open_background_spawn(&self) -> bool {
        let mut open = self
            .state
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.answer.is_none());
        open.any(|pending_call| match self.process_handler_of(pending_call) {
            Some(ProcessHandler::Spawn { waits, .. }) => !waits(&pending_call.args),
            _ => false,
        })
    }

    fn answer_wait(
        &mut self,
        call: CallId,
        WaitArguments { pids, .. }: &WaitArguments,
        element: Element,
    ) {
        let shown = self.remove_mail(|pid| pids.as_ref().is_none_or(|pids| pids.contains(&pid)));
        self.answer_in_full(call, Answer::shown(shown.in_element(element)));
    }

    /// Removes messages of the selected processes from the mailbox: as many as fit into one answer,
    /// but at least one.
    fn remove_mail(&mut self, is_selected: impl Fn(Pid) -> bool) -> ShownMail {
        let is_selected =
            |mail: &Mail| matches!(mail.from, Sender::Process(pid) if is_selected(pid));
        let max_chars = self.settings().max_read_chars;
        let mut chars = 0;
        let mut shown = ShownMail::default();
        let mut removed = Vec::new();
        for (index, mail) in (0..)
            .zip(&self.state.mailbox)
            .filter(|(_, mail)| is_selected(mail))
        {
            // After the first message that does not fit, later messages stay in the mailbox as
            // well, so that messages are shown in order.
            if shown.omitted > 0 {
                shown.omitted += 1;
                continue;
            }
            let text = mail.message.text();
            chars += text.chars().count() as u64;
            if chars > max_chars && !removed.is_empty() {
                shown.omitted += 1;
            } else {
                shown.texts.push(text);
                removed.push(index);
            }
        }
        if !removed.is_empty() {
            self.emit(MailFact::Taken { at: removed });
        }
        shown
    }

    /// Answers a call whose timeout has passed with the messages that have arrived.
    pub(super) fn handle_timeout(&mut self, call: CallId) {
        self.complete_call(call, |draft| {
            let Some(ProcessHandler::Wait(parse_arguments)) = draft.process_handler(call) else {
                return draft.answer_in_full(call, messages_answer(&ShownMail::default()));
            };
            let arguments =
                parse_arguments(&draft.pending_call(call).args).unwrap_or(WaitArguments {
                    pids: None,
                    timeout_ms: None,
                });
            let running: Vec<_> = draft
                .running_awaited_children(&arguments)
                .iter()
                .map(Pid::to_string)
                .collect();
            let element = Element::new("wait_result").attribute("timed_out", true);
            draft.answer_wait(
                call,
                &arguments,
                element.attribute("running", running.join(" ")),
            );
        });
    }
}

/// Messages that an answer shows.
#[derive(Default)]
struct ShownMail {
    /// Each message as an XML element.
    texts: Vec<String>,
    /// Number of messages that did not fit.
    omitted: usize,
}

impl ShownMail {
    fn in_element(&self, element: Element) -> Element {
        let element = element.attribute_if("waiting", (self.omitted > 0).then_some(self.omitted));
        if self.texts.is_empty() {
            element
        } else {
            element.rendered(self.texts.join("\n  "))
        }
    }
}

/// The answer of `receive_messages`.
fn messages_answer(shown: &ShownMail) -> Answer {
    Answer::shown(
        shown.in_element(Element::new("process_messages").attribute("count", shown.texts.len())),
    )
}
