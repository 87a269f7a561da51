//! The environment of commands: what they get is listed, everything else stays here. Keys of model
//! providers live in the environment of the kernel, and no command sees them unless it names them
//! and the user permits it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// What every command gets, where it is set.
pub(super) const ALWAYS: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];

/// The variables of the host, as they were when it was made.
pub(super) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }

    pub(super) fn path(&self) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new("PATH"))
            .map(OsString::as_os_str)
    }

    /// The value of a variable, if it is set.
    pub(super) fn value(&self, name: &str) -> Option<OsString> {
        self.variables.get(OsStr::new(name)).cloned()
    }

    /// All of it.
    pub(super) fn all(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.variables.iter()
    }

    /// The few that every command gets.
    pub(super) fn scrubbed(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        ALWAYS
            .into_iter()
            .filter_map(|name| self.variables.get_key_value(OsStr::new(name)))
    }

    /// It, without what nobody is told.
    pub(super) fn without<'n>(mut self, withheld: impl Iterator<Item = &'n str>) -> Self {
        withheld.for_each(|name| drop(self.variables.remove(OsStr::new(name))));
        self
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
