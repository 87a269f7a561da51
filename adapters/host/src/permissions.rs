//! What the user permits: programs to run, machines to connect to, folders to read and write,
//! environment variables to pass on.
//!
//! Permissions are plain data. Files and programs are looked up once, when a host is built from
//! them.

use std::path::{Path, PathBuf};

/// What a host may do: nothing, until it is permitted. No permission implies another: writing does
/// not imply reading.
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
    any_net: bool,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    sealed: Vec<PathBuf>,
    withheld: Vec<String>,
    unconfined: Vec<String>,
    without_confinement: bool,
    server_environment: ServerEnvironment,
}

/// The variable that holds the key of an encrypted store. It is never passed on.
const STORE_KEY: &str = "DORMOUSE_STORE_KEY";

/// The environment variables that tool servers get, if they are programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerEnvironment {
    /// The few variables that every command gets, and those that the server's declaration names.
    #[default]
    Declared,
    /// All variables of the kernel except [withheld](Permissions::withhold_env) ones, and those
    /// that the server's declaration names: for servers that the user would otherwise start by
    /// hand.
    All,
}

/// What commands and servers may reach on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing: no machine, no socket.
    None,
    /// These TCP ports of any machine, if the system can restrict a program to ports, and UDP to
    /// look up names.
    Ports(Vec<u16>),
    /// Any machine by IP, and no other kind of socket.
    Machines,
    /// Everything, sockets of this machine included.
    Any,
}

impl Permissions {
    /// Nothing is permitted.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Permits a program: by bare name (`cargo`), which is found in the host's `PATH` and permits
    /// commands that use that name; or by full path (`/usr/bin/cargo`), which permits commands that
    /// lead to exactly that path.
    #[must_use]
    pub fn allow_run(mut self, program: impl Into<String>) -> Self {
        self.run.push(program.into());
        self
    }

    /// Permits passing on an environment variable, by its exact name, to the `[env_info]`,
    /// commands, tool servers and models that a program names it for. The model's provider sees
    /// every value that the model reads, so permit no secret in `[env_info]`.
    #[must_use]
    pub fn allow_env(mut self, name: impl Into<String>) -> Self {
        self.env.push(name.into());
        self
    }

    /// The environment variables that tool servers get; by default [`ServerEnvironment::Declared`].
    #[must_use]
    pub fn server_environment(mut self, environment: ServerEnvironment) -> Self {
        self.server_environment = environment;
        self
    }

    /// Never passes on this environment variable, such as a secret of the embedder, whatever else
    /// is permitted. The store's key (`DORMOUSE_STORE_KEY`) is always withheld.
    #[must_use]
    pub fn withhold_env(mut self, name: impl Into<String>) -> Self {
        self.withheld.push(name.into());
        self
    }

    /// Permits the kernel to connect to a machine when a program names its address: by name or
    /// number, with a port (`127.0.0.1:8082`, `[::1]:8082`) or for all ports (`models.example`). A
    /// provider that a program names without an address needs no permission.
    ///
    /// Names of machines restrict only the kernel's own calls. Commands, and servers that are
    /// programs, may then connect to any machine by IP. If every permitted machine has a port, and
    /// the system supports it (Linux 6.7), they may connect by TCP to these ports only. All other
    /// sockets stay closed to them.
    #[must_use]
    pub fn allow_net(mut self, machine: impl Into<String>) -> Self {
        self.net.push(machine.into());
        self
    }

    /// Permits the kernel, commands and servers to connect to any machine, and to any socket of
    /// this one.
    #[must_use]
    pub fn allow_any_net(mut self) -> Self {
        self.any_net = true;
        self
    }

    /// Permits a program, named as in [`allow_run`](Self::allow_run), to run unconfined: it can
    /// read, write and reach all that the kernel's user can. For a tool server that the user
    /// trusts.
    #[must_use]
    pub fn allow_unconfined(mut self, program: impl Into<String>) -> Self {
        self.unconfined.push(program.into());
        self
    }

    /// Permits commands and servers to run even if the system cannot confine them (no Landlock, no
    /// seccomp). Without this they are refused there.
    #[must_use]
    pub fn allow_without_confinement(mut self) -> Self {
        self.without_confinement = true;
        self
    }

