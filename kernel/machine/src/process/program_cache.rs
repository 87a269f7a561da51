//! A cache of what all processes of one program share. It is filled by the first process and stored
//! with the program, so that creating or forking a process does not repeat the work.

use std::sync::{Arc, OnceLock};

use dormouse_proto::tool::{OutsideTool, ToolSpec};

use super::Preloads;
use super::toolbox::{HostContext, Toolbox};
use dormouse_content::Content;
use dormouse_program::Program;

/// What the processes of one program share under one host context.
pub(crate) struct ProgramCache {
    host: HostContext,
    pub(super) toolbox: Arc<Toolbox>,
    /// Toolbox of the first process with other tools than `toolbox`: with tools of servers, or
    /// frozen in an earlier run of the kernel.
    frozen: OnceLock<Arc<Toolbox>>,
    /// The files of the program, as a content.
    pub(super) bundle: Content,
    /// The system prompt of a process without preloads of its own.
    system: OnceLock<Arc<str>>,
}

impl ProgramCache {
    /// The cache of `program`. Compares the host context with the cached one; a kernel with another
    /// context builds a cache each time.
    pub(super) fn for_program(program: &Program, host: &HostContext) -> Arc<Self> {
        let cached = program.shared(|| Arc::new(Self::new(program, host)));
        if cached.host == *host {
            cached
        } else {
            Arc::new(Self::new(program, host))
        }
    }

    fn new(program: &Program, host: &HostContext) -> Self {
        Self {
            host: host.clone(),
            toolbox: Arc::new(Toolbox::new(program, host)),
            frozen: OnceLock::new(),
            bundle: Content::new(program.bundle().to_bytes()),
            system: OnceLock::new(),
        }
    }

    /// The toolbox of a process with these frozen tools, shared with other processes that have the
    /// same.
    pub(super) fn frozen_toolbox(
        &self,
        program: &Program,
        specs: &Arc<[ToolSpec]>,
        outside: &Arc<[OutsideTool]>,
    ) -> Arc<Toolbox> {
        let kernel_tools = self.host.kernel_tools;
        let make = || {
            let (specs, outside) = (specs.clone(), outside.clone());
            Arc::new(Toolbox::frozen(program, kernel_tools, specs, outside))
        };
        if self.toolbox.is(specs, outside) {
            return self.toolbox.clone();
        }
        let cached = self.frozen.get_or_init(make);
        if cached.is(specs, outside) {
            cached.clone()
        } else {
            make()
        }
    }

    /// The system prompt that `compose` makes; cached for processes without preloads of their own.
    pub(super) fn system(&self, preloads: &Preloads, compose: impl FnOnce() -> String) -> Arc<str> {
        match preloads.shown.is_empty() {
            true => self.system.get_or_init(|| compose().into()).clone(),
            false => compose().into(),
        }
    }
}
