//! From an argument list to a program that may be started: found, permitted, with its surroundings scrubbed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use dormouse_proto::tool::Access;
use rustix::fs::access;
use tokio::process::Command;

use super::confine::Confinement;
use super::environment::Environment;
use crate::permissions::{Permissions, check_program};

/// What commands are started with: the permitted programs, the environment, the working directory.
#[derive(Debug)]
pub(crate) struct Launcher {
    granted: Vec<String>,
    environment: Environment,
    working_dir: PathBuf,
    confinement: Confinement,
}

impl Launcher {
    /// Takes the environment as it is now. `working_dir` is absolute.
    pub(crate) fn new(permissions: &Permissions, working_dir: &Path) -> io::Result<Self> {
        Self::with_environment(permissions, working_dir, Environment::new(std::env::vars_os()))
    }

    pub(super) fn with_environment(
        permissions: &Permissions,
        working_dir: &Path,
        environment: Environment,
    ) -> io::Result<Self> {
        let granted: Vec<_> = permissions.run().map(str::to_owned).collect();
        let checked = granted.iter().try_for_each(|program| check_program(program));
        checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let written = permissions.write().map(|folder| working_dir.join(folder));
        let temporary = environment.value("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        let confinement = Confinement::to(written.chain([temporary]));
        Ok(Self { granted, environment, working_dir: working_dir.to_owned(), confinement })
    }

    /// A program that can be started: no shell, a process group of its own, nothing to read, its output in pipes.
    ///
    /// # Errors
    /// A text for the model, where the program is not permitted or not found.
    pub(super) fn prepare(&self, argv: &[String], env: &[String]) -> Result<Command, String> {
        let (program, arguments) = argv.split_first().ok_or("its argv is empty: it names no program.")?;
        let mut command = Command::new(self.find(program)?);
        command.args(arguments).current_dir(&self.working_dir);
        command.env_clear().envs(self.environment.scrubbed(env));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        Ok(command)
    }

    /// Where a command of this access may write.
    pub(super) fn confinement(&self, access: Access) -> Confinement {
        self.confinement.of(access)
    }

    /// The environment that the kernel was started in, but for these variables.
    pub(super) fn environment_but(&self, names: &[String]) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.environment.but(names)
    }

    /// Where programs start.
    pub(super) fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// A variable of the environment that commands are started from.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        self.environment.value(name)
    }

    /// The program that a command names.
    ///
    /// # Errors
    /// A text for the model, where it is not permitted or not found.
    pub(crate) fn find(&self, program: &str) -> Result<PathBuf, String> {
        let found = if program.contains('/') {
            Some(self.working_dir.join(program)).filter(|path| is_program(path))
        } else {
            self.look_up(program)
        };
        let is_path = program.contains('/');
        let named = if is_path { self.working_dir.join(program) } else { PathBuf::from(program) };
        // What is permitted by its path may be told of what is there.
        if !self.permits(program, found.as_deref().or(is_path.then_some(&named))) {
            return Err(refusal(program, &named));
        }
        found.ok_or_else(|| match is_path {
            true if named.is_file() => format!("{} is no program: make it executable (chmod +x).", named.display()),
            true => format!("there is no file {}.", named.display()),
            false => format!("there is no program `{program}` that can be run on this machine (PATH was searched)."),
        })
    }

    /// Searches `PATH`, and there only absolute folders: what stands in a working directory does not become a program.
    fn look_up(&self, name: &str) -> Option<PathBuf> {
        let folders = std::env::split_paths(self.environment.path()?).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// A bare name is permitted by that name; every spelling is permitted by the full path that it leads to.
    fn permits(&self, program: &str, found: Option<&Path>) -> bool {
        let is_bare = !program.contains('/');
        self.granted.iter().any(|granted| match granted.starts_with('/') {
            true => found == Some(Path::new(granted)),
            false => is_bare && granted == program,
        })
    }
}

fn refusal(program: &str, named: &Path) -> String {
    let named = named.display();
    format!(
        "this kernel may not run `{program}`: the user has to start it with --allow-run={named}, or \
         Permissions::allow_run(\"{named}\")."
    )
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with programs in `bin/` and in itself, which is the working directory; `PATH` holds an empty and a
    /// relative part before `bin`.
    fn launcher(dir: &Path, granted: &[&str]) -> Launcher {
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        for (name, mode) in [("bin/tool", 0o755), ("bin/data", 0o644), ("here", 0o755)] {
            std::fs::write(dir.join(name), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = format!(":.:{}", dir.join("bin").display());
        let permissions = granted.iter().fold(Permissions::none(), |permissions, program| {
            permissions.allow_run(program.replace("DIR", &dir.display().to_string()))
        });
        let environment = Environment::new([("PATH".into(), path.into())]);
        Launcher::with_environment(&permissions, dir, environment).unwrap()
    }

    #[test]
    fn a_program_runs_by_the_name_or_the_path_that_is_permitted() {
        let cases = [
            (&["tool"][..], "tool", Ok("DIR/bin/tool")),
            (&["DIR/bin/tool"], "tool", Ok("DIR/bin/tool")),
            (&["DIR/bin/tool"], "DIR/bin/tool", Ok("DIR/bin/tool")),
            (&["DIR/bin/tool"], "bin/tool", Ok("DIR/bin/tool")),
            (&["DIR/here"], "./here", Ok("DIR/here")),
            (&[], "tool", Err("--allow-run=tool,")),
            (&["DIR/absent"], "./absent", Err("there is no file")),
            (&["DIR/bin/data"], "bin/data", Err("chmod +x")),
            (&[], "bin/data", Err("may not run")),
            (&["other"], "tool", Err("Permissions::allow_run(\"tool\")")),
            (&["tool"], "DIR/bin/tool", Err("--allow-run=DIR/bin/tool,")),
            (&["tool"], "bin/tool", Err("--allow-run=DIR/bin/tool,")),
            (&["DIR/bin/tool"], "bin/../here", Err("may not run")),
            (&["here"], "here", Err("no program `here`")),
            (&["data"], "data", Err("no program `data`")),
            (&["absent"], "absent", Err("no program `absent`")),
            (&["tool"], "", Err("may not run")),
        ];
        let dir = tempfile::tempdir().unwrap();
        let fill = |text: &str| text.replace("DIR", &dir.path().display().to_string());
        for (granted, program, expected) in cases {
            let found = launcher(dir.path(), granted).find(&fill(program));
            match expected {
                Ok(path) => assert_eq!(found, Ok(PathBuf::from(fill(path))), "{granted:?} {program}"),
                Err(part) => {
                    assert!(found.clone().unwrap_err().contains(&fill(part)), "{granted:?} {program}: {found:?}")
                }
            }
        }
    }

    #[test]
    fn a_relative_path_is_no_permission() {
        let permissions = Permissions::none().allow_run("bin/tool");
        let error = Launcher::new(&permissions, Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("bin/tool"), "{error}");
    }
}
