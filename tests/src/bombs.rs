//! Bombs: programs, models and tools that take all they can get. Each is set off in a kernel of its
//! own, ends as designed, and leaves a kernel that still answers.
//!
//! The tests set them off small, `bench/src/bin/bombs.rs` large. Nothing here looks at a clock or
//! measures anything.

mod multiply;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::model::Request;
use dormouse::process::{Exit, ExitStatus};
use dormouse::{Kernel, KernelBuilder, KernelError, Process, ProcessError};

use crate::{FnModel, Gate, asks, program, results, says};

/// How large a bomb is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many children a process makes, as far as it may.
    pub width: u32,
    /// Levels of processes below the root.
    pub depth: u32,
    /// How many processes may live at the same time (`[budget] processes`); none: `[limits]` alone
    /// bound them.
    pub budget: Option<u64>,
    /// Messages that a process sends in one reply of its model, and inputs that the host sends for
    /// each.
    pub messages: usize,
    /// Model calls of a turn (`max_iterations`).
    pub model_calls: u32,
    /// Bytes of a tool's output that are kept (`output_cap`).
    pub output_cap: u64,
    /// When a tool has failed.
    pub deadline: Duration,
}

impl Size {
    /// What ends a fork or spawn bomb: the limits of each process, and the budget of the tree.
    fn bounds(self) -> String {
        let Self {
            width,
            depth,
            budget,
            ..
        } = self;
        let budget = budget
            .map(|processes| format!("[budget]\nprocesses = {processes}\n"))
            .unwrap_or_default();
        format!(
            "[limits]\nmax_depth = {depth}\nmax_children = {width}\nmax_fork_children = \
             {width}\nfork_release = \"all\"\n{budget}"
        )
    }

    /// How many processes a tree has that is as wide and deep as the limits allow.
    #[must_use]
    pub fn processes(self) -> usize {
        (0..=self.depth)
            .map(|level| (self.width as usize).pow(level))
            .sum()
    }
}

/// What goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bomb {
    /// Nothing: what a kernel costs that runs one process.
    None,
    /// Every process forks as much as it may.
    Fork,
    /// A program that links to itself is spawned by each of its processes, which waits for the end.
    SpawnAndWait,
    /// The same, and nobody waits.
    SpawnAndGoOn,
    /// A process sends without end to a busy one, and the host does too.
    Flood,
    /// A command that prints for ever.
    Command,
    /// A tool of the host that prints for ever, whatever it is told.
    Prints,
    /// A tool that never returns.
    Hangs,
    /// A tool that never returns and cannot be dropped: it holds its thread. Needs a runtime of
    /// several threads, and keeps one of them for as long as the operating system's process runs.
    Blocks,
    /// A tool that panics.
    Panics,
    /// A model that makes one call again and again.
    Loops,
}

impl Bomb {
    /// All, in the order of a report.
    pub const ALL: [Self; 11] = [
        Self::None,
        Self::Fork,
        Self::SpawnAndWait,
        Self::SpawnAndGoOn,
        Self::Flood,
        Self::Command,
        Self::Prints,
        Self::Hangs,
        Self::Blocks,
        Self::Panics,
        Self::Loops,
    ];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fork => "fork",
            Self::SpawnAndWait => "spawn-wait",
            Self::SpawnAndGoOn => "spawn-go-on",
            Self::Flood => "flood",
            Self::Command => "command",
            Self::Prints => "prints",
            Self::Hangs => "hangs",
            Self::Blocks => "blocks",
            Self::Panics => "panics",
            Self::Loops => "loops",
        }
    }

    /// Sets it off in a kernel of its own and awaits its end, then that of a process which has
    /// nothing to do with it.
    ///
    /// # Errors
    /// [`KernelError`] where the kernel is not what it should be afterwards.
    pub async fn set_off(self, size: Size) -> Result<End, KernelError> {
        match self {
            Self::None => none().await,
            Self::Fork => multiply::fork(size).await,
            Self::SpawnAndWait => multiply::spawn(size, multiply::Then::Waits).await,
            Self::SpawnAndGoOn => multiply::spawn(size, multiply::Then::GoesOn).await,
            Self::Flood => flood(size).await,
            Self::Command => tools::command(size).await,
            Self::Prints => tools::prints(size).await,
            Self::Hangs => tools::hangs(size).await,
            Self::Blocks => tools::blocks(size).await,
            Self::Panics => tools::panics(size).await,
            Self::Loops => tools::loops(size).await,
        }
    }
}

