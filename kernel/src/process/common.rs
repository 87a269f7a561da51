//! What all processes of one program have in common. It is made for the first of them and kept with
//! the program, so that a birth or a fork costs none of it, in time or in memory.

use std::sync::{Arc, OnceLock};

use dormouse_proto::tool::{OutsideTool, ToolSpec};

use super::Preloads;
use super::toolbox::{HostContext, Toolbox};
use crate::program::Program;
use dormouse_content::Content;

/// What the processes of one program share, in surroundings that are the same.
pub(crate) struct ProgramCache {
    around: HostContext,
    pub(super) toolbox: Arc<Toolbox>,
    /// That of the first process that was given others: of servers, or by an earlier life of the
    /// kernel.
    given: OnceLock<Arc<Toolbox>>,
    /// The files of the program.
    pub(super) bundle: Content,
    /// The system prompt of one that was given nothing beside its program.
    system: OnceLock<Arc<str>>,
}

impl ProgramCache {
    /// That of `program`. Costs a comparison of the surroundings, but for the first time; in a
    /// second kernel, which has other ones, it is made each time.
    pub(super) fn of(program: &Program, around: &HostContext) -> Arc<Self> {
        let kept = program.shared(|| Arc::new(Self::new(program, around)));
        if kept.around == *around {
            kept
        } else {
            Arc::new(Self::new(program, around))
        }
    }

    fn new(program: &Program, around: &HostContext) -> Self {
        Self {
            around: around.clone(),
            toolbox: Arc::new(Toolbox::new(program, around)),
            given: OnceLock::new(),
            bundle: Content::new(program.bundle().to_bytes()),
            system: OnceLock::new(),
        }
    }

    /// The tools that a process was given at its birth: shared with others that were given the
    /// same.
    pub(super) fn given(
        &self,
        program: &Program,
        specs: &Arc<[ToolSpec]>,
        outside: &Arc<[OutsideTool]>,
    ) -> Arc<Toolbox> {
        let frozen = || Arc::new(Toolbox::frozen(program, specs.clone(), outside.clone()));
        if self.toolbox.is(specs, outside) {
            return self.toolbox.clone();
        }
        let kept = self.given.get_or_init(frozen);
        if kept.is(specs, outside) {
            kept.clone()
        } else {
            frozen()
        }
    }

    /// What `compose` makes of it, once for all that were given nothing.
    pub(super) fn system(&self, given: &Preloads, compose: impl FnOnce() -> String) -> Arc<str> {
        match given.shown.is_empty() {
            true => self.system.get_or_init(|| compose().into()).clone(),
            false => compose().into(),
        }
    }
}
