//! The environment of commands. A command gets a fixed list of variables, and those that it names
//! and the user permits. All others, such as the keys of model providers, stay in the kernel.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// The variables that every command gets, if they are set.
pub(super) const BASE_VARIABLES: [&str; 7] =
    ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];

/// The environment variables at the time when the host was created.
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

    /// All variables.
    pub(super) fn all(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.variables.iter()
    }

    /// The variables that every command gets.
    pub(super) fn base_variables(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        BASE_VARIABLES
            .into_iter()
            .filter_map(|name| self.variables.get_key_value(OsStr::new(name)))
    }

    /// The environment without the withheld variables.
    pub(super) fn without_variables<'n>(mut self, withheld: impl Iterator<Item = &'n str>) -> Self {
        withheld.for_each(|name| drop(self.variables.remove(OsStr::new(name))));
        self
    }
}

/// Shows names only, since values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