    /// Permits to read files below a folder, given absolute or relative to the host's working
    /// directory.
    #[must_use]
    pub fn allow_read(mut self, folder: impl Into<PathBuf>) -> Self {
        self.read.push(folder.into());
        self
    }

    /// Permits to write files below a folder, given absolute or relative to the host's working
    /// directory.
    #[must_use]
    pub fn allow_write(mut self, folder: impl Into<PathBuf>) -> Self {
        self.write.push(folder.into());
        self
    }

    /// Seals a file, or a folder and all below it: file tools, commands and servers can neither
    /// read nor write it, even inside a permitted folder. The path need not exist yet. A kernel
    /// seals the folder of its store by itself; seal other secrets, such as the file with its key.
    #[must_use]
    pub fn seal(mut self, path: impl Into<PathBuf>) -> Self {
        self.sealed.push(path.into());
        self
    }

    /// Adds the value of one `--allow-run=cargo,git`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty or is a relative path.
    pub fn run_flag(self, value: &str) -> Result<Self, PermissionsError> {
        split_items("--allow-run", value)?.try_fold(self, |permissions, program| {
            check_program("--allow-run", program)?;
            Ok(permissions.allow_run(program))
        })
    }

    /// Adds the value of one `--allow-env=REGION,TEAM`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn env_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(split_items("--allow-env", value)?.fold(self, Self::allow_env))
    }

    /// Adds the value of one `--allow-net=127.0.0.1:8082,models.example`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn net_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(split_items("--allow-net", value)?.fold(self, Self::allow_net))
    }

    /// Adds the value of one `--allow-read=DIR,DIR`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn read_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(split_items("--allow-read", value)?.fold(self, Self::allow_read))
    }

    /// Adds the value of one `--allow-write=DIR,DIR`.
    ///
    /// # Errors
    /// [`PermissionsError`] where an item is empty.
    pub fn write_flag(self, value: &str) -> Result<Self, PermissionsError> {
        Ok(split_items("--allow-write", value)?.fold(self, Self::allow_write))
    }

    /// The programs, as they were given.
    pub fn run(&self) -> impl Iterator<Item = &str> {
        self.run.iter().map(String::as_str)
    }

    /// The environment variables that may be passed on, as they were given.
    pub fn env(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(String::as_str)
    }

    /// The environment variables that tool servers get.
    pub(crate) fn environment_of_servers(&self) -> ServerEnvironment {
        self.server_environment
    }

    /// The environment variables that are never passed on.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld.iter().map(String::as_str).chain([STORE_KEY])
    }

    /// Whether an environment variable may be passed on.
    pub(crate) fn permits_env(&self, name: &str) -> bool {
        self.env().any(|permitted| permitted == name)
            && self.withheld().all(|withheld| withheld != name)
    }

    /// The programs that may run unconfined, as they were named.
    pub(crate) fn unconfined(&self) -> impl Iterator<Item = &str> {
        self.unconfined.iter().map(String::as_str)
    }

    /// Whether commands run even if the system cannot confine them.
    pub(crate) fn runs_without_confinement(&self) -> bool {
        self.without_confinement
    }

    /// What commands and servers may reach on the network.
    pub(crate) fn network(&self) -> Network {
        if self.any_net {
            return Network::Any;
        }
        if self.net.is_empty() {
            return Network::None;
        }
        let ports: Option<Vec<_>> = self.net().map(parse_port).collect();
        ports.map_or(Network::Machines, Network::Ports)
    }

    /// The machines that may be connected to, as they were given.
    pub fn net(&self) -> impl Iterator<Item = &str> {
        self.net.iter().map(String::as_str)
    }

    /// Whether a machine may be connected to at this port. Names count without regard to case,
    /// numbers as written.
    pub(crate) fn permits_net(&self, machine: &str, port: u16) -> bool {
        let at_port = format!("{machine}:{port}");
        self.any_net
            || self.net().any(|given| {
                given.eq_ignore_ascii_case(machine) || given.eq_ignore_ascii_case(&at_port)
            })
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

/// The port in the name of a machine, if it has one.
fn parse_port(machine: &str) -> Option<u16> {
    let (name, port) = machine.rsplit_once(':')?;
    // The last part of an IPv6 address without brackets is no port.
    let is_machine = !name.contains(':') || name.ends_with(']');
    is_machine.then(|| port.parse().ok()).flatten()
}

/// A flag that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionsError {
    /// A flag without a value, or with a comma too many.
    #[error(
        "{flag}={value} holds an empty item: give names separated by single commas, as in \
         {flag}=one,two"
    )]
    Empty {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// A program by relative path, whose meaning would depend on the working directory.
    #[error(
        "{flag}={program} is a relative path: give a bare name, as in cargo, or a full path, as in \
         /usr/bin/cargo"
    )]
    RelativeProgram {
        /// The flag.
        flag: &'static str,
        /// What was given.
        program: String,
    },
}

