//! The programs of the processes that nodes run.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_cluster::ProgramFiles;

/// A process that calls its model `calls` times. Each reply takes `delay_ms`, and each but the last
/// calls a tool.
pub(crate) fn working(calls: u32, delay_ms: u64) -> ProgramFiles {
    let program = "[model]\nname = 'worker'\nprovider = 'scripted'\nscript = 'script.toml'\n\
                   max_iterations = 100000\n[tools]\nenabled = ['list_fds']\n";
    let last = calls - 1;
    let script = format!(
        "[[turn]]\nwhen.holds = 'round < {last}'\ndelay_ms = {delay_ms}\n\
         calls = [{{ tool = 'list_fds', args = {{}} }}]\n\
         [[turn]]\ndelay_ms = {delay_ms}\ntext = 'done'\n"
    );
    ProgramFiles::new(ENTRY, files(program, &script))
}

/// The main file of each program.
pub(crate) const ENTRY: &str = "program.toml";

/// A process that answers each input at once.
pub(crate) fn answering() -> ProgramFiles {
    ProgramFiles::new(ENTRY, answering_files())
}

/// The files of [`answering`].
pub(crate) fn answering_files() -> BTreeMap<String, Bytes> {
    let program = "[model]\nname = 'echo'\nprovider = 'scripted'\nscript = 'script.toml'\n";
    files(
        program,
        "[[turn]]\ntext = 'turn {{ turn }}: {{ prompt }}'\n",
    )
}

fn files(program: &str, script: &str) -> BTreeMap<String, Bytes> {
    let file = |name: &str, text: &str| (name.to_owned(), Bytes::from(text.to_owned()));
    [file(ENTRY, program), file("script.toml", script)].into()
}
