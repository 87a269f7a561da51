//! Facts of the environment that a program may ask for by `[env_info]`.

use std::collections::BTreeMap;
use std::env;

/// What this process of the operating system knows of its surroundings, by the names that programs use.
pub(super) fn gather() -> BTreeMap<String, String> {
    let directory = env::current_dir().ok().map(|path| path.display().to_string());
    let facts = [
        ("working_directory", directory),
        ("platform", Some(format!("{} ({})", env::consts::OS, env::consts::ARCH))),
        ("username", env::var("USER").or_else(|_| env::var("USERNAME")).ok()),
        ("hostname", env::var("HOSTNAME").ok()),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