/// Refuses a program name that no command can match. `flag` is the one that gave it.
pub(crate) fn check_program(flag: &'static str, program: &str) -> Result<(), PermissionsError> {
    if program.is_empty() {
        return Err(PermissionsError::Empty {
            flag,
            value: String::new(),
        });
    }
    if program.contains('/') && !program.starts_with('/') {
        return Err(PermissionsError::RelativeProgram {
            flag,
            program: program.into(),
        });
    }
    Ok(())
}

fn split_items<'a>(
    flag: &'static str,
    value: &'a str,
) -> Result<std::str::Split<'a, char>, PermissionsError> {
    if value.split(',').any(str::is_empty) {
        return Err(PermissionsError::Empty {
            flag,
            value: value.into(),
        });
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
        assert_eq!(
            permissions.run().collect::<Vec<_>>(),
            ["cargo", "/usr/bin/git", "rustc"]
        );
        for (machine, port, permitted) in [
            ("Models.Example", 443, true),
            ("127.0.0.1", 80, true),
            ("127.0.0.1", 81, false),
            ("[::1]", 9, true),
            ("models.example.org", 443, false),
        ] {
            assert_eq!(
                permissions.permits_net(machine, port),
                permitted,
                "{machine}:{port}"
            );
        }
        assert_eq!(permissions.env().collect::<Vec<_>>(), ["X", "Y"]);
        assert_eq!(
            permissions.read().collect::<Vec<_>>(),
            [Path::new("a"), Path::new("/b")]
        );
        assert_eq!(permissions.write().collect::<Vec<_>>(), [Path::new("c")]);
    }

    #[test]
    fn a_flag_with_an_empty_item_is_refused() {
        for value in ["", ",", "a,", ",a", "a,,b"] {
            for flag in [
                Permissions::run_flag,
                Permissions::read_flag,
                Permissions::write_flag,
                Permissions::env_flag,
                Permissions::net_flag,
            ] {
                let error = flag(Permissions::none(), value).expect_err(value);
                assert!(
                    matches!(error, PermissionsError::Empty { .. }),
                    "{value}: {error}"
                );
            }
        }
    }

    #[test]
    fn the_store_key_and_withheld_variables_are_never_permitted() {
        let permissions = Permissions::none()
            .allow_env("A")
            .allow_env("B")
            .allow_env(STORE_KEY)
            .withhold_env("B");
        for (name, permitted) in [("A", true), ("B", false), (STORE_KEY, false), ("C", false)] {
            assert_eq!(permissions.permits_env(name), permitted, "{name}");
        }
    }

    #[test]
    fn permitted_machines_determine_the_network_of_commands() {
        let named = |machines: &[&str]| {
            machines
                .iter()
                .fold(Permissions::none(), |given, name| given.allow_net(*name))
        };
        for (machines, network) in [
            (&[][..], Network::None),
            (
                &["127.0.0.1:80", "[::1]:9", "models.example:443"],
                Network::Ports(vec![80, 9, 443]),
            ),
            (&["127.0.0.1:80", "models.example"], Network::Machines),
            (&["::1"], Network::Machines),
        ] {
            assert_eq!(named(machines).network(), network, "{machines:?}");
        }
        assert_eq!(named(&["a:1"]).allow_any_net().network(), Network::Any);
        assert!(
            Permissions::none()
                .allow_any_net()
                .permits_net("anything", 1)
        );
    }

    #[test]
    fn a_program_is_a_bare_name_or_a_full_path() {
        for program in ["./cargo", "bin/cargo", "../cargo"] {
            let error = Permissions::none().run_flag(program).expect_err(program);
            assert!(error.to_string().contains(program), "{error}");
        }
    }
}
