//! The properties of the kernel's own tools that a program is checked against.

/// A tool of the kernel. The caller of the compiler passes them, since this crate knows no tools.
#[derive(Clone, Debug)]
pub struct KernelTool {
    /// The name of the tool.
    pub name: &'static str,
    /// Whether enabling it enables the descriptor system.
    pub is_for_descriptors: bool,
    /// The names of its parameters.
    pub parameters: Vec<&'static str>,
}

/// The tools that a program may enable in addition to its own commands.
#[derive(Clone, Copy)]
pub(crate) struct KnownTools<'a> {
    /// The tools of the kernel.
    pub(crate) kernel: &'a [KernelTool],
    /// The names of the tools that the embedder registered.
    pub(crate) host: &'a [&'a str],
}

/// The tool with this name.
pub(crate) fn find<'a>(tools: &'a [KernelTool], name: &str) -> Option<&'a KernelTool> {
    tools.iter().find(|tool| tool.name == name)
}
