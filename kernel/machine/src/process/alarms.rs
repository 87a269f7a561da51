//! Alarms: a process rests until a time, at which a message begins its next turn.
//!
//! ALARM-1: a time of an alarm is reported once. The fact that queues the message
//! ([`AlarmFact::Fired`]) also moves the alarm to its next time or removes it, so that a process
//! that is woken again for the same time does nothing.
//!
//! The shell sends [`Input::WakeDue`](super::Input::WakeDue) at the time that
//! [`State::next_alarm_ms`] states; `schedule.rs` computes the times.
//!
//! An alarm fires between two turns only: times that pass during a turn are reported after it. The
//! next time is computed when an alarm is set or fires, and is part of the fact, so that replay
//! needs neither the rules of time zones nor a clock.

use std::sync::Arc;

use dormouse_proto::alarm::{Alarm, AlarmId, MissedPolicy};
use dormouse_proto::id::CallId;
use dormouse_proto::message::Message;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{AlarmFact, Caller, Control, Lifetime, Phase};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, Image, State};
use crate::schedule::{Schedule, ScheduleError, When, format_duration, format_time};
use crate::tool::Refusal;

/// A time that is reported later than this was missed.
const ON_TIME_MS: u64 = 60_000;
/// How many missed times are counted.
const MAX_COUNTED: usize = 1_000;
/// How many messages one alarm may queue at once ([`MissedPolicy::Each`]).
const MAX_MESSAGES: usize = 10;

/// An alarm to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmRequest {
    /// When it is due.
    pub when: When,
    /// What its message says; at most [`MAX_NOTE_CHARS`](dormouse_proto::alarm::MAX_NOTE_CHARS).
    pub note: Arc<str>,
    /// What happens to times that were missed.
    pub missed: MissedPolicy,
}

impl AlarmRequest {
    /// The alarm that is set at `now_ms`.
    ///
    /// # Errors
    /// [`ScheduleError::Never`].
    pub fn alarm(self, id: AlarmId, now_ms: u64) -> Result<Alarm, ScheduleError> {
        let (due_ms, repeat) = match self.when {
            When::At(at_ms) => (at_ms, None),
            When::In(delay_ms) => (now_ms.saturating_add(delay_ms), None),
            When::Each(schedule) => {
                let first = schedule.next_after(now_ms);
                let never = || ScheduleError::Never(schedule.repeat().cron.to_string());
                (first.ok_or_else(never)?, Some(schedule.repeat().clone()))
            }
        };
        Ok(Alarm {
            id,
            due_ms,
            repeat,
            note: self.note,
            missed: self.missed,
        })
    }
}

impl State {
    /// The open alarms, by number.
    pub fn alarms(&self) -> impl Iterator<Item = &Alarm> {
        self.alarms.values()
    }

    /// When the next alarm is due (milliseconds since the epoch, UTC), if the process waits for
    /// nothing but its alarms, its background children and input. `None` during a turn, while mail
    /// waits, and while the process is stopped.
    #[must_use]
    pub fn next_alarm_ms(&self) -> Option<u64> {
        let is_resting = self.phase == Phase::Idle && self.mailbox.is_empty() && !self.is_stopped();
        first_due_ms(self.alarms.values()).filter(|_| is_resting)
    }

    /// Whether something will wake the process: a background child or an alarm.
    pub(super) fn will_be_woken(&self) -> bool {
        self.background_pids().next().is_some() || !self.alarms.is_empty()
    }
}

/// As [`State::next_alarm_ms`], for a process that begins with this image.
pub(super) fn next_alarm_of_image_ms(image: &Image) -> Option<u64> {
    let is_held_by_limit = image.pausing.paused.is_some() || image.pausing.is_suspended;
    let is_resting = image.phase == Phase::Idle
        && image.mailbox.is_empty()
        && image.control == Control::Running
        && !is_held_by_limit;
    first_due_ms(&image.alarms).filter(|_| is_resting)
}

fn first_due_ms<'a>(alarms: impl IntoIterator<Item = &'a Alarm>) -> Option<u64> {
    alarms.into_iter().map(|alarm| alarm.due_ms).min()
}

impl Draft {
    /// Sets an alarm for a call of `wake_at`.
    pub(super) fn set_alarm(
        &mut self,
        call: CallId,
        parse_request: fn(&str) -> Result<AlarmRequest, Refusal>,
    ) {
        let checked = parse_request(&self.pending_call(call).args)
            .and_then(|request| self.check_alarm(request));
        match checked {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(alarm) => {
                let id = alarm.id;
                self.emit(AlarmFact::Set { alarm });
                let answer = self.alarm_list("set", id);
                self.answer_in_full(call, answer);
            }
        }
    }

