//! What the user permits: programs to run, folders to read, folders to write, environment variables to tell.
//!
//! Permissions are plain data. They open nothing and look nothing up; that is done once, when a host is made of them.

use std::path::{Path, PathBuf};

/// What a host may do. It starts from nothing, and each permission stands alone: writing does not imply reading.
///
/// ```
/// use dormouse_host::Permissions;
///
/// let by_hand = Permissions::none().allow_run("cargo").allow_run("git").allow_write("out");
/// let by_flags = Permissions::none().run_flag("cargo,git")?.write_flag("out")?;
/// assert_eq!(by_hand, by_flags);
/// # Ok::<(), dormouse_host::PermissionsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    run: Vec<String>,
    env: Vec<String>,
    net: Vec<String>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    sealed: Vec<PathBuf>,
    server_environment: ServerEnvironment,
}

/// What tool servers that are programs are told of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerEnvironment {
    /// The few variables that every command gets, and what their declaration says.
    #[default]
    Declared,
    /// All that the kernel was started with, but for the variables of these names, and what their declaration says: right for
    /// servers that the user named as they would start them themselves.
    AllBut(Vec<String>),
}

impl Permissions {
    /// Nothing is permitted.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Permits a program: by bare name (`cargo`), for commands that name it so, found in the host's `PATH`; or by full
    /// path (`/usr/bin/cargo`), for commands that lead to exactly that path.
    #[must_use]
    pub fn allow_run(mut self, program: impl Into<String>) -> Self {
        self.run.push(program.into());
        self
    }

    /// Permits to tell programs that name it an environment variable, by its exact name. A value that a model reads goes
    /// to the model's provider: no secret belongs there.
    #[must_use]
    pub fn allow_env(mut self, name: impl Into<String>) -> Self {
        self.env.push(name.into());
        self
    }

    /// What tool servers are told of the environment; [`ServerEnvironment::Declared`], until said otherwise.
    #[must_use]
    pub fn server_environment(mut self, told: ServerEnvironment) -> Self {
        self.server_environment = told;
        self
    }

    /// Permits programs that name its address to have the kernel connect to a machine: by name or number, with a port
    /// (`127.0.0.1:8082`, `[::1]:8082`) or for all ports (`models.example`). Providers that are called by their name alone need
    /// none of this.
    #[must_use]
    pub fn allow_net(mut self, machine: impl Into<String>) -> Self {
        self.net.push(machine.into());
        self
    }

    /// Permits to read files below a folder, given absolute or relative to the host's working directory.
    #[must_use]
    pub fn allow_read(mut self, folder: impl Into<PathBuf>) -> Self {
        self.read.push(folder.into());
        self
    }

    /// Permits to write files below a folder, given absolute or relative to the host's working directory.
    #[must_use]
    pub fn allow_write(mut self, folder: impl Into<PathBuf>) -> Self {
        self.write.push(folder.into());
        self
    }

    /// Takes a folder and all below it out of what may be read and written, wherever it lies, whether it is there yet or
    /// not. Seal the folder of a kernel's store, where a permitted folder holds it: a process that overwrites its own
    /// journal ends the store.
    #[must_use]
    pub fn seal(mut self, folder: impl Into<PathBuf>) -> Self {
        self.sealed.push(folder.into());
        self
    }

    /// Adds the value of one `--allow-run=cargo,git`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty or is a relative path.
    pub fn run_flag(self, value: &str) -> Result<Self, PermissionsError> {
        items("--allow-run", value)?.try_fold(self, |permissions, program| {
            check_program(program)?;
            Ok(permissions.allow_run(program))
        })
    }

