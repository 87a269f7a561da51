//! Doing what was decided, as `actors/src/process/effects.rs` does: what runs beside a process is a
//! task that ends later.
//!
//! To add an effect: a line in [`World::perform`], and an event or a task that brings its input.

use dormouse_content::{Content, ReadQuota};
use dormouse_kernel::process::{
    Completion, Effect, FetchError, FetchedFile, Input, PendingSpawn, Read, Report, Work,
};
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::CallId;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::process::Origin;
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileReply};

use crate::defect::Defect;
use crate::event::{
    Event, FilesMessage, ProcessMessage, Reply, Request, Requester, SupervisorMessage,
};
use crate::invariants::{Held, Violation};
use crate::process::{After, Running};
use crate::programs::is_idempotent;
use crate::schedule::{FILES, SUPERVISOR};
use crate::world::World;

/// What a child's files are gathered in until all are there.
pub(crate) struct Gathering {
    pub(crate) pending: PendingSpawn,
    pub(crate) files: Result<Vec<FetchedFile>, FetchError>,
    pub(crate) temp_files: Vec<Option<Result<TempFileReply<Content>, TempFileError>>>,
}

impl World {
    /// A read of a call on the pool: its result comes later.
    pub(crate) fn read(&mut self, running: &mut Running, call: CallId, read: &Read) {
        self.tally.count("reads on the pool");
        let Some(Input::Completed { result, .. }) = read.perform(ReadQuota::unlimited()) else {
            panic!("a read of a call completes it, and nothing limits it")
        };
        let delay = self.random.below(60);
        self.start(running, call, delay, result);
    }

