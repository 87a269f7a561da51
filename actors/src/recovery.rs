//! From a journal back to a process: image, then facts, each content read and checked once.

use std::collections::HashMap;

use dormouse_kernel::content::Content;
use dormouse_kernel::process::{State, StateError, evolve};
use dormouse_kernel::program::{Bundle, Program};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::{ContentRef, Fact, Image};

use crate::ports::{Journal, Store, StoreError, Unreadable};
use crate::world::World;

/// Why a journal does not give a process.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is nothing to read it from.
    #[error("this kernel has no store to read a journal from")]
    NoStore,
    /// The store cannot give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A content that is needed to run it cannot be read.
    #[error("{0}")]
    Content(#[from] Unreadable),
    /// A record is not what it should be.
    #[error("the journal of process {pid} cannot be read: {source}")]
    Record {
        /// The process.
        pid: Pid,
        /// What is wrong.
        source: CodecError,
    },
    /// The program that it was born with does not compile in this kernel.
    #[error("the program of process {pid} cannot be used: {reason}")]
    Program {
        /// The process.
        pid: Pid,
        /// Why.
        reason: String,
    },
    /// The image contradicts itself.
    #[error("the image of process {pid} is not valid: {source}")]
    State {
        /// The process.
        pid: Pid,
        /// What is wrong.
        source: StateError,
    },
}

/// A process as its journal tells it.
pub(crate) struct Loaded {
    pub(crate) pid: Pid,
    pub(crate) state: State,
    /// The last fact in it.
    pub(crate) last: FactNumber,
    /// The fact that the snapshot stands at which it was read from.
    pub(crate) snapshot_at: FactNumber,
}

/// What a process is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run: every tool of its program must be there.
    Run,
    /// To be looked at: tools of another host may be missing.
    Look,
}

/// The process `pid` after fact `upto` (none: its last). Reads the disk; costs the journal since its latest snapshot.
pub(crate) fn load(
    store: &dyn Store,
    world: &World,
    pid: Pid,
    upto: Option<FactNumber>,
    purpose: Purpose,
) -> Result<Loaded, LoadError> {
    let Journal { row, base, image, facts } = store.journal(pid, upto)?;
    let record = |source| LoadError::Record { pid, source };
    let mut contents = HashMap::new();
    let mut content = |reference: ContentRef| fetch(store, &mut contents, reference);
    let image: Image<ContentRef> = codec::decode(&image).map_err(record)?;
    let image = image.try_map(&mut content)?;
    let program = program(world, pid, image.bundle.bytes(), &image.program, purpose)?;
    let mut state = State::from_image(row.known_as(), program, world.around.clone(), image)
        .map_err(|source| LoadError::State { pid, source })?;
    for fact in &facts {
        let fact: Fact<ContentRef> = codec::decode(fact).map_err(record)?;
        evolve(&mut state, &fact.try_map(&mut content)?);
    }
    check_prices(world, &state, purpose).map_err(|reason| LoadError::Program { pid, reason })?;
    Ok(Loaded { pid, state, last: base.plus(facts.len()), snapshot_at: base })
}

/// A process whose cost is bounded does not run where it cannot be counted.
fn check_prices(world: &World, state: &State, purpose: Purpose) -> Result<(), String> {
    let is_bounded = state.budget().limits().cost_nanos.is_some() && state.exit().is_none();
    match (purpose, is_bounded) {
        (Purpose::Run, true) => state.program().check_prices(&world.around.prices).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

fn fetch(
    store: &dyn Store,
    contents: &mut HashMap<ContentHash, Content>,
    reference: ContentRef,
) -> Result<Content, LoadError> {
    if let Some(content) = contents.get(&reference.hash) {
        return Ok(content.clone());
    }
    let content = Content::new(store.content(reference.hash)?.slice(0..reference.len)?);
    contents.insert(reference.hash, content.clone());
    Ok(content)
}

fn program(world: &World, pid: Pid, bundle: &[u8], key: &str, purpose: Purpose) -> Result<Program, LoadError> {
    let failed = |reason: String| LoadError::Program { pid, reason };
    let bundle = Bundle::from_bytes(bundle).map_err(|error| failed(error.to_string()))?;
    let foreign = if purpose == Purpose::Look { bundle.host_tools() } else { Vec::new() };
    let tools: Vec<&str> = world.tools.keys().chain(&foreign).map(String::as_str).collect();
    let compiled = bundle.compile(&tools).map_err(|error| failed(error.to_string()))?;
    compiled.program.by_key(key).ok_or_else(|| failed(format!("its bundle holds no program {key}")))
}
