//! What a stranger makes of a file whose hashes he can compute: payloads that are almost right, and
//! claims that are not.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use dormouse_content::{BlobReader, BlobStore, Content, Unreadable};
use dormouse_kernel::process::{HostContext, State, evolve, summary_line};
use dormouse_kernel::program::Bundle;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::budget::{Budget, Change as BudgetChange};
use dormouse_proto::export::Member;
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::model::{StopReason, Usage};
use dormouse_proto::record::codec::{self, Allowance};
use dormouse_proto::record::{
    CallFact, ChildFact, ContentRef, ControlFact, DescriptorFact, Entry, Fact, Image, MailFact,
    TurnFact,
};
use dormouse_proto::tool::Answer;
use peak_alloc::PeakAlloc;

use crate::forge::{self, CLAIMS, export};

/// An export that is whole, as the seeds are.
pub const EXPORT: &[u8] = include_bytes!("../../kernel/tests/golden/export-1.dormouse");

/// Memory beyond what a file's length allows: a window of it, an error's text, a state and a
/// program with nothing in them.
const BESIDES_BYTES: usize = 4 << 20;

/// Asserts that `work` takes at most twice the memory that records of `bytes` bytes may take,
/// whatever they claim: there is a moment at which a list that grows has its old place and its new
/// one.
pub fn within_bounds<T>(alloc: &PeakAlloc, bytes: usize, work: impl FnOnce() -> T) -> T {
    let before = alloc.current_usage();
    alloc.reset_peak_usage();
    let done = work();
    let taken = alloc.peak_usage().saturating_sub(before);
    let allowed = 2 * Allowance::of(bytes as u64).total() as usize + BESIDES_BYTES;
    assert!(
        taken <= allowed,
        "{taken} bytes of memory were taken for {bytes} bytes: more than {allowed}"
    );
    done
}

/// A change of a payload.
#[derive(Arbitrary, Debug)]
pub enum Forgery {
    /// A number claims something else.
    Claim {
        /// Where.
        at: u16,
        /// Which of the claims.
        claim: u8,
    },
    /// A small number.
    Number {
        /// Where.
        at: u16,
        /// The number.
        number: u16,
    },
    /// A byte is another.
    Byte {
        /// Where.
        at: u16,
        /// The byte.
        byte: u8,
    },
    /// A part, many times.
    Repeat {
        /// Where.
        at: u16,
        /// How long the part is.
        len: u8,
        /// How often.
        times: u16,
    },
    /// A part is gone.
    Cut {
        /// Where.
        at: u16,
        /// How much.
        len: u8,
    },
    /// Bytes.
    Insert {
        /// Where.
        at: u16,
        /// What.
        bytes: [u8; 4],
    },
}

impl Forgery {
    /// Applies it to a payload.
    pub fn apply(&self, payload: &mut Vec<u8>) {
        let place = |at: u16| usize::from(at) % (payload.len() + 1);
        match *self {
            Self::Claim { at, claim } => {
                let claim = CLAIMS[usize::from(claim) % CLAIMS.len()];
                *payload = forge::claiming(payload, place(at), claim).unwrap_or_default();
            }
            Self::Number { at, number } => {
                *payload = forge::claiming(payload, place(at), number.into()).unwrap_or_default();
            }
            Self::Byte { at, byte } => {
                let at = place(at);
                payload.get_mut(at).into_iter().for_each(|old| *old = byte);
            }
            Self::Repeat { at, len, times } => {
                let start = place(at);
                let part = payload[start..payload.len().min(start + usize::from(len))].to_vec();
                let times = usize::from(times).min((1 << 16) / (part.len() + 1));
                payload.splice(start..start, part.repeat(times));
            }
            Self::Cut { at, len } => {
                let start = place(at);
                payload.drain(start..payload.len().min(start + usize::from(len)));
            }
            Self::Insert { at, bytes } => {
                let start = place(at);
                payload.splice(start..start, bytes);
            }
        }
    }
}

