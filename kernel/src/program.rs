//! Compiles programs against the tools of this kernel. Re-exports `dormouse_program`, and wraps its
//! functions that take a list of kernel tools.
//!
//! ```
//! use std::path::Path;
//! use bytes::Bytes;
//! use dormouse_kernel::program::compile;
//!
//! let text = "[model]\nprovider = \"scripted\"\n[prompt]\nsystem = \"You audit.\"\n[tools]\nenabled = [\"read_fd\"]\n";
//! let compiled = compile(Path::new("demo/auditor.toml"), &mut |_| Ok(Bytes::from(text)), &[])?;
//! assert_eq!(compiled.program.name(), "auditor");
//! assert!(compiled.program.descriptors().is_some());
//! # Ok::<(), dormouse_kernel::program::ProgramErrors>(())
//! ```

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use dormouse_proto::file::FileError;

pub use dormouse_program::*;

use crate::syscall::{Group, TOOLS};

static KERNEL_TOOLS: LazyLock<Vec<KernelTool>> = LazyLock::new(|| {
    let tools = TOOLS.iter().map(|tool| KernelTool {
        name: tool.name,
        is_for_descriptors: tool.group == Group::Descriptors,
        parameters: tool.parameter_names().collect(),
    });
    tools.collect()
});

/// Compiles the program file `entry` and everything that it names.
///
/// Files are read only through `files`, each once. Their paths are absolute, or relative to the
/// directory that `entry` is relative to. `registered` names the tools that the embedder
/// registered, such as `&["grep"]`, or with [`Registered`] also its providers of models. Costs a
/// pass over each file.
///
/// # Errors
/// [`ProgramErrors`]: every mistake of every file.
pub fn compile<'a>(
    entry: &Path,
    files: &mut dyn FnMut(&Path) -> Result<Bytes, FileError>,
    registered: impl Into<Registered<'a>>,
) -> Result<Compiled, ProgramErrors> {
    dormouse_program::compile(entry, files, &KERNEL_TOOLS, registered)
}

/// Compiles the programs of a bundle again, from its files alone. `host_tools` names the tools that
/// the embedder registered.
///
/// # Errors
/// [`ProgramErrors`]. A bundle that was compiled before can only fail if other host tools are
/// registered or if this version of the compiler is stricter.
pub fn compile_bundle(bundle: &Bundle, host_tools: &[&str]) -> Result<Compiled, ProgramErrors> {
    bundle.compile(&KERNEL_TOOLS, host_tools)
}

/// The enabled tools of a bundle that are neither kernel tools nor declared commands: the host that
/// compiled the programs had registered them. A host without these tools passes the list to
/// [`compile_bundle`] to inspect the programs.
#[must_use]
pub fn host_tools(bundle: &Bundle) -> Vec<String> {
    bundle.host_tools(&KERNEL_TOOLS)
}