    pub(crate) fn perform(
        &mut self,
        running: &mut Running,
        effect: Effect,
    ) -> Result<After, Violation> {
        let pid = running.pid();
        match effect {
            Effect::StartWork { call, work } => self.begin_work(running, call, work)?,
            Effect::Summarize { pending, .. } => {
                self.tally.count("summaries of compacted messages");
                let (delay, result) = self.ask_for_summary(pid);
                let input = Input::Summarized { pending, result };
                let (life, message) = (running.life, ProcessMessage::Input(Box::new(input)));
                self.schedule
                    .after(delay, Event::Process { pid, life, message });
            }
            Effect::Abandon { calls } => {
                for call in &calls {
                    if let Some(task) = running.in_flight.remove(call) {
                        self.tally.count("calls given up in flight");
                        self.tasks.remove(&task);
                    }
                }
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::KillChildren { parent: pid, calls },
                );
            }
            Effect::KillChildren { call } => {
                let calls = vec![call];
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::KillChildren { parent: pid, calls },
                );
            }
            Effect::StartChildren { mut children, .. } => {
                for child in &mut children {
                    if self.defect == Some(Defect::ChildStartsElsewhere)
                        && matches!(child.origin, Origin::Forked { .. })
                        && !child.image.messages.is_empty()
                    {
                        child.image.messages[0] = Message::user("Somewhere else.").into();
                    }
                    self.check_fork(pid, child)?;
                }
                if !self.is_draining && self.random.percent(3) {
                    self.stop_tree_of(pid);
                }
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::StartChildren {
                        parent: pid,
                        children,
                    },
                );
            }
            Effect::FindChild {
                call,
                index,
                reopenings,
            } => {
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::FindChild {
                        parent: pid,
                        call,
                        index,
                        reopenings,
                    },
                );
            }
            Effect::KillChildrenExcept { calls } => {
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::KillChildrenExcept { parent: pid, calls },
                );
            }
            Effect::WakeAt { at_ms } => self.wake_at(running, at_ms),
            Effect::AnswerHost { request_id, answer } => {
                self.check_told(pid, &answer.text, "the answer to a host")?;
                if running.tickets.remove(&request_id) {
                    self.tally.count("hosts answered");
                }
                self.share_is_raised(&request_id, answer.is_error);
                self.opening_refused(&request_id, answer.clone());
                self.receipt_given(&request_id, answer);
            }
            Effect::Report(Report::Switch { .. }) => self.tally.count("models switched"),
            Effect::Report(Report::Held { .. }) => self.tally.count("calls held"),
            Effect::Report(Report::HeldAnswered { .. }) => self.tally.count("held calls answered"),
            Effect::Report(Report::Paused { .. }) => {
                self.tally.count("processes paused at a limit");
                self.set_paused(pid, true);
            }
            Effect::Report(Report::Raised { .. }) => self.tally.count("limits raised"),
            Effect::Report(Report::Unpaused) => {
                self.tally.count("pauses ended");
                self.set_paused(pid, false);
            }
            Effect::Report(Report::Turn { .. }) => self.tally.count("turns ended"),
            Effect::Report(Report::Exit { exit }) => {
                self.check_told(pid, &exit.message, "the last words")?;
                self.tell_supervisor(pid.0, SupervisorMessage::Ended { pid, exit });
                return Ok(After::Ends);
            }
        }
        Ok(After::GoesOn)
    }

    fn begin_work(&mut self, running: &mut Running, call: CallId, work: Work) -> Held {
        let pid = running.pid();
        match work {
            Work::Model { mut request, .. } => {
                self.tamper_request(&mut request.messages);
                self.check_request(pid, &request)?;
                let (delay, result) = self.ask_model(&running.state);
                let first_word = self.random.below(delay + 1);
                self.schedule.after(
                    first_word,
                    Event::Spoke {
                        pid,
                        life: running.life,
                    },
                );
                self.start(running, call, delay, Completion::Model(result));
            }
            Work::Tool { tool, args, .. } => {
                self.check_started(pid, call, &tool.name, is_idempotent(&tool.name))?;
                self.check_told(pid, &args, "the arguments of a tool")?;
                let (delay, output) = self.run_tool(pid, &args);
                self.start(running, call, delay, Completion::Tool(output));
            }
            Work::WriteFile(pending) => {
                self.check_started(pid, call, "fd_to_file", pending.write.is_repeatable())?;
                let result = if self.random.percent(20) {
                    let message = "the disk is full".to_owned();
                    Err(FileError {
                        kind: FileErrorKind::WriteError,
                        message,
                    })
                } else {
                    Ok(())
                };
                let delay = self.random.below(60);
                self.start(
                    running,
                    call,
                    delay,
                    Completion::FileWritten { pending, result },
                );
            }
            Work::Summarize { pending, .. } => {
                let (delay, result) = self.ask_for_summary(pid);
                self.start(
                    running,
                    call,
                    delay,
                    Completion::Summarized { pending, result },
                );
            }
            Work::TempFile(pending) => {
                let task = self.new_task(running, call);
                let op = pending.op.clone();
                let max_bytes = pending.max_bytes;
                let to = Requester::Tool(Box::new(pending));
                self.ask_files(
                    running,
                    call,
                    op,
                    max_bytes,
                    Reply {
                        life: running.life,
                        task,
                        to,
                    },
                );
            }
            Work::Fetch(pending) => self.fetch(running, call, pending),
            Work::Send {
                acked_below,
                pending,
            } => {
                self.check_told(pid, &pending.envelope.text, "a message to another")?;
                self.send_message(running, call, acked_below, pending);
            }
            Work::ListProcesses => {
                let (life, task) = (running.life, self.new_task(running, call));
                self.tell_supervisor(
                    pid.0,
                    SupervisorMessage::ListNeighbours {
                        of: pid,
                        life,
                        call,
                        task,
                    },
                );
            }
            Work::Checkpoint(_) => {
                panic!("no program of the simulation enables a tool for checkpoints")
            }
            Work::Wait { timeout_ms } => {
                self.start(running, call, timeout_ms, Completion::TimedOut)
            }
        }
        Ok(())
    }

    /// Clocks are set: a time comes early, or late.
    fn wake_at(&mut self, running: &Running, at_ms: u64) {
        let pause = at_ms.saturating_sub(self.time_ms());
        let delay = match self.random.below(3) {
            0 => pause.saturating_sub(self.random.below(300)),
            1 => pause,
            _ => pause + self.random.below(300),
        };
        let message = ProcessMessage::Input(Box::new(Input::TimeUp { at_ms }));
        self.schedule.after(
            delay,
            Event::Process {
                pid: running.pid(),
                life: running.life,
                message,
            },
        );
    }

    fn set_paused(&mut self, pid: dormouse_proto::id::Pid, is_paused: bool) {
        self.tell_supervisor(pid.0, SupervisorMessage::SetPaused { pid, is_paused });
    }

    fn tell_supervisor(&mut self, from: u64, message: SupervisorMessage) {
        let delay = self.delay();
        self.schedule
            .send(from, SUPERVISOR, delay, Event::Supervisor(message));
    }

    pub(crate) fn new_task(&mut self, running: &mut Running, call: CallId) -> u64 {
        self.next_task += 1;
        let task = self.next_task;
        self.tasks.insert(task);
        if let Some(previous) = running.in_flight.insert(call, task) {
            self.tasks.remove(&previous);
        }
        task
    }

    /// Work of a call that completes after a delay. It may complete twice, or after it was given
    /// up.
    fn start(&mut self, running: &mut Running, call: CallId, delay: u64, result: Completion) {
        let task = self.new_task(running, call);
        let (pid, life) = (running.pid(), running.life);
        self.finish(pid, life, call, task, delay, result);
    }

    pub(crate) fn finish(
        &mut self,
        pid: dormouse_proto::id::Pid,
        life: u64,
        call: CallId,
        task: u64,
        delay: u64,
        result: Completion,
    ) {
        if self.defect == Some(Defect::LosesACompletion) && self.steps > 50 {
            return;
        }
        // A read completes once: what begins with its result runs under the same call.
        let is_read = matches!(result, Completion::Read(_) | Completion::Reply(_));
        let input = Input::Completed { call, result };
        if !is_read && self.random.percent(4) {
            self.tally.count("completions told twice");
            let later = delay + self.random.below(400);
            let input = Box::new(input.clone());
            self.schedule.after(
                later,
                Event::Done {
                    pid,
                    life,
                    call,
                    task,
                    input,
                    stubborn: true,
                },
            );
        }
        let stubborn = self.random.percent(25);
        self.schedule.after(
            delay,
            Event::Done {
                pid,
                life,
                call,
                task,
                input: Box::new(input),
                stubborn,
            },
        );
    }

    /// A task is done: the process is told, unless the task was given up in time.
    pub(crate) fn done(&mut self, event: Event) {
        let Event::Done {
            pid,
            life,
            call,
            task,
            input,
            stubborn,
        } = event
        else {
            return;
        };
        let is_wanted = self.tasks.remove(&task);
        if stubborn || is_wanted {
            if !is_wanted {
                self.tally.count("completions of calls that were given up");
            }
            let message = ProcessMessage::Input(input);
            let delay = self.delay();
            self.schedule
                .after(delay, Event::Process { pid, life, message });
        } else {
            self.note(|now| format!("{now}: the end of {call} of {pid} is not told"));
        }
    }

    fn ask_files(
        &mut self,
        running: &Running,
        call: CallId,
        op: TempFileOp<Content>,
        max_bytes: u64,
        reply: Reply,
    ) {
        let (root, pid) = (running.root, running.pid());
        let request = Request {
            root,
            pid,
            call,
            op,
            max_bytes,
            reply,
        };
        let delay = self.delay();
        self.schedule.send(
            pid.0,
            FILES,
            delay,
            Event::Files(FilesMessage::Request(request)),
        );
    }

    fn fetch(&mut self, running: &mut Running, call: CallId, pending: PendingSpawn) {
        let task = self.new_task(running, call);
        let files = if self.random.percent(15) {
            let message = "there is no such file".to_owned();
            Err(FetchError::File(FileError {
                kind: FileErrorKind::FileNotFound,
                message,
            }))
        } else {
            let text = |_: &String| format!("of a file {}", self.tokens.make(None));
            let texts: Vec<_> = pending.files.iter().map(text).collect();
            Ok(pending
                .files
                .iter()
                .zip(texts)
                .map(|(path, text)| FetchedFile::File {
                    path: path.clone(),
                    content: Content::new(text),
                })
                .collect())
        };
        let asked = pending.temp_files.clone();
        let temp_files = asked.iter().map(|_| None).collect();
        self.gatherings.insert(
            task,
            Gathering {
                pending,
                files,
                temp_files,
            },
        );
        for (index, id) in asked.iter().enumerate() {
            let reply = Reply {
                life: running.life,
                task,
                to: Requester::Fetch { index },
            };
            self.ask_files(running, call, TempFileOp::Read { id: *id }, u64::MAX, reply);
        }
        self.gathered(running.pid(), running.life, call, task);
    }

    /// Tells the process once all is there that its child is to be given.
    pub(crate) fn gathered(
        &mut self,
        pid: dormouse_proto::id::Pid,
        life: u64,
        call: CallId,
        task: u64,
    ) {
        let is_whole = |gathering: &Gathering| gathering.temp_files.iter().all(Option::is_some);
        if !self.gatherings.get(&task).is_some_and(is_whole) {
            return;
        }
        let Some(Gathering {
            pending,
            files,
            temp_files,
        }) = self.gatherings.remove(&task)
        else {
            return;
        };
        let temp_files: Result<Vec<_>, _> = temp_files
            .into_iter()
            .flatten()
            .map(|reply| match reply.map_err(FetchError::TempFile)? {
                TempFileReply::Contents {
                    id,
                    version,
                    content,
                } => Ok(FetchedFile::TempFile {
                    id,
                    version,
                    content,
                }),
                TempFileReply::Changed { id, .. } => {
                    Err(FetchError::Internal(format!("{id} was not read")))
                }
            })
            .collect();
        let now_ms = self.schedule.now;
        let result = files.and_then(|mut files| {
            files.extend(temp_files?);
            pending.place(files, now_ms)
        });
        let delay = self.random.below(40);
        self.finish(
            pid,
            life,
            call,
            task,
            delay,
            Completion::Fetched { pending, result },
        );
    }

    fn tamper_request(&self, messages: &mut [std::sync::Arc<Message>]) {
        if self.defect == Some(Defect::RewritesHistory) && messages.len() > 4 {
            messages[0] = Message::user("It was never said like this.").into();
        }
        if self.defect == Some(Defect::ForgetsAnAnswer)
            && let Some(last) = messages.last_mut()
        {
            let mut message = (**last).clone();
            let at = message
                .blocks
                .iter()
                .position(|block| matches!(block, Block::ToolResult { .. }));
            if let Some(at) = at {
                message.blocks.remove(at);
                message.blocks.push(Block::text("Nothing."));
                *last = message.into();
            }
        }
    }
}