/// Some changes, each of a record by its number.
///
/// # Errors
/// Where the bytes are used up.
pub fn forgeries(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Vec<(u8, Forgery)>> {
    let count = bytes.int_in_range(1..=4)?;
    (0..count).map(|_| bytes.arbitrary()).collect()
}

/// The process of the seeds.
#[must_use]
pub fn member() -> Member {
    let member = export::records(EXPORT)
        .into_iter()
        .find(|record| record.kind == 2)
        .expect("it holds a process");
    let mut member: Member = codec::decode(&member.payload).expect("it was encoded by us");
    // The golden image is no process's: its table has a descriptor that was never given out.
    member.image.next_fd = 2;
    member
}

/// The bytes of facts, one of each kind whose parts are lists or texts.
#[must_use]
pub fn facts() -> Vec<Vec<u8>> {
    let (call, usage) = (CallId { epoch: 0, seq: 1 }, Usage::default());
    let message = || Arc::new(Message::user("a word"));
    let content = member().image.bundle;
    let text = |text: &str| Arc::<str>::from(text);
    let answer = || Answer::ok("an answer");
    let raw = dormouse_proto::message::Raw::new(text("f"), text("{\"type\":\"text\"}"));
    let blocks = vec![
        Block::text("a reply"),
        Block::ToolUse {
            id: text("t"),
            name: text("read_fd"),
            args: text("{}"),
            raw: Some(raw.clone()),
        },
        Block::Opaque(raw),
    ];
    let facts: Vec<Fact<ContentRef>> = vec![
        Fact::Mail(MailFact::Queued {
            from: Sender::Host,
            message: message(),
        }),
        Fact::Mail(MailFact::Received {
            from: Pid(7),
            call,
            acked_below: 0,
            message: message(),
        }),
        Fact::Mail(MailFact::Taken { at: vec![0, 1] }),
        Fact::Turn(TurnFact::Began),
        Fact::Descriptor(DescriptorFact::Opened {
            id: FdId::Fd(9),
            entry: Entry::new(content, 8, "tool:t", 1),
        }),
        Fact::Descriptor(DescriptorFact::Opened {
            id: FdId::Ref("r".into()),
            entry: Entry::new(content, 8, "tool:t", 1),
        }),
        Fact::Call(CallFact::ModelCalled { call }),
        Fact::Call(CallFact::ModelReplied {
            call,
            blocks,
            stop: StopReason::ToolUse,
            usage,
        }),
        Fact::Call(CallFact::HostCalled {
            request_id: text("h"),
            tool: text("read_fd"),
            args: text("{\"fd\":\"fd:1\"}"),
        }),
        Fact::Call(CallFact::ToolCalled { call }),
        Fact::Child(ChildFact::Started {
            call,
            child: Pid(8),
        }),
        Fact::Child(ChildFact::Reported {
            call,
            message: message(),
        }),
        Fact::Call(CallFact::ToolReturned {
            call,
            answer: answer(),
            produced_chars: 9,
        }),
        Fact::Call(CallFact::ModelSwitched {
            to: 0,
            reason: text("it failed"),
        }),
        Fact::Turn(TurnFact::Interrupted { answer: answer() }),
        Fact::Turn(TurnFact::ResultRequested { message: message() }),
        Fact::Turn(TurnFact::ResultRefused),
        Fact::Turn(TurnFact::ResultSubmitted { value: text("7") }),
        Fact::Turn(TurnFact::WentTo {
            to: 1,
            message: message(),
            by: dormouse_proto::record::Caller::Host,
        }),
        Fact::Restored {
            checkpoint: dormouse_proto::id::CheckpointId(1),
            image: Box::new(member().image),
            message: message(),
            by: dormouse_proto::record::Caller::Host,
        },
        Fact::Control(ControlFact::Stopped),
        Fact::Control(ControlFact::StoppedWithoutCalls),
        Fact::Control(ControlFact::Continued),
        Fact::Budget(BudgetChange::Returned {
            call,
            index: 0,
            spent: None,
        }),
        Fact::Budget(BudgetChange::Reserved {
            call,
            shares: vec![(0, Budget::default())],
        }),
    ];
    facts
        .iter()
        .map(|fact| codec::encode(fact).expect("it is small"))
        .collect()
}

/// Makes a process of an image and facts after it, as recovery does; contents stay names but for
/// the program's. The image and the facts may be refused; nothing may panic.
pub fn recover(pid: Pid, image: Image<ContentRef>, bundle: Option<&[u8]>, facts: &[Vec<u8>]) {
    let Some(program) = bundle.and_then(|bytes| {
        let bundle = Bundle::from_bytes(bytes).ok()?;
        let tools = dormouse_kernel::program::host_tools(&bundle);
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        dormouse_kernel::program::compile_bundle(&bundle, &tools)
            .ok()?
            .program
            .by_key(&image.program)
    }) else {
        return;
    };
    let mut held = |content: ContentRef| Ok::<_, ()>(named(content));
    let Ok(image) = image.try_map(&mut held) else {
        return;
    };
    let Ok(mut state) =
        State::from_image(pid, program, Arc::new(HostContext::new(&TOOL_SET)), image)
    else {
        return;
    };
    for fact in facts {
        let Ok(fact) = codec::decode::<Fact<ContentRef>>(fact) else {
            return;
        };
        let _ = (fact.name(), summary_line(&fact));
        let Ok(fact) = fact.try_map(&mut held) else {
            return;
        };
        if state.check(&fact).is_err() {
            return;
        }
        evolve(&mut state, &fact);
    }
    let _ = codec::encode(
        &state
            .image()
            .try_map(&mut |content: Content| Ok::<_, ()>(content.reference()))
            .expect("names"),
    );
}

/// A content that cannot be read: recovery reads none.
#[must_use]
pub fn named(content: ContentRef) -> Content {
    Content::on_disk(content, Arc::new(Away))
}

#[derive(Debug)]
struct Away;

impl BlobStore for Away {
    fn open(&self, _: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        Err(Unreadable::new("it is away"))
    }
}
