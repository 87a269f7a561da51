//! Prepares a program for its start: finds it, checks that it is permitted, chooses its
//! confinement, and builds its environment. `process_group.rs` starts it.
//!
//! If this program can be a guard (`guard.rs`), the prepared command is the guard, which confines
//! and limits the program; otherwise this process does that. A program that the user lets run
//! *unconfined* is neither confined nor limited.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use dormouse_actors::ports::HostError;
use dormouse_proto::command::CommandLimits;
use dormouse_proto::tool::Access;
use rustix::fs::access;
use tokio::process::Command;

use super::confine::{Confinement, ConfinementSupport, Folder, Writes};
use super::environment::{BASE_VARIABLES, Environment};
use super::guard::{self, GuardArguments};
use super::temp_folder::{CommandTempFolder, TempFolder};
use crate::permissions::{Permissions, check_program};
use crate::sealed::{Sealed, canonical_existing_part, links_on_the_way};

/// Prepares commands: holds the permissions, the environment and the working directory.
#[derive(Debug)]
pub(crate) struct Launcher {
    permissions: Permissions,
    environment: Environment,
    working_dir: PathBuf,
    /// The folders that commands may write, as they were when the host was created.
    writable: Vec<Folder>,
    sealed: Arc<Sealed>,
    support: ConfinementSupport,
}

/// A request to run a program.
pub(super) struct LaunchRequest<'a> {
    pub(super) argv: &'a [String],
    /// Variables of its environment in addition to the few that every command gets.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) access: Access,
    pub(super) limits: CommandLimits,
    pub(super) stdin: Stdio,
    /// The folder in which the program starts, relative to the working directory.
    pub(super) folder: Option<&'a str>,
}

/// A program that is ready to be started, without a shell or a terminal, with its output in pipes.
pub(super) struct PreparedCommand {
    pub(super) command: Command,
    pub(super) start: StartMode,
    /// The folder for temporary files of this command alone.
    pub(super) temporary: Option<CommandTempFolder>,
    /// The name of the program in messages.
    pub(super) display_name: String,
    /// The confinement and limits. A program that runs unconfined has none.
    pub(super) bounds: Option<Bounds>,
}

/// The confinement and limits of a program.
pub(super) struct Bounds {
    pub(super) confinement: Confinement,
    pub(super) limits: CommandLimits,
}

/// Which process confines, limits and ends the program.
pub(super) enum StartMode {
    /// `command` is a guard, which does all of it.
    Guarded,
    /// This process does it, with what the system supports.
    Direct(ConfinementSupport),
}

impl Launcher {
    /// Copies the environment of this process. `working_dir` is absolute.
    pub(crate) fn new(
        permissions: &Permissions,
        sealed: &Arc<Sealed>,
        working_dir: &Path,
    ) -> io::Result<Self> {
        Self::with_environment(
            permissions,
            sealed,
            working_dir,
            Environment::new(std::env::vars_os()),
        )
    }

    pub(super) fn with_environment(
        permissions: &Permissions,
        sealed: &Arc<Sealed>,
        working_dir: &Path,
        environment: Environment,
    ) -> io::Result<Self> {
        let run = permissions.run().map(|program| ("--allow-run", program));
        let unconfined = permissions
            .unconfined()
            .map(|program| ("--allow-unconfined", program));
        let check_result = run
            .chain(unconfined)
            .try_for_each(|(flag, program)| check_program(flag, program));
        check_result.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let writable = find_writable_folders(permissions, working_dir)?;
        Ok(Self {
            permissions: permissions.clone(),
            environment: environment.without_variables(permissions.withheld()),
            working_dir: working_dir.to_owned(),
            writable,
            sealed: sealed.clone(),
            support: ConfinementSupport::of_this_system()?,
        })
    }

    /// A sentence about the confinement that this system does not support. None if it supports all
    /// of it, or if no program is permitted.
    pub(crate) fn missing_confinement(&self) -> Option<String> {
        self.permissions
            .run()
            .next()
            .and_then(|_| self.support.missing_support())
    }

    /// Whether programs run unconfined since the system cannot confine them.
    pub(crate) fn runs_without_confinement(&self) -> bool {
        self.permissions.runs_without_confinement() && !self.support.is_complete()
    }