    fn check_alarm(&self, request: AlarmRequest) -> Result<Alarm, Refusal> {
        let limit = self.state.program.limits().max_alarms as usize;
        if self.state.alarms.len() >= limit {
            return Err(format!(
                "No further alarm: {limit} are open, which is what the program allows \
                 (limits.max_alarms). Cancel one of them: {}.",
                self.list_open_alarms()
            )
            .into());
        }
        let id = AlarmId(self.state.alarms_set.saturating_add(1));
        let alarm = request
            .alarm(id, self.now_ms)
            .map_err(|error| format!("No alarm was set: {error}."))?;
        if alarm.due_ms <= self.now_ms {
            return Err(format!(
                "No alarm was set: {} is over. It is {} now.",
                format_time(alarm.due_ms),
                format_time(self.now_ms)
            )
            .into());
        }
        Ok(alarm)
    }

    /// Cancels an alarm for a call of `cancel_alarm`.
    pub(super) fn cancel_alarm(
        &mut self,
        call: CallId,
        parse_id: fn(&str) -> Result<AlarmId, Refusal>,
    ) {
        let is_for_host = self.caller() == Caller::Host;
        let found = parse_id(&self.pending_call(call).args).and_then(|id| self.find_alarm(id));
        match found {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(id) => {
                self.emit(AlarmFact::Cancelled { id });
                let answer = self.alarm_list("cancelled", id);
                self.answer_in_full(call, answer);
                if is_for_host {
                    self.end_if_nothing_will_wake();
                }
            }
        }
    }

    /// Cancels an alarm at the request of the host.
    pub(super) fn cancel_alarm_for_host(&mut self, request_id: Arc<str>, id: AlarmId) {
        let answer = match self.find_alarm(id) {
            Err(refusal) => refusal.into(),
            Ok(id) => {
                self.emit(AlarmFact::Cancelled { id });
                self.alarm_list("cancelled", id)
            }
        };
        let is_cancelled = !answer.is_error;
        self.schedule(Effect::AnswerHost { request_id, answer });
        if is_cancelled {
            self.end_if_nothing_will_wake();
        }
    }

    fn find_alarm(&self, id: AlarmId) -> Result<AlarmId, Refusal> {
        if self.state.alarms.contains_key(&id) {
            return Ok(id);
        }
        Err(format!(
            "There is no open {id}: it was never set, has fired or was cancelled. Open: {}.",
            self.list_open_alarms()
        )
        .into())
    }

    /// The numbers of the open alarms, for an error.
    fn list_open_alarms(&self) -> String {
        let ids: Vec<_> = self.state.alarms.keys().map(AlarmId::to_string).collect();
        if ids.is_empty() {
            "none".to_owned()
        } else {
            ids.join(", ")
        }
    }

    /// The answer that says what was changed, and lists the open alarms.
    fn alarm_list(&self, change: &'static str, id: AlarmId) -> Answer {
        let element = Element::new("alarm_list")
            .attribute(change, id)
            .attribute("now", format_time(self.now_ms))
            .attribute("open", self.state.alarms.len());
        Answer::shown(self.state.alarms.values().fold(element, |list, alarm| {
            list.child(
                alarm_element("open_alarm", alarm, alarm.due_ms)
                    .attribute("missed", alarm.missed.word()),
            )
        }))
    }

    /// Reports the alarms that are due, the earliest first, and begins a turn with their messages.
    /// Does nothing during a turn or while the process is stopped.
    pub(super) fn fire_due_alarms(&mut self) {
        if self.state.next_alarm_ms().is_none() {
            return;
        }
        let now_ms = self.now_ms;
        let mut due: Vec<Alarm> = self
            .state
            .alarms()
            .filter(|alarm| alarm.due_ms <= now_ms)
            .cloned()
            .collect();
        due.sort_by_key(|alarm| (alarm.due_ms, alarm.id));
        due.iter().for_each(|alarm| self.fire(alarm));
        if self.state.mailbox.is_empty() {
            self.end_if_nothing_will_wake();
        } else {
            self.handle_new_mail();
        }
    }

    /// Reports the times of an alarm that have come, as its policy says.
    fn fire(&mut self, alarm: &Alarm) {
        let due = DueTimes::of(alarm, self.now_ms);
        let is_missed = self.now_ms.saturating_sub(due.last_ms) > ON_TIME_MS;
        let reports = match alarm.missed {
            MissedPolicy::Skip if is_missed => {
                return self.emit(AlarmFact::Fired {
                    id: alarm.id,
                    next_ms: due.next_ms,
                    message: None,
                });
            }
            MissedPolicy::Skip => vec![(due.last_ms, 0)],
            MissedPolicy::Once => vec![(due.last_ms, due.missed)],
            MissedPolicy::Each => due.latest_times(alarm.due_ms),
        };
        for (index, (due_ms, missed)) in reports.iter().enumerate() {
            let following = reports.get(index + 1).map(|(due_ms, _)| *due_ms);
            let element = self.fired_element(alarm, *due_ms, *missed, due.next_ms);
            self.emit(AlarmFact::Fired {
                id: alarm.id,
                next_ms: following.or(due.next_ms),
                message: Some(Arc::new(Message::user(element.to_xml()))),
            });
        }
    }

