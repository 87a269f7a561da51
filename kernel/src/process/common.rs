//! A cache of what all processes of one program share. It is filled by the first process and stored
//! with the program, so that creating or forking a process does not repeat the work.

use std::sync::{Arc, OnceLock};

use dormouse_proto::tool::{OutsideTool, ToolSpec};

use super::Preloads;
use super::toolbox::{HostContext, Toolbox};
use crate::program::Program;
use dormouse_content::Content;

/// What the processes of one program share under one host context.
pub(crate) struct ProgramCache {
    around: HostContext,
    pub(super) toolbox: Arc<Toolbox>,
    /// Toolbox of the first process with other tools than `toolbox`: with tools of servers, or
    /// frozen in an earlier run of the kernel.
    given: OnceLock<Arc<Toolbox>>,
    /// The files of the program, as a content.
    pub(super) bundle: Content,
    /// The system prompt of a process without preloads of its own.
    system: OnceLock<Arc<str>>,
}

impl ProgramCache {
    /// The cache of `program`. Compares the host context with the cached one; a kernel with another
    /// context builds a cache each time.
    pub(super) fn of(program: &Program, around: &HostContext) -> Arc<Self> {
        let kept = program.common(|| Arc::new(Self::new(program, around)));
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

    /// The toolbox of a process with these frozen tools, shared with other processes that have the
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

    /// The system prompt that `compose` makes; cached for processes without preloads of their own.
    pub(super) fn system(&self, given: &Preloads, compose: impl FnOnce() -> String) -> Arc<str> {
        match given.shown.is_empty() {
            true => self.system.get_or_init(|| compose().into()).clone(),
            false => compose().into(),
        }
    }
}
