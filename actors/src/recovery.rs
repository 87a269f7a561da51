//! Rebuilds a process from its journal: the latest snapshot, then the facts after it. Contents are
//! read on demand, except for the bundle of the program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{self, State, StateError, evolve, waiting_of_image};
use dormouse_kernel::program::{self, Bundle, MAX_PROGRAM_BYTES, Program, Provider};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::Waiting;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::{ContentRef, Fact, Image};

use crate::checkpoint::LogRecord;
use crate::context::KernelContext;
use crate::ports::{Journal, Store, StoreError, Unreadable};
use crate::process::tool_call::panic_text;

/// Why a process cannot be rebuilt from its journal.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel has no store.
    #[error("this kernel has no store to read a journal from")]
    NoStore,
    /// The store cannot provide the journal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A content that the process needs in order to run cannot be read.
    #[error("{0}")]
    Content(#[from] Unreadable),
    /// A record does not decode.
    #[error("the journal of process {pid} cannot be read: {source}")]
    Record {
        /// The process.
        pid: Pid,
        /// The cause.
        source: CodecError,
    },
    /// The program of the process does not compile in this kernel.
    #[error("the program of process {pid} cannot be used: {reason}")]
    Program {
        /// The process.
        pid: Pid,
        /// Why.
        reason: String,
    },
    /// The snapshot is inconsistent.
    #[error("the image of process {pid} is not valid: {source}")]
    State {
        /// The process.
        pid: Pid,
        /// The cause.
        source: StateError,
    },
    /// Reading the journal panicked, which is a defect of the store or of the kernel.
    #[error("the journal of process {pid} cannot be read: {reason}")]
    Panicked {
        /// The process.
        pid: Pid,
        /// The message of the panic.
        reason: String,
    },
}

/// A process that was rebuilt from its journal.
pub(crate) struct Loaded {
    pub(crate) pid: Pid,
    pub(crate) state: State,
    /// The last fact that the state includes.
    pub(crate) last_fact: FactNumber,
    /// The size of the journal after the snapshot.
    pub(crate) journal_tail: JournalTail,
    /// How the process waits, as its row says.
    pub(crate) stored_wait: StoredWait,
}

/// How a process waits, as its row in the process table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredWait {
    /// What it waits for.
    pub(crate) waiting: Waiting,
    /// Whether it is paused at a limit.
    pub(crate) is_paused: bool,
}

impl StoredWait {
    /// What the row of a process in this state has to say.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            waiting: state.waiting(),
            is_paused: state.paused().is_some(),
        }
    }

    /// What the row says of a process that begins with this image.
    pub(crate) fn of_image(image: &process::Image) -> Self {
        Self {
            waiting: waiting_of_image(image),
            is_paused: image.pausing.paused.is_some(),
        }
    }

    /// The record that writes this into the row of a process.
    pub(crate) fn record(self, pid: Pid) -> LogRecord {
        let Self { waiting, is_paused } = self;
        LogRecord::Waiting {
            pid,
            waiting,
            is_paused,
        }
    }
}

/// The purpose of loading a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadPurpose {
    /// To run it: every tool of its program must be registered.
    Run,
    /// To inspect it: tools of another host may be missing.
    Inspect,
}

/// Loads the process as of fact `up_to` (`None`: its last fact). Reads the disk; costs the journal
/// since the latest snapshot. A panic is an error, since callers wait for the answer.
pub(crate) fn load_process(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    up_to: Option<FactNumber>,
    purpose: LoadPurpose,
) -> Result<Loaded, LoadError> {
    let replaying = AssertUnwindSafe(|| replay_journal(store, context, pid, up_to, purpose));
    catch_unwind(replaying).unwrap_or_else(|panic| {
        let reason = panic_text(&*panic);
        Err(LoadError::Panicked { pid, reason })
    })
}

fn replay_journal(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    up_to: Option<FactNumber>,
    purpose: LoadPurpose,
) -> Result<Loaded, LoadError> {
    let Journal {
        row,
        base,
        image,
        facts,
    } = store.journal(pid, up_to)?;
    let mut to_content =
        |reference: ContentRef| Ok::<_, LoadError>(context.content_cache.content(reference));
    let journal_tail = JournalTail::new(image.len() as u64);
    let journal_tail = journal_tail.with_facts(
        facts.len() as u64,
        facts.iter().map(|fact| fact.len() as u64).sum(),
    );
    let image: Image<ContentRef> =
        codec::decode(&image).map_err(|source| LoadError::Record { pid, source })?;
    let program = load_program(context, pid, &image, purpose)?;
    let image = image.try_map(&mut to_content)?;
    let mut state = State::from_image(row.local_id(), program, context.host_context.clone(), image)
        .map_err(|source| LoadError::State { pid, source })?;
    for fact in &facts {
        let fact = decode_fact(pid, fact)?;
        let fact = fact.try_map(&mut to_content)?;
        state
            .check(&fact)
            .map_err(|source| LoadError::State { pid, source })?;
        evolve(&mut state, &fact);
    }
    check_prices(context, pid, &state, purpose)?;
    Ok(Loaded {
        pid,
        state,
        last_fact: base.plus(facts.len()),
        journal_tail,
        stored_wait: StoredWait {
            waiting: row.waiting,
            is_paused: row.is_paused,
        },
    })
}

