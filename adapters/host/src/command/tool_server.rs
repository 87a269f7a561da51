//! Starts a tool server that is a program of this machine. `launcher.rs` checks the permission and
//! prepares it, `process_group.rs` starts it: it is permitted, confined and guarded like a command
//! with write access (CONFINE-2), and ended with everything that it started when its connection is
//! closed (GROUP-1).

use std::process::Stdio;

use dormouse_actors::ports::{HostError, ServerChild};
use dormouse_proto::server::ServerCommand;
use dormouse_proto::tool::Access;

use super::launcher::{LaunchRequest, Launcher};
use super::process_group::{ProcessGroup, StartedCommand};
use crate::permissions::ServerEnvironment;

/// Starts the server with these arguments. `env` holds the variables that the program declares for
/// it, with their values.
///
/// # Errors
/// The server is not permitted, not found, cannot be confined or started.
pub(crate) fn start_server(
    launcher: &Launcher,
    (server, arguments): (&ServerCommand, Vec<String>),
    environment: ServerEnvironment,
    env: Vec<(String, String)>,
) -> Result<ServerChild, HostError> {
    let argv: Vec<String> = std::iter::once(server.program.clone())
        .chain(arguments)
        .collect();
    let env = match environment {
        ServerEnvironment::Declared => launcher.declared_variables(&server.program, env)?,
        // The user named the server and its variables.
        ServerEnvironment::All => {
            let declared = env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()));
            launcher.whole_environment().chain(declared).collect()
        }
    };
    let prepared = launcher.prepare(LaunchRequest {
        argv: &argv,
        env,
        access: Access::Write,
        limits: server.limits,
        stdin: Stdio::piped(),
        folder: server.cwd.as_deref(),
    });
    let prepared = prepared?;
    let start_error = |error| {
        HostError::Failed(format!(
            "`{}` could not be started: {error}.",
            server.program
        ))
    };
    let StartedCommand {
        mut group,
        stdout,
        stderr,
    } = ProcessGroup::start(prepared).map_err(start_error)?;
    let stdin = group.stdin().expect("a server's input is piped");
    Ok(ServerChild {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        process_guard: Box::new(group),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dormouse_actors::ports::Host;
    use dormouse_proto::command::CommandLimits;
    use dormouse_proto::server::ServerValue;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::{LocalHost, Permissions};

    fn sh(script: &str) -> ServerCommand {
        ServerCommand {
            program: "sh".into(),
            args: ["-c", script].map(ServerValue::argument).into(),
            env: Vec::new(),
            env_file: None,
            cwd: None,
            limits: CommandLimits::default(),
        }
    }

    fn host(folder: &Path) -> LocalHost {
        LocalHost::new(
            Permissions::none().allow_run("sh").allow_env("PATH"),
            folder,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_server_gets_the_variables_of_its_file_and_of_editors_in_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join(".env"),
            "FILE=of the file\nOURS=hidden\n",
        )
        .unwrap();
        let mut command = sh("echo \"$FILE, $OURS, ${1}\"");
        command.args.push(ServerValue::argument("sh"));
        command.args.push(ServerValue::argument("${env:PATH}"));
        command.env.push(("OURS".into(), ServerValue::new("ours")));
        command.env_file = Some(".env".into());
        let unread = host(folder.path()).start_server(&command);
        let refusal = unread.map(drop).unwrap_err().to_string();
        assert!(
            refusal.contains("the env_file `.env` cannot be read"),
            "{refusal}"
        );
        let permissions = Permissions::none().allow_run("sh").allow_env("PATH");
        let host = LocalHost::new(permissions.allow_read("."), folder.path()).unwrap();
        let child = host.start_server(&command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout)
            .read_line(&mut line)
            .await
            .unwrap();
        let path = std::env::var("PATH").unwrap();
        assert_eq!(line.trim_end(), format!("of the file, ours, {path}"));
    }

    #[tokio::test]
    async fn a_file_of_variables_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let permissions = Permissions::none().allow_run("sh").allow_read(".");
        let host = LocalHost::new(permissions, folder.path()).unwrap();
        let mut command = sh("true");
        command.env_file = Some(".env".into());
        for (bytes, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
            let text = format!("A=1\n#{}\n", "x".repeat(bytes - 6));
            assert_eq!(text.len(), bytes);
            std::fs::write(folder.path().join(".env"), text).unwrap();
            let started = host.start_server(&command).map(drop);
            assert_eq!(started.is_ok(), fits, "{bytes}: {started:?}");
            if let Err(error) = started {
                assert!(error.to_string().contains("is too long"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn a_server_gets_the_pipes_environment_and_folder_of_its_declaration() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let mut command =
            sh("read said; echo \"$said $OURS $CARGO_MANIFEST_DIR $(pwd)\"; echo why >&2");
        command
            .env
            .push(("OURS".into(), ServerValue::new("a${PATH:-}z")));
        command.cwd = Some("below".into());
        let mut child = host(folder.path()).start_server(&command).unwrap();
        child.stdin.write_all(b"hello\n").await.unwrap();
        let (mut out, mut errors) = (String::new(), String::new());
        child.stdout.read_to_string(&mut out).await.unwrap();
        child.stderr.read_to_string(&mut errors).await.unwrap();
        let path = std::env::var("PATH").unwrap();
        let below = std::fs::canonicalize(folder.path().join("below")).unwrap();
        assert_eq!(out, format!("hello a{path}z  {}\n", below.display()));
        assert_eq!(errors, "why\n");
    }

    #[tokio::test]
    async fn a_server_gets_the_whole_environment_if_the_user_permits_it() {
        let all = Permissions::none().server_environment(ServerEnvironment::All);
        for (permissions, expected) in [
            (Permissions::none(), ""),
            (all.clone(), "set"),
            (all.withhold_env("CARGO_MANIFEST_DIR"), ""),
        ] {
            let permissions = permissions.allow_run("sh");
            let host = LocalHost::new(permissions, ".").unwrap();
            let mut child = host
                .start_server(&sh("echo ${CARGO_MANIFEST_DIR:+set}"))
                .unwrap();
            let mut out = String::new();
            child.stdout.read_to_string(&mut out).await.unwrap();
            assert_eq!(out.trim(), expected);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_permitted_is_not_started() {
        let host = LocalHost::new(Permissions::none(), ".").unwrap();
        let refused = host.start_server(&sh("true")).err().unwrap();
        assert!(matches!(refused, HostError::Refused(_)), "{refused:?}");
        let refused = refused.to_string();
        assert!(refused.contains("--allow-run=sh"), "{refused}");
        let mut command = sh("true");
        command
            .env
            .push(("KEY".into(), ServerValue::new("${SOME_KEY}")));
        let refused = self::host(Path::new("."))
            .start_server(&command)
            .err()
            .unwrap()
            .to_string();
        assert!(refused.contains("--allow-env=SOME_KEY"), "{refused}");
    }

    #[tokio::test]
    async fn a_server_is_confined_unless_the_user_permits_otherwise() {
        let (dir, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in ["mine", "store", "yours"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("store/HEAD"), "secret").unwrap();
        let script = format!(
            "echo x > mine/f && echo wrote mine; echo x > $TMPDIR/f && echo wrote temporary; echo \
             x > yours/f && echo wrote yours; echo x > '{}'/f && echo wrote shared; cat \
             store/HEAD; python3 -c 'import socket; socket.socket()' && echo has sockets",
            shared.path().display()
        );
        let given = Permissions::none()
            .allow_run("sh")
            .allow_write("mine")
            .seal("store");
        let everything =
            "wrote mine\nwrote temporary\nwrote yours\nwrote shared\nsecrethas sockets\n";
        for (permissions, expected) in [
            (given.clone(), "wrote mine\nwrote temporary\n"),
            (given.allow_unconfined("sh"), everything),
        ] {
            let host = LocalHost::new(permissions.allow_env("TMPDIR"), dir.path()).unwrap();
            let mut command = sh(&script);
            if expected == everything {
                command.env.push((
                    "TMPDIR".into(),
                    ServerValue::new(dir.path().display().to_string()),
                ));
            }
            let mut child = host.start_server(&command).unwrap();
            let mut out = String::new();
            child.stdout.read_to_string(&mut out).await.unwrap();
            assert_eq!(out, expected);
        }
    }

    /// An unconfined server gets only the variables that the user permits, and a program file that
    /// commands may write to does not run unconfined.
    #[tokio::test]
    async fn only_programs_that_the_user_named_run_unconfined() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::fs::copy("/bin/sh", dir.path().join("bin/planted")).unwrap();
        let planted = dir
            .path()
            .canonicalize()
            .unwrap()
            .join("bin/planted")
            .display()
            .to_string();
        let permissions = Permissions::none()
            .allow_run("sh")
            .allow_run(&planted)
            .allow_unconfined("sh")
            .allow_unconfined(&planted);
        let host = LocalHost::new(
            permissions.allow_env("LEVEL").allow_write("bin"),
            dir.path(),
        )
        .unwrap();
        for (program, variable, refused) in [
            ("sh", "LD_PRELOAD", Some("--allow-env=LD_PRELOAD")),
            ("sh", "LEVEL", None),
            (&*planted, "LEVEL", Some("commands may write to it")),
        ] {
            let mut command = sh("true");
            command.program = program.to_owned();
            command.env.push((variable.into(), ServerValue::new("x")));
            let error = host.start_server(&command).err();
            assert_eq!(
                error.is_some(),
                refused.is_some(),
                "{program} {variable}: {error:?}"
            );
            assert!(
                error.is_none_or(|error| error.to_string().contains(refused.unwrap())),
                "{program} {variable}"
            );
        }
    }

    #[tokio::test]
    async fn no_process_of_a_server_outlives_its_connection() {
        let folder = tempfile::tempdir().unwrap();
        // The process `sleep` holds the pipe open, so a closed pipe shows that `sleep` has ended.
        let child = host(folder.path())
            .start_server(&sh("sleep 1000 & echo here; wait"))
            .unwrap();
        let mut lines = BufReader::new(child.stdout).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("here"));
        drop(child.process_guard);
        assert_eq!(lines.next_line().await.unwrap(), None);
    }
}