/// How a bomb ended.
#[derive(Clone, Debug)]
pub struct End {
    /// How the process ended that set it off.
    pub exit: Exit,
    /// Processes that there were.
    pub processes: usize,
    /// Model calls, tool calls or messages: what the bomb is made of.
    pub done: usize,
    /// How many of them were refused.
    pub refused: usize,
    /// Characters that tools produced for the process that set it off.
    pub chars: u64,
    /// How a process ended that was started afterwards.
    pub bystander: ExitStatus,
}

/// What is counted while a bomb goes off.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A kernel that also has a model for bystanders.
fn with_bystander(builder: KernelBuilder) -> KernelBuilder {
    builder.model(
        "bystander",
        FnModel(|_: Request| async { Ok(says("fine")) }),
    )
}

/// Awaits the end of the process that set a bomb off, and looks at what it leaves.
async fn end(
    kernel: &Kernel,
    root: &Process,
    done: usize,
    refused: usize,
) -> Result<End, KernelError> {
    let exit = root.wait().await?;
    let bystander = kernel.parse("[model]\nname = \"bystander\"\nprovider = \"scripted\"\n");
    let bystander = bystander.expect("the program is a valid one").program;
    let bystander = kernel
        .start(bystander)
        .input("go")
        .await?
        .wait()
        .await?
        .status;
    let processes = kernel.processes().await?.len() - 1;
    let chars = root
        .view()
        .map_or(0, |view| view.output_totals.produced_chars);
    Ok(End {
        exit,
        processes,
        done,
        refused,
        chars,
        bystander,
    })
}

async fn none() -> Result<End, KernelError> {
    let model = FnModel(|_: Request| async { Ok(says("done")) });
    let kernel = with_bystander(Kernel::builder())
        .model("m", model)
        .build()
        .await?;
    let root = kernel.start(program(&kernel, "")).input("go").await?;
    root.wait().await?;
    end(&kernel, &root, 1, 0).await
}

/// The receiver's model call is held open until both floods are over; then it hears what was taken.
async fn flood(size: Size) -> Result<End, KernelError> {
    let (gate, refused) = (Gate::default(), Count::default());
    let (held, count) = (gate.clone(), refused.clone());
    let flood: Arc<str> =
        format!("{{\"to\": \"inbox\", \"text\": \"{}\"}}", "x".repeat(1_000)).into();
    let model = FnModel(move |request: Request| {
        let (held, count, flood) = (held.clone(), count.clone(), flood.clone());
        async move {
            if request.messages[0].text() != "flood" {
                held.pass().await;
                return Ok(says("heard"));
            }
            count.add(
                results(&request, 0)
                    .iter()
                    .filter(|(_, is_error)| *is_error)
                    .count(),
            );
            Ok(asks(&vec![("send_message", &*flood); size.messages]))
        }
    });
    let kernel = with_bystander(Kernel::builder())
        .model("m", model)
        .build()
        .await?;
    let calls = size.model_calls;
    let rest = format!("max_iterations = {calls}\n[tools]\nenabled = [\"send_message\"]\n");
    let inbox = kernel
        .start(program(&kernel, &rest))
        .session()
        .input("work")
        .name("inbox")
        .await?;
    gate.entered().await;
    let sender = kernel.start(program(&kernel, &rest)).input("flood").await?;
    let sent = size.messages * calls as usize;
    for _ in 0..sent {
        match inbox.input("more").await {
            Ok(()) => {}
            Err(KernelError::Process(ProcessError::Busy { .. })) => refused.add(1),
            Err(error) => return Err(error),
        }
    }
    sender.wait().await?;
    // What the last reply asked for was answered, and no model read it.
    let unread = inbox.view().map_or(0, |view| view.waiting_messages);
    gate.open();
    inbox
        .wait_for(|view| view.is_idle() && view.messages == 4)
        .await?;
    let mut end = end(&kernel, &sender, 2 * sent, 2 * sent - unread).await?;
    end.exit.message = format!(
        "{}; {unread} messages waited and were heard",
        end.exit.message
    )
    .into();
    Ok(end)
}
