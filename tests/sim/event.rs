//! What happens in the world: messages between its parts, and the passing of time.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::{
    Child, ChildEvent, Completion, HostRequest, Image, Input, Signal, Verdict,
};
use dormouse_kernel::program::Program;
use dormouse_kernel::syscall::PendingTempFile;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Answer;

use crate::post::Post;

/// Something that happens.
pub(crate) enum Event {
    /// A message for one life of a process.
    Process {
        pid: Pid,
        life: u64,
        message: ProcessMessage,
    },
    Supervisor(SupervisorMessage),
    Files(FilesMessage),
    /// What runs beside a process has an end. One that is `stubborn` tells so even where it was
    /// given up.
    Done {
        pid: Pid,
        life: u64,
        call: CallId,
        task: u64,
        input: Box<Input>,
        stubborn: bool,
    },
    /// The batch on its way to the disk is there.
    Written,
    /// The first word of a model that others wait for.
    Spoke {
        pid: Pid,
        life: u64,
    },
    /// The host does something.
    Host,
    /// A process faults.
    Fault {
        pid: Pid,
    },
    /// The kernel dies and comes back.
    Crash,
}

pub(crate) enum ProcessMessage {
    Input(Box<Input>),
    Committed {
        up_to: u64,
    },
    /// Hand out the process as it stands, for the host to fork it.
    Copy,
    /// Be only a journal, if nothing is pending.
    Hibernate,
    /// The image that is to be slept on is durable.
    Imaged,
}

pub(crate) enum SupervisorMessage {
    Start {
        program: Program,
        image: Box<Image>,
        origin: Origin,
        name: Option<Arc<str>>,
    },
    StartChildren {
        parent: Pid,
        children: Vec<Child>,
    },
    Created {
        new_processes: Vec<NewProcess>,
    },
    Loaded {
        pid: Pid,
    },
    Deliver {
        pid: Pid,
        input: Box<Input>,
    },
    SignalTree {
        root: Pid,
        signal: Signal,
    },
    Release {
        pids: Vec<Pid>,
    },
    Copy {
        pid: Pid,
    },
    FindChild {
        parent: Pid,
        call: CallId,
        index: u32,
        reopenings: u32,
    },
    /// The journal of a process that is being opened can be read.
    EndedRead {
        pid: Pid,
    },
    /// The facts that open a process are durable.
    Reopened {
        pid: Pid,
        answer: Answer,
    },
    /// A process is paused at a limit, durably, or goes on.
    SetPaused {
        pid: Pid,
        is_paused: bool,
    },
    KillChildren {
        parent: Pid,
        calls: Vec<CallId>,
    },
    KillChildrenExcept {
        parent: Pid,
        calls: Vec<CallId>,
    },
    Ended {
        pid: Pid,
        exit: Exit,
    },
    Faulted {
        pid: Pid,
        life: u64,
    },
    Restart {
        pid: Pid,
    },
    Resume {
        pid: Pid,
    },
    /// The timer: an alarm of a process may be due, or a held call may have expired.
    WakeDue {
        pid: Pid,
    },
    Hibernate {
        pid: Pid,
    },
    /// A life ended since its process hibernates.
    Asleep {
        pid: Pid,
        life: u64,
    },
    StaysAwake {
        pid: Pid,
        life: u64,
    },
    Post(Box<Post>),
    ListNeighbours {
        of: Pid,
        life: u64,
        call: CallId,
        task: u64,
    },
}

pub(crate) struct NewProcess {
    pub(crate) row: ProcessRow,
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
}

pub(crate) enum FilesMessage {
    Request(Request),
    Loaded { root: Pid },
    Committed { root: Pid },
    TreeEnded { root: Pid },
}

/// What is asked of the files of a tree.
pub(crate) struct Request {
    pub(crate) root: Pid,
    pub(crate) pid: Pid,
    pub(crate) call: CallId,
    pub(crate) op: TempFileOp<Content>,
    pub(crate) max_bytes: u64,
    pub(crate) reply: Reply,
}

/// Where an answer goes.
pub(crate) struct Reply {
    pub(crate) life: u64,
    pub(crate) task: u64,
    pub(crate) to: Requester,
}

pub(crate) enum Requester {
    Tool(Box<PendingTempFile>),
    /// One of the files that a child is to be given.
    Fetch {
        index: usize,
    },
}