    /// Adds the value of one `--allow-env=REGION,TEAM`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn env_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(items("--allow-env", value)?.fold(self, Self::allow_env))
    }

    /// Adds the value of one `--allow-net=127.0.0.1:8082,models.example`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn net_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(items("--allow-net", value)?.fold(self, Self::allow_net))
    }

    /// Adds the value of one `--allow-read=DIR,DIR`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn read_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(items("--allow-read", value)?.fold(self, Self::allow_read))
    }

    /// Adds the value of one `--allow-write=DIR,DIR`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn write_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(items("--allow-write", value)?.fold(self, Self::allow_write))
    }

    /// The programs, as they were given.
    pub fn run(&self) -> impl Iterator<Item = &str> {
        self.run.iter().map(String::as_str)
    }

    /// The environment variables that may be told, as they were given.
    pub fn env(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(String::as_str)
    }

    /// What tool servers are told of the environment.
    pub(crate) fn told_servers(&self) -> &ServerEnvironment {
        &self.server_environment
    }

    /// The machines that may be connected to, as they were given.
    pub fn net(&self) -> impl Iterator<Item = &str> {
        self.net.iter().map(String::as_str)
    }

    /// Whether a machine may be connected to at this port. Names count without regard to case, numbers as written.
    pub(crate) fn permits_net(&self, machine: &str, port: u16) -> bool {
        let at_port = format!("{machine}:{port}");
        self.net().any(|given| given.eq_ignore_ascii_case(machine) || given.eq_ignore_ascii_case(&at_port))
    }

    /// The folders that may be read, as they were given.
    pub fn read(&self) -> impl Iterator<Item = &Path> {
        self.read.iter().map(PathBuf::as_path)
    }

    /// The folders that may be written, as they were given.
    pub fn write(&self) -> impl Iterator<Item = &Path> {
        self.write.iter().map(PathBuf::as_path)
    }

    /// The folders that are sealed, as they were given.
    pub fn sealed(&self) -> impl Iterator<Item = &Path> {
        self.sealed.iter().map(PathBuf::as_path)
    }
}

/// A permission that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionsError {
    /// A flag without a value, or with a comma too many.
    #[error("{flag}={value} holds an empty item: give names separated by single commas, as in {flag}=one,two")]
    Empty {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// A program by relative path: what it means would depend on where one stands.
    #[error(
        "--allow-run={program} is a relative path: give a bare name, as in cargo, or a full path, as in /usr/bin/cargo"
    )]
    RelativeProgram {
        /// What was given.
        program: String,
    },
}

/// Whether a program is named in a way that a command can match.
pub(crate) fn check_program(program: &str) -> Result<(), PermissionsError> {
    if program.is_empty() {
        return Err(PermissionsError::Empty { flag: "--allow-run", value: String::new() });
    }
    if program.contains('/') && !program.starts_with('/') {
        return Err(PermissionsError::RelativeProgram { program: program.into() });
    }
    Ok(())
}

fn items<'a>(flag: &'static str, value: &'a str) -> Result<std::str::Split<'a, char>, PermissionsError> {
    if value.split(',').any(str::is_empty) {
        return Err(PermissionsError::Empty { flag, value: value.into() });
    }
    Ok(value.split(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_repeat_and_hold_several_items() {
        let permissions = Permissions::none()
            .run_flag("cargo,/usr/bin/git")
            .and_then(|p| p.run_flag("rustc"))
            .and_then(|p| p.read_flag("a,/b"))
            .and_then(|p| p.write_flag("c"))
            .and_then(|p| p.env_flag("X,Y"))
            .and_then(|p| p.net_flag("models.example,127.0.0.1:80,[::1]:9"))
            .expect("the flags are well formed");
        assert_eq!(permissions.run().collect::<Vec<_>>(), ["cargo", "/usr/bin/git", "rustc"]);
        for (machine, port, permitted) in [
            ("Models.Example", 443, true),
            ("127.0.0.1", 80, true),
            ("127.0.0.1", 81, false),
            ("[::1]", 9, true),
            ("models.example.org", 443, false),
        ] {
            assert_eq!(permissions.permits_net(machine, port), permitted, "{machine}:{port}");
        }
        assert_eq!(permissions.env().collect::<Vec<_>>(), ["X", "Y"]);
        assert_eq!(permissions.read().collect::<Vec<_>>(), [Path::new("a"), Path::new("/b")]);
        assert_eq!(permissions.write().collect::<Vec<_>>(), [Path::new("c")]);
    }

    #[test]
    fn a_flag_that_says_nothing_is_refused() {
        for value in ["", ",", "a,", ",a", "a,,b"] {
            for flag in [
                Permissions::run_flag,
                Permissions::read_flag,
                Permissions::write_flag,
                Permissions::env_flag,
                Permissions::net_flag,
            ] {
                let error = flag(Permissions::none(), value).expect_err(value);
                assert!(matches!(error, PermissionsError::Empty { .. }), "{value}: {error}");
            }
        }
    }

    #[test]
    fn a_program_is_a_bare_name_or_a_full_path() {
        for program in ["./cargo", "bin/cargo", "../cargo"] {
            let error = Permissions::none().run_flag(program).expect_err(program);
            assert!(error.to_string().contains(program), "{error}");
        }
    }
}
