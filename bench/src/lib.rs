//! Shared parts of the benchmarks: a model made from a closure, an actor without a kernel,
//! percentiles, and the memory of this process.
//!
//! No benchmark passes or fails by a figure: each prints its figures next to a baseline that was
//! measured in the same run.

use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::model::{Delta, ModelError, Reply, Request};
use dormouse::ports::Model;
use dormouse::program::Program;
use dormouse::{Kernel, KernelError};
pub use dormouse_tests::says as text_reply;
use futures_util::future::{BoxFuture, FutureExt};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Notify;

/// The result of a benchmark.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A model that answers each request with the result of a closure.
pub struct FnModel<F>(pub F);

impl<F, R> Model for FnModel<F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send + 'static,
{
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        (self.0)(request).map(Ok).boxed()
    }
}

/// A reply that calls one tool.
#[must_use]
pub fn tool_call_reply(tool: &str, args: &str) -> Reply {
    dormouse_tests::asks(&[(tool, args)])
}

/// A kernel without a store, whose model `m` is `model` and answers `concurrent_calls` calls at a
/// time.
///
/// # Errors
/// As [`dormouse::KernelBuilder::build`].
pub async fn kernel(model: impl Model, concurrent_calls: usize) -> Result<Kernel, KernelError> {
    Kernel::builder()
        .model("m", model)
        .model_calls(concurrent_calls)
        .inbox_capacity(1 << 20)
        .build()
        .await
}

/// A program that uses the model `m` and a few tools, and may fork up to 1,000 children.
///
/// # Errors
/// An error in the text, which is constant: only if the format of programs has changed.
pub fn program(kernel: &Kernel) -> Outcome<Program> {
    const TEXT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \"You \
         measure.\"\n[tools]\nenabled = [\"read_fd\", \"search_fd\", \"list_fds\", \
         \"fork\"]\n[limits]\nmax_fork_children = 1000\nmax_children = 1000\nfork_release = \
         \"all\"\n";
    Ok(kernel.parse(TEXT)?.program)
}

/// A message of a [`BareActor`]: a number that the actor passes on or counts.
pub struct Token(pub u64);

/// An actor of the library `ractor` that only calls a closure for each message: the baseline for
/// the processes of a kernel.
pub struct BareActor<F>(pub F);

impl<F: Fn(Token) + Send + Sync + 'static> Actor for BareActor<F> {
    type Msg = Token;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _myself: ActorRef<Token>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Token>,
        token: Token,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        (self.0)(token);
        Ok(())
    }
}

/// Starts a [`BareActor`].
///
/// # Errors
/// If it cannot be started.
pub async fn bare_actor(
    handle: impl Fn(Token) + Send + Sync + 'static,
) -> Outcome<ActorRef<Token>> {
    Ok(BareActor::spawn(None, BareActor(handle), ()).await?.0)
}

/// A counter that wakes its waiter when it reaches zero.
#[derive(Default)]
pub struct Countdown {
    left: AtomicUsize,
    done: Notify,
}

impl Countdown {
    /// A countdown from `count`.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            done: Notify::new(),
        })
    }

    /// Counts down by one.
    pub fn count_down(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// Waits for zero. Supports one waiter.
    pub async fn wait_for_zero(&self) {
        self.done.notified().await;
    }
}

/// Median and 99th percentile of measured durations.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    /// The median.
    pub median: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl Percentiles {
    /// The percentiles of these durations.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn from_durations(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self {
            median: durations[durations.len() / 2],
            p99: durations[durations.len() * 99 / 100],
        }
    }
}

/// A duration with three digits and a unit.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    match nanos {
        ..1e3 => format!("{nanos:.0} ns"),
        1e3..1e6 => format!("{:.1} µs", nanos / 1e3),
        1e6..1e9 => format!("{:.1} ms", nanos / 1e6),
        _ => format!("{:.2} s", nanos / 1e9),
    }
}

/// The quotient of two durations.
#[must_use]
pub fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Prints one line.
///
/// # Errors
/// If standard output is closed.
pub fn print_line(text: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// The resident memory of this process, in bytes.
///
/// # Errors
/// On a system without `/proc`.
pub fn resident_bytes() -> io::Result<u64> {
    status_bytes("VmRSS:")
}

/// The peak of the resident memory of this process, in bytes.
///
/// # Errors
/// If the system does not report it.
pub fn peak_bytes() -> io::Result<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = found.and_then(|found| {
        found
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| io::Error::other(format!("no {field} of this program")))
}

/// The bytes of all files in a folder and in the folders below it.
///
/// # Errors
/// The folder cannot be read.
pub fn bytes_in(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_in(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

/// The argument with which a benchmark runs itself to open a store that it has written.
const OPEN: &str = "--open";

/// What a benchmark does that writes a store of many processes and opens it again, in another
/// operating system process, so that memory is measured in a fresh one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTask {
    /// Writes stores of so many processes each; if empty, of the numbers that it has itself.
    Write(Vec<u64>),
    /// Opens the store in this folder, which has so many processes.
    Open(PathBuf, u64),
}

impl StoreTask {
    /// The task that the arguments of this program name.
    ///
    /// # Errors
    /// If an argument is not a positive number.
    pub fn from_args() -> Outcome<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if let [word, folder, count] = &words[..]
            && word == OPEN
        {
            return Ok(Self::Open(folder.into(), count.parse()?));
        }
        let counts = words
            .iter()
            .map(|count| count.parse::<NonZeroU64>().map(NonZeroU64::get));
        Ok(Self::Write(counts.collect::<Result<_, _>>()?))
    }
}

/// Runs this program again, to open the store in this folder, which has `count` processes.
///
/// # Errors
/// If it cannot be run.
///
/// # Panics
/// If it fails.
pub fn open_again(folder: &Path, count: u64) -> Outcome {
    let mut opened = std::process::Command::new(std::env::current_exe()?);
    opened.arg(OPEN).arg(folder).arg(count.to_string());
    assert!(opened.status()?.success(), "the store opens again");
    Ok(())
}

/// Prints what a store takes on disk for each of its `count` processes.
///
/// # Errors
/// The store cannot be read, or standard output is closed.
pub fn print_bytes_on_disk(folder: &Path, count: u64) -> Outcome {
    print_line(format_args!(
        "on disk: {} bytes each in the log, {} in the index",
        bytes_in(&folder.join("log"))? / count,
        bytes_in(&folder.join("index"))? / count
    ))?;
    Ok(())
}