/// What the store is to tell when something is durable.
pub(crate) enum Ack {
    Facts {
        pid: Pid,
        life: u64,
        up_to: u64,
        /// The child that the same entries open, and what its sender is told.
        reopened: Option<(Pid, Answer)>,
    },
    ReadEnded {
        pid: Pid,
    },
    Reopened {
        reopened: (Pid, Answer),
    },
    Created {
        new_processes: Vec<NewProcess>,
    },
    GivenUp {
        pid: Pid,
        exit: Exit,
    },
    Files {
        root: Pid,
    },
    Load {
        pid: Pid,
    },
    Imaged {
        pid: Pid,
        life: u64,
    },
}

/// The word for an input, in traces and counts.
pub(crate) fn name(input: &Input) -> &'static str {
    match input {
        Input::UserInput { .. } => "spoke",
        Input::Message { .. } => "messaged",
        Input::Placed(_) => "placed",
        Input::Host { request, .. } => match request {
            HostRequest::Open { .. } => "opened",
            HostRequest::Call { .. } => "host_called",
            HostRequest::AnswerHeld { verdict, .. } => match verdict {
                Verdict::Approve { args: None } => "approved",
                Verdict::Approve { args: Some(_) } => "approved_with_others",
                Verdict::Refuse { .. } => "refused",
                Verdict::Answer { .. } => "question_answered",
                Verdict::Recall => "recalled",
            },
            HostRequest::Cancel => "host_gave_up",
            HostRequest::CancelAlarm(_) => "host_cancelled_alarm",
            HostRequest::SetEffectPolicy(_) => "effect_policy_set",
            HostRequest::EndSpeculation => "chosen",
            HostRequest::Goto { .. } => "sent_back",
            HostRequest::Raise { .. } => "raised",
            HostRequest::RaiseShare { .. } => "share_raised",
            HostRequest::Restore(_) => "taken_back",
            // The processes of this world have a conversation from the beginning.
            HostRequest::ReplaceTools { .. } => "tools_replaced",
        },
        Input::Summarized { .. } => "descriptor_summarized",
        Input::Completed { result, .. } => match result {
            Completion::Model(_) => "model_replied",
            Completion::Reply(_) => "reply_read",
            Completion::Tool(_) => "tool_returned",
            Completion::Read(_) => "read",
            Completion::FileWritten { .. } => "file_written",
            Completion::Summarized { .. } => "summarized",
            Completion::TempFile { .. } => "temp_file_done",
            Completion::Checkpoint(_) => "checkpoint_done",
            Completion::Fetched { .. } => "fetched",
            Completion::MessageSent(_) => "message_sent",
            Completion::Listed { .. } => "listed",
            Completion::TimedOut => "timed_out",
        },
        Input::Child { event, .. } => match event {
            ChildEvent::Started { .. } => "child_started",
            ChildEvent::Absent { .. } => "no_child",
            ChildEvent::CreationFailed { .. } => "not_born",
            ChildEvent::Ended { .. } => "child_ended",
        },
        Input::Signal(signal) | Input::SignalBeforeResume(signal) => match signal {
            Signal::Resume => "resumed",
            Signal::Interrupt => "interrupted",
            Signal::Stop => "stopped",
            Signal::Continue => "continued",
            Signal::Kill => "killed",
            Signal::Suspend => "suspended",
            Signal::Release => "released",
        },
        Input::TimeUp { .. } => "time_up",
        Input::WakeDue => "wake_due",
        Input::ReopenChild { .. } => "asked_to_reopen",
    }
}

/// The call that an input is a completion of.
pub(crate) fn completes(input: &Input) -> Option<CallId> {
    match input {
        Input::Completed { call, .. }
        | Input::Child {
            call,
            event: ChildEvent::CreationFailed { .. } | ChildEvent::Ended { .. },
        } => Some(*call),
        _ => None,
    }
}

/// The host's name of its call.
pub(crate) fn request_id(input: &Input) -> Option<Arc<str>> {
    match input {
        Input::Host {
            request_id,
            request:
                HostRequest::Open { .. }
                | HostRequest::Call { .. }
                | HostRequest::AnswerHeld { .. }
                | HostRequest::Goto { .. }
                | HostRequest::CancelAlarm(_)
                | HostRequest::SetEffectPolicy(_)
                | HostRequest::Raise { .. }
                | HostRequest::RaiseShare { .. }
                | HostRequest::EndSpeculation
                | HostRequest::Restore(_),
        } => Some(request_id.clone()),
        _ => None,
    }
}
