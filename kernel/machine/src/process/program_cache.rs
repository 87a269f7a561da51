//! Caches the toolbox, the files and the system prompt that all processes of one program share. The
//! first process of a program fills the cache, which the program holds. Creating or forking further
//! processes therefore does not repeat the work.

use std::sync::{Arc, OnceLock};

use dormouse_proto::tool::{ExternalTool, ToolSpec};

use super::Preloads;
use super::preload::{LimitedFile, files_of_program};
use super::toolbox::{HostContext, Toolbox};
use dormouse_content::Content;
use dormouse_program::Program;

/// Values that all processes of one program share under one [`HostContext`], which holds what the
/// host provides (tools, environment, prices).
pub(crate) struct ProgramCache {
    host: HostContext,
    pub(super) toolbox: Arc<Toolbox>,
    /// The toolbox of the first process whose stored tools differ from `toolbox`, because they
    /// include tools of tool servers or were chosen in an earlier run of the kernel.
    stored_toolbox: OnceLock<Arc<Toolbox>>,
    /// The files of the program, as a content.
    pub(super) bundle: Content,
    /// The files of `[preload]`.
    preloads: OnceLock<Vec<LimitedFile>>,
    /// The system prompt of a process without preloads of its own.
    system: OnceLock<Arc<str>>,
}

impl ProgramCache {
    /// The cache of `program`. The program holds one cache, for the host context of the first call.
    /// A kernel with another host context builds a new cache each time.
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
            stored_toolbox: OnceLock::new(),
            bundle: Content::new(program.bundle().to_bytes()),
            preloads: OnceLock::new(),
            system: OnceLock::new(),
        }
    }

    /// The toolbox of a process that was created with these tools. Processes with the same tools
    /// share it.
    pub(super) fn stored_toolbox(
        &self,
        program: &Program,
        specs: &Arc<[ToolSpec]>,
        external: &Arc<[ExternalTool]>,
    ) -> Arc<Toolbox> {
        let kernel_tools = self.host.kernel_tools;
        let build_toolbox = || {
            let (specs, external) = (specs.clone(), external.clone());
            Arc::new(Toolbox::from_stored(program, kernel_tools, specs, external))
        };
        if self.toolbox.has_exactly(specs, external) {
            return self.toolbox.clone();
        }
        let cached = self.stored_toolbox.get_or_init(build_toolbox);
        if cached.has_exactly(specs, external) {
            cached.clone()
        } else {
            build_toolbox()
        }
    }

    /// The files of `[preload]`. O(bytes of the files) for the first process.
    pub(super) fn preloads(&self, program: &Program) -> &[LimitedFile] {
        self.preloads.get_or_init(|| files_of_program(program))
    }

    /// Returns the system prompt that `compose` builds. The prompt is cached for processes without
    /// preloads of their own.
    pub(super) fn system_prompt(
        &self,
        preloads: &Preloads,
        compose: impl FnOnce() -> String,
    ) -> Arc<str> {
        match preloads.shown.is_empty() {
            true => self.system.get_or_init(|| compose().into()).clone(),
            false => compose().into(),
        }
    }
}
