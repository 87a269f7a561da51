//! The environment of commands: what they get is listed, everything else stays here. Keys of model providers live in
//! the environment of the kernel, and no command sees them unless the command names them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// What every command gets, where it is set.
const ALWAYS: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];

/// The variables of the host, as they were when it was made.
pub(super) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { variables: variables.into_iter().collect() }
    }

    pub(super) fn path(&self) -> Option<&OsStr> {
        self.variables.get(OsStr::new("PATH")).map(OsString::as_os_str)
    }

    /// The value of a variable, if it is set. Bytes that are no text are replaced.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.variables.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
    }

    /// All of it, but for these variables.
    pub(super) fn but(&self, names: &[String]) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.variables.iter().filter(|(name, _)| !names.iter().any(|left_out| **name == **left_out))
    }

    /// The few that every command gets, and those that it names.
    pub(super) fn scrubbed<'a>(&'a self, named: &'a [String]) -> impl Iterator<Item = (&'a OsString, &'a OsString)> {
        let names = ALWAYS.into_iter().chain(named.iter().map(String::as_str));
        names.filter_map(|name| self.variables.get_key_value(OsStr::new(name)))
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
