//! The tools `receive_messages` and `wait`, which show mail or wait for it.
//!
//! Messages leave the mailbox in the commit that answers the tool which shows them. The ends of
//! background children arrive as mail, so that waiting for a child means waiting for its last
//! message.

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::record::{MailFact, PendingCall};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, Work};
use crate::tool::{ProcessHandler, Refusal};

/// The checked arguments of a call of `wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The children; `None` for all.
    pub pids: Option<Vec<Pid>>,
    /// Timeout in milliseconds.
    pub timeout_ms: Option<u64>,
}

impl Draft {
    /// Answers the calls that wait for mail, as far as it has arrived.
    pub(super) fn answer_waiting(&mut self) {
        let open = self
            .state
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.called && pending_call.answer.is_none());
        let operation = |pending_call: &PendingCall| {
            Some((pending_call.call, self.process_handler_of(pending_call)?))
        };
        let calls: Vec<_> = open.filter_map(operation).collect();
        for (call, handler) in calls {
            match handler {
                ProcessHandler::Wait(arguments) => {
                    if let Ok(arguments) = arguments(&self.pending_call(call).args) {
                        self.answer_waited(call, &arguments);
                    }
                }
                ProcessHandler::ReceiveMessages(_) => {
                    self.answer_received(call);
                }
                _ => {}
            }
        }
    }

    pub(super) fn receive_messages(
        &mut self,
        call: CallId,
        timeout_ms: fn(&str) -> Result<u64, Refusal>,
    ) {
        match timeout_ms(&self.pending_call(call).args) {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(_) if self.answer_received(call) => {}
            Ok(0) => self.answer_in_full(call, messages(&ShownMail::default())),
            Ok(timeout_ms) => {
                self.record_intent(call);
                self.schedule(Effect::Begin {
                    call,
                    work: Work::Wait { timeout_ms },
                });
            }
        }
    }

    /// Answers with the messages of other processes. Returns false if there are none.
    fn answer_received(&mut self, call: CallId) -> bool {
        let shown = self.remove_mail(|_| true);
        let is_anything = !shown.texts.is_empty();
        if is_anything {
            self.answer_in_full(call, messages(&shown));
        }
        is_anything
    }

    pub(super) fn wait(&mut self, call: CallId, arguments: fn(&str) -> Result<Wait, Refusal>) {
        // A repeated call was checked when it was first made, and its children may have been
        // reported since.
        let is_repeated = self.pending_call(call).called;
        let checked = arguments(&self.pending_call(call).args).and_then(|arguments| {
            if !is_repeated {
                self.check_wait(&arguments)?;
            }
            Ok(arguments)
        });
        let arguments = match checked {
            Ok(arguments) => arguments,
            Err(refusal) => return self.answer_in_full(call, refusal.into()),
        };
        if self.answer_waited(call, &arguments) {
            return;
        }
        self.record_intent(call);
        if let Some(timeout_ms) = arguments.timeout_ms {
            self.schedule(Effect::Begin {
                call,
                work: Work::Wait { timeout_ms },
            });
        }
    }

    /// Checks that each named child runs in the background, or has ended and is still in the
    /// mailbox.
    fn check_wait(&self, Wait { pids, .. }: &Wait) -> Result<(), Refusal> {
        let is_in_mailbox = |pid: &Pid| {
            self.state
                .mailbox
                .iter()
                .any(|mail| mail.from == Sender::Process(*pid))
        };
        let is_known = |pid: &&Pid| {
            self.state.background.values().any(|child| child == *pid) || is_in_mailbox(pid)
        };
        let Some(unknown) = pids.iter().flatten().find(|pid| !is_known(pid)) else {
            return Ok(());
        };
        let running: Vec<_> = self.state.background.values().map(Pid::to_string).collect();
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

    /// Answers once none of the awaited children is running.
    fn answer_waited(&mut self, call: CallId, arguments: &Wait) -> bool {
        let is_over =
            self.awaited(arguments).is_empty() && (arguments.pids.is_some() || !self.is_spawning());
        if is_over {
            self.answer_wait(call, arguments, Element::new("wait_result"));
        }
        is_over
    }

    /// The awaited children that are still running.
    fn awaited(&self, Wait { pids, .. }: &Wait) -> Vec<Pid> {
        let is_selected = |pid: &&Pid| pids.as_ref().is_none_or(|pids| pids.contains(pid));
        self.state
            .background
            .values()
            .filter(is_selected)
            .copied()
            .collect()
    }

    /// Whether the start of a background child is pending.
    fn is_spawning(&self) -> bool {
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

    fn answer_wait(&mut self, call: CallId, Wait { pids, .. }: &Wait, element: Element) {
        let shown = self.remove_mail(|pid| pids.as_ref().is_none_or(|pids| pids.contains(&pid)));
        self.answer_in_full(call, Answer::shown(shown.in_element(element)));
    }

    /// Removes messages of the selected processes from the mailbox: as many as one answer may hold,
    /// and at least one.
    fn remove_mail(&mut self, is_selected: impl Fn(Pid) -> bool) -> ShownMail {
        let is_selected =
            |mail: &Mail| matches!(mail.from, Sender::Process(pid) if is_selected(pid));
        let room = self.settings().max_read_chars;
        let mut chars = 0;
        let mut shown = ShownMail::default();
        let mut at = Vec::new();
        for (place, mail) in (0..)
            .zip(&self.state.mailbox)
            .filter(|(_, mail)| is_selected(mail))
        {
            // After the first message that does not fit, later ones are only counted, so that the
            // order is kept.
            if shown.omitted > 0 {
                shown.omitted += 1;
                continue;
            }
            let text = mail.message.text();
            chars += text.chars().count() as u64;
            if chars > room && !at.is_empty() {
                shown.omitted += 1;
            } else {
                shown.texts.push(text);
                at.push(place);
            }
        }
        if !at.is_empty() {
            self.emit(MailFact::Taken { at });
        }
        shown
    }

    /// Answers a call whose timeout has passed with what there is.
    pub(super) fn handle_timeout(&mut self, call: CallId) {
        self.complete(call, |draft| {
            let Some(ProcessHandler::Wait(arguments)) = draft.process_handler(call) else {
                return draft.answer_in_full(call, messages(&ShownMail::default()));
            };
            let arguments = arguments(&draft.pending_call(call).args).unwrap_or(Wait {
                pids: None,
                timeout_ms: None,
            });
            let running: Vec<_> = draft
                .awaited(&arguments)
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

/// Messages that a tool shows, each as an element.
#[derive(Default)]
struct ShownMail {
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
fn messages(shown: &ShownMail) -> Answer {
    Answer::shown(
        shown.in_element(Element::new("process_messages").attribute("count", shown.texts.len())),
    )
}