    /// Makes a program ready to be started.
    ///
    /// # Errors
    /// The program is not permitted, not found, or cannot be confined.
    pub(super) fn prepare(&self, request: LaunchRequest<'_>) -> Result<PreparedCommand, HostError> {
        let (program, arguments) = request.argv.split_first().ok_or_else(|| {
            HostError::Refused("its argv is empty: it names no program.".to_owned())
        })?;
        let found = self.find_program(program)?;
        let is_confined = !self.runs_unconfined(program, &found);
        if !is_confined {
            self.check_unconfined(&found)?;
        }
        if is_confined
            && !self.support.is_complete()
            && !self.permissions.runs_without_confinement()
        {
            let why = self.support.missing_support().unwrap_or_default();
            return Err(HostError::Refused(format!(
                "{why} The user permits it all the same with --allow-unconfined."
            )));
        }
        let temporary = match (is_confined, request.access) {
            // A program that may write nothing needs no temporary folder.
            (false, _) | (true, Access::Read) => None,
            (true, Access::Write | Access::Admin) => Some(self.new_temp_folder()?),
        };
        let bounds = is_confined.then(|| {
            let confinement = self.confinement(
                request.access,
                temporary
                    .as_ref()
                    .and_then(CommandTempFolder::created_folder),
            );
            Bounds {
                confinement,
                limits: request.limits,
            }
        });
        let (mut command, start) = match guard::is_available() {
            true => (
                self.guard_command(&found, temporary.as_ref(), bounds.as_ref()),
                StartMode::Guarded,
            ),
            false => {
                let mut command = Command::new(&found);
                command.process_group(0);
                (command, StartMode::Direct(self.support))
            }
        };
        command
            .args(arguments)
            .current_dir(self.working_dir.join(request.folder.unwrap_or_default()));
        let temp_variable = temporary
            .as_ref()
            .map(|folder| ("TMPDIR".into(), folder.path().into()));
        let base_variables = self
            .environment
            .base_variables()
            .map(|(name, value)| (name.clone(), value.clone()));
        let environment = base_variables.chain(request.env).chain(temp_variable);
        command
            .env_clear()
            .envs(environment.map(|(name, value)| match start {
                StartMode::Guarded => (guard::prefixed_name(&name), value),
                StartMode::Direct(_) => (name, value),
            }));
        command
            .stdin(request.stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let display_name = found.display().to_string();
        Ok(PreparedCommand {
            command,
            start,
            temporary,
            display_name,
            bounds,
        })
    }

    /// The command that starts the guard of a program. The arguments of the program have to follow.
    fn guard_command(
        &self,
        found: &Path,
        temporary: Option<&CommandTempFolder>,
        bounds: Option<&Bounds>,
    ) -> Command {
        let guard_arguments = GuardArguments {
            kernel: std::process::id(),
            guard: None,
            temporary: temporary.map(|folder| folder.path().to_owned()),
            limits: bounds.map(|bounds| bounds.limits),
            confinement: bounds.map(|bounds| bounds.confinement.clone()),
            support: self.support,
        };
        let (guard, arguments) = guard::command_line(&guard_arguments);
        let mut command = Command::new(guard);
        command.arg0("dormouse-guard").args(arguments).arg(found);
        command
    }

    /// The variables that a command names and that are set, with their values.
    ///
    /// # Errors
    /// One of them is set and not permitted.
    pub(super) fn permitted_variables(
        &self,
        names: &[String],
    ) -> Result<Vec<(OsString, OsString)>, HostError> {
        let mut variables = Vec::new();
        // A variable that every command gets needs no permission, and neither does an unset one.
        let needs_permission = |name: &&String| {
            !BASE_VARIABLES.contains(&name.as_str()) && self.environment.value(name).is_some()
        };
        for name in names.iter().filter(needs_permission) {
            let value = self.variable(name)?;
            variables.extend(value.map(|value| (OsString::from(name), value)));
        }
        Ok(variables)
    }

    /// A variable of the environment, if it is set. Every access to a variable goes through this
    /// function, which checks the permission.
    ///
    /// # Errors
    /// It is not permitted. The text names the flag that permits it.
    pub(crate) fn variable(&self, name: &str) -> Result<Option<OsString>, HostError> {
        if self.permissions.permits_env(name) {
            return Ok(self.environment.value(name));
        }
        Err(HostError::Refused(
            match self.permissions.withheld().any(|withheld| withheld == name) {
                true => format!("this kernel tells nobody {name}: it is a secret of its own."),
                false => format!(
                    "this kernel may not tell {name}: the user has to start it with \
                     --allow-env={name}, or Permissions::allow_env(\"{name}\")."
                ),
            },
        ))
    }

    /// The environment in which the kernel was started, without the withheld variables.
    pub(super) fn whole_environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.environment
            .all()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// The confinement of a command. If a guard creates the temporary folder, the guard adds it.
    fn confinement(&self, access: Access, temporary: Option<&Folder>) -> Confinement {
        let temporary = temporary.cloned();
        let writes = match access {
            Access::Read => Writes::Nothing,
            Access::Write | Access::Admin => {
                Writes::Below(self.writable.iter().cloned().chain(temporary).collect())
            }
        };
        Confinement {
            writes,
            network: self.permissions.network(),
            sealed: self.sealed.paths(),
        }
    }

    fn new_temp_folder(&self) -> Result<CommandTempFolder, HostError> {
        let parent = self
            .environment
            .value("TMPDIR")
            .map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let found = match guard::is_available() {
            true => CommandTempFolder::choose_name(&parent),
            false => TempFolder::create(&parent).map(CommandTempFolder::Created),
        };
        found.map_err(|error| {
            HostError::Failed(format!(
                "no folder for its temporary files can be made in {}: {error}.",
                parent.display()
            ))
        })
    }

    fn runs_unconfined(&self, program: &str, found: &Path) -> bool {
        is_listed(self.permissions.unconfined(), program, Some(found))
    }

    /// Refuses a program in a folder that commands may write, and one that a link in such a folder
    /// leads to: a command could have replaced it.
    fn check_unconfined(&self, found: &Path) -> Result<(), HostError> {
        let replaceable = [canonical_existing_part(found)]
            .into_iter()
            .chain(links_on_the_way(found))
            .find_map(|path| find_folder_above(&self.writable, &path));
        let Some(folder) = replaceable else {
            return Ok(());
        };
        Err(HostError::Refused(format!(
            "{} may not run unconfined: commands may write to it, below {}. Name a program that \
             lies elsewhere by its full path.",
            found.display(),
            folder.path.display()
        )))
    }

    /// The variables that the declaration of a server sets. An unconfined server gets only those
    /// that the user permits, since a variable can make a program run other code.
    ///
    /// # Errors
    /// One is not permitted. The text names the first.
    pub(super) fn declared_variables(
        &self,
        program: &str,
        env: Vec<(String, String)>,
    ) -> Result<Vec<(OsString, OsString)>, HostError> {
        let is_unconfined = self
            .find_program(program)
            .is_ok_and(|found| self.runs_unconfined(program, &found));
        let refused = env
            .iter()
            .find(|(name, _)| is_unconfined && !self.permissions.permits_env(name));
        if let Some((name, _)) = refused {
            return Err(HostError::Refused(format!(
                "`{program}` runs unconfined, so the program may set only the variables that the \
                 user permits: {name} needs --allow-env={name}, or \
                 Permissions::allow_env(\"{name}\")."
            )));
        }
        Ok(env
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect())
    }

    /// Finds the program that a command names.
    ///
    /// # Errors
    /// It is not permitted or not found.
    pub(crate) fn find_program(&self, program: &str) -> Result<PathBuf, HostError> {
        let found = if program.contains('/') {
            Some(self.working_dir.join(program)).filter(|path| is_program(path))
        } else {
            self.search_path(program)
        };
        let is_path = program.contains('/');
        let named = if is_path {
            self.working_dir.join(program)
        } else {
            PathBuf::from(program)
        };
        // The permission is checked first, because only for a permitted path may the error say
        // whether the file exists.
        if !self.permits_run(program, found.as_deref().or(is_path.then_some(&named))) {
            return Err(HostError::Refused(format_refusal(program, &named)));
        }
        let absent = || match is_path {
            true if named.is_file() => format!(
                "{} is no program: make it executable (chmod +x).",
                named.display()
            ),
            true => format!("there is no file {}.", named.display()),
            false => format!(
                "there is no program `{program}` that can be run on this machine \
                 (PATH was searched)."
            ),
        };
        found.ok_or_else(|| HostError::Refused(absent()))
    }

    /// Searches the absolute folders of `PATH`. Relative ones are skipped, so that a file in the
    /// working directory is never taken for a program.
    fn search_path(&self, name: &str) -> Option<PathBuf> {
        let folders =
            std::env::split_paths(self.environment.path()?).filter(|folder| folder.is_absolute());
        folders
            .map(|folder| folder.join(name))
            .find(|path| is_program(path))
    }

    /// Whether a program is permitted: a bare name if that name is permitted, any spelling if the
    /// full path of the program is permitted.
    fn permits_run(&self, program: &str, found: Option<&Path>) -> bool {
        is_listed(self.permissions.run(), program, found)
    }
}

/// The folders that commands may write. A path that leads through a symbolic link inside of such a
/// folder is refused: a command could redirect the link, and the next kernel would permit its
/// target.
fn find_writable_folders(permissions: &Permissions, working_dir: &Path) -> io::Result<Vec<Folder>> {
    let paths: Vec<PathBuf> = permissions
        .write()
        .map(|folder| working_dir.join(folder))
        .collect();
    let folders = paths
        .iter()
        .map(|path| Folder::find(path))
        .collect::<io::Result<Vec<_>>>()?;
    for link in paths.iter().flat_map(|path| links_on_the_way(path)) {
        if let Some(folder) = find_folder_above(&folders, &link) {
            let (link, folder) = (link.display(), folder.path.display());
            let why = format!(
                "--allow-write: {link} is a link that commands could replace, since it lies in \
                 {folder}. Name the folder that it leads to"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    Ok(folders)
}

/// The folder that contains a path without symbolic links.
fn find_folder_above<'f>(folders: &'f [Folder], path: &Path) -> Option<&'f Folder> {
    folders.iter().find(|folder| path.starts_with(&folder.path))
}

/// Whether a program is in a list of permitted programs.
fn is_listed<'n>(
    mut named: impl Iterator<Item = &'n str>,
    program: &str,
    found: Option<&Path>,
) -> bool {
    let is_bare = !program.contains('/');
    named.any(|named| match named.starts_with('/') {
        true => found == Some(Path::new(named)),
        false => is_bare && named == program,
    })
}

fn format_refusal(program: &str, named: &Path) -> String {
    let named = named.display();
    format!(
        "this kernel may not run `{program}`: the user has to start it with --allow-run={named}, \
         or Permissions::allow_run(\"{named}\")."
    )
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests;