    /// The message of an alarm.
    fn fired_element(
        &self,
        alarm: &Alarm,
        due_ms: u64,
        missed: usize,
        next_ms: Option<u64>,
    ) -> Element {
        let late_ms = self.now_ms.saturating_sub(due_ms);
        let late = (late_ms >= 1_000).then(|| format_duration(late_ms));
        let missed = match missed {
            0 => None,
            MAX_COUNTED.. => Some(format!("{MAX_COUNTED} or more")),
            missed => Some(missed.to_string()),
        };
        alarm_element("alarm", alarm, due_ms)
            .attribute_if("late", late)
            .attribute_if("missed", missed)
            .attribute_if("next", next_ms.map(format_time))
    }

    /// Ends a task that rests and that nothing will wake: its last alarm is gone. One that was started
    /// for a later time ends too, without a turn. A speculative root waits to be chosen. While a call
    /// of the host is open, or what may be a message is being read, the end has to wait.
    fn end_if_nothing_will_wake(&mut self) {
        if self.state.lifetime != Lifetime::Task || self.state.waits_after_turn() {
            return;
        }
        let is_reading = self.state.pending_reads.has_arrivals();
        match self.state.phase {
            Phase::Acting {
                caller: Caller::Host,
                ..
            } => return self.state.pending_reads.set_end_check(),
            Phase::Idle if !self.state.mailbox.is_empty() => return,
            Phase::Idle if is_reading => return self.state.pending_reads.set_end_check(),
            Phase::Idle => {}
            _ => return,
        }
        if let Some(value) = &self.state.result.value {
            return self.end_process(Exit::with_result(value.clone()));
        }
        let reply = self.state.last_reply();
        let message = if reply.is_empty() {
            "its last alarm was cancelled or missed, and nothing else would have woken it".into()
        } else {
            reply
        };
        self.end_process(Exit::new(ExitStatus::Done, message));
    }

    /// Looks again whether the task ends, if its last alarm was cancelled when it could not. A
    /// process that waits for input from its beginning, such as a copy of an ended one, does not.
    pub(super) fn check_end(&mut self) {
        if self.state.pending_reads.take_end_check() {
            self.end_if_nothing_will_wake();
        }
    }
}

/// An element that shows an alarm and its note.
fn alarm_element(name: &'static str, alarm: &Alarm, due_ms: u64) -> Element {
    let repeat = alarm.repeat.as_ref();
    let element = Element::new(name)
        .attribute("id", alarm.id)
        .attribute("due", format_time(due_ms))
        .attribute_if("cron", repeat.map(|repeat| &repeat.cron))
        .attribute_if("zone", repeat.map(|repeat| &repeat.zone));
    if alarm.note.is_empty() {
        element
    } else {
        element.child(Element::new("message").text(&*alarm.note))
    }
}

/// The times of an alarm that have come, and the one after them.
struct DueTimes {
    schedule: Option<Schedule>,
    /// The latest of them.
    last_ms: u64,
    /// How many came before it, at most [`MAX_COUNTED`].
    missed: usize,
    next_ms: Option<u64>,
}

impl DueTimes {
    /// The times of an alarm that is due.
    fn of(alarm: &Alarm, now_ms: u64) -> Self {
        // What was checked when the alarm was set can be read again, unless a later version of this
        // program has no such zone: then the alarm fires a last time.
        let repeat = alarm.repeat.as_ref();
        let schedule = repeat.and_then(|repeat| Schedule::parse(&repeat.cron, &repeat.zone).ok());
        let Some(schedule) = schedule else {
            return Self {
                schedule: None,
                last_ms: alarm.due_ms,
                missed: 0,
                next_ms: None,
            };
        };
        let last_ms = schedule.last_until(now_ms).unwrap_or(alarm.due_ms);
        let last_ms = last_ms.max(alarm.due_ms);
        let times = std::iter::successors(Some(alarm.due_ms), |at_ms| schedule.next_after(*at_ms));
        let missed = times.take_while(|at_ms| *at_ms < last_ms);
        Self {
            last_ms,
            missed: missed.take(MAX_COUNTED).count(),
            next_ms: schedule.next_after(now_ms),
            schedule: Some(schedule),
        }
    }

    /// The latest times since `first_ms`, at most [`MAX_MESSAGES`], oldest first. The first carries
    /// the number of times before it.
    fn latest_times(&self, first_ms: u64) -> Vec<(u64, usize)> {
        let before = |at_ms: &u64| self.schedule.as_ref()?.last_until(at_ms.checked_sub(1)?);
        let mut times: Vec<_> = std::iter::successors(Some(self.last_ms), before)
            .take_while(|at_ms| *at_ms >= first_ms)
            .take(MAX_MESSAGES)
            .map(|at_ms| (at_ms, 0))
            .collect();
        times.reverse();
        let reported_before_last = times.len().saturating_sub(1);
        if let Some((_, missed)) = times.first_mut() {
            *missed = match self.missed {
                MAX_COUNTED => MAX_COUNTED,
                counted => counted.saturating_sub(reported_before_last),
            };
        }
        times
    }
}
