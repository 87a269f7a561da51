//! The tools that every kernel has, as far as a program is checked against them.

/// A tool of the kernel. Which ones there are is told to the compiler: this crate knows none.
#[derive(Clone, Debug)]
pub struct KernelTool {
    /// The name of the tool.
    pub name: &'static str,
    /// Whether a program that enables it has descriptors.
    pub is_for_descriptors: bool,
    /// The names of its parameters.
    pub parameters: Vec<&'static str>,
}

/// The tools that a program may enable beside its own commands.
#[derive(Clone, Copy)]
pub(crate) struct KnownTools<'a> {
    /// Those of the kernel.
    pub(crate) kernel: &'a [KernelTool],
    /// Those that the embedder registered.
    pub(crate) host: &'a [&'a str],
}

/// The tool of this name.
pub(crate) fn find<'a>(tools: &'a [KernelTool], name: &str) -> Option<&'a KernelTool> {
    tools.iter().find(|tool| tool.name == name)
}