/// Decodes a fact of a journal.
pub(crate) fn decode_fact(pid: Pid, fact: &[u8]) -> Result<Fact<ContentRef>, LoadError> {
    codec::decode(fact).map_err(|source| LoadError::Record { pid, source })
}

/// Fails if a process with a cost limit would run and the price of one of its models is not known.
pub(crate) fn check_prices(
    context: &KernelContext,
    pid: Pid,
    state: &State,
    purpose: LoadPurpose,
) -> Result<(), LoadError> {
    let is_bounded = state.budget().limits().cost_nanos.is_some() && state.exit().is_none();
    if purpose != LoadPurpose::Run || !is_bounded {
        return Ok(());
    }
    let prices = &context.host_context.prices;
    state
        .program()
        .check_prices(prices)
        .map_err(|unpriced| LoadError::Program {
            pid,
            reason: unpriced.to_string(),
        })
}

/// Compiled programs that journals refer to, so that waking a process compiles none and processes
/// of one program share its memory. Bounded; the least recently used program is removed.
#[derive(Default)]
pub(crate) struct ProgramCache {
    cached: Vec<CachedProgram>,
}

/// How many programs are cached.
const MAX_CACHED_PROGRAMS: usize = 64;

/// A compiled program and the bundle that it was compiled from.
#[derive(Clone)]
struct CachedProgram {
    bundle: ContentRef,
    program: Program,
}

impl ProgramCache {
    /// The cached program that an image refers to; becomes the most recently used.
    fn find(&mut self, image: &Image<ContentRef>) -> Option<CachedProgram> {
        let matches_image = |cached: &CachedProgram| {
            cached.bundle == image.bundle && *cached.program.key() == *image.program
        };
        let at = self.cached.iter().rposition(matches_image)?;
        let cached = self.cached.remove(at);
        self.cached.push(cached.clone());
        Some(cached)
    }

    fn insert(&mut self, cached: CachedProgram) {
        if self.cached.len() == MAX_CACHED_PROGRAMS {
            self.cached.remove(0);
        }
        self.cached.push(cached);
    }
}

/// The program of an image: from the cache, otherwise compiled from its bundle.
fn load_program(
    context: &KernelContext,
    pid: Pid,
    image: &Image<ContentRef>,
    purpose: LoadPurpose,
) -> Result<Program, LoadError> {
    // For inspection, a program may be compiled with tools that this kernel lacks.
    let cache = match purpose {
        LoadPurpose::Run => &context.program_cache,
        LoadPurpose::Inspect => &context.inspected_programs,
    };
    let cache = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cached) = cache().find(image) {
        return Ok(cached.program);
    }
    if image.bundle.len > MAX_PROGRAM_BYTES {
        let reason = format!(
            "its bundle has {} bytes; up to {MAX_PROGRAM_BYTES} are valid",
            image.bundle.len
        );
        return Err(LoadError::Program { pid, reason });
    }
    let bundle = context.content_cache.content(image.bundle);
    let program = compile_from_bundle(
        context,
        pid,
        &bundle.unlimited_reader().bytes()?,
        &image.program,
        purpose,
    )?;
    cache().insert(CachedProgram {
        bundle: image.bundle,
        program: program.clone(),
    });
    Ok(program)
}

/// Compiles the program with this key from a bundle.
pub(crate) fn compile_from_bundle(
    context: &KernelContext,
    pid: Pid,
    bundle: &[u8],
    key: &str,
    purpose: LoadPurpose,
) -> Result<Program, LoadError> {
    let program_error = |reason: String| LoadError::Program { pid, reason };
    let bundle = Bundle::from_bytes(bundle).map_err(|error| program_error(error.to_string()))?;
    let bundle_tools = if purpose == LoadPurpose::Inspect {
        program::host_tools(&bundle)
    } else {
        Vec::new()
    };
    let tools: Vec<&str> = context
        .tools
        .keys()
        .chain(&bundle_tools)
        .map(String::as_str)
        .collect();
    let compiled = program::compile_bundle(&bundle, &tools)
        .map_err(|error| program_error(error.to_string()))?;
    let program = compiled
        .program
        .by_key(key)
        .ok_or_else(|| program_error(format!("its bundle holds no program {key}")))?;
    match missing_provider(context, &program) {
        Some(word) if purpose == LoadPurpose::Run => Err(program_error(format!(
            "it names the model provider '{word}', which this kernel does not have: register it \
             with `KernelBuilder::provider`"
        ))),
        _ => Ok(program),
    }
}

/// A provider that is not part of every build, which the program names and this kernel lacks, for a
/// model that is not registered by name.
fn missing_provider<'a>(context: &KernelContext, program: &'a Program) -> Option<&'a str> {
    let models = program.models().iter();
    models
        .filter(|model| !context.models.contains_key(&model.name))
        .filter_map(|model| match &model.provider {
            Provider::Custom(word) => Some(&**word),
            known => known.feature().map(|_| known.word()),
        })
        .find(|word| !context.providers.contains_key(*word))
}
