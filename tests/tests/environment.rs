//! `[env_info]`: what a process is told of the machine, as far as the user permits, once.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse::command::Command;
use dormouse::file::{FileError, FileWrite};
use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::ports::{Host, NoHost, OutputSink, Tool, ToolError};
use dormouse::process::ExitStatus;
use dormouse::store::LogStore;
use dormouse::tool::{ToolPolicy, ToolSpec};
use dormouse::{Kernel, KernelBuilder};
use dormouse_tests::{Gate, Requests, program, turn, within};
use futures_util::future::{BoxFuture, FutureExt};

const SPAWNS: &str = r#"
    [[turn]]
    when.round = 0
    when.program = "main"
    calls = [{ tool = "spawn", args = { program_name = "child", query = "look" } }]
    [[turn]]
    text = "done"
"#;

fn kernel(
    requests: &Requests,
    script: &str,
    permissions: Permissions,
    folder: &Path,
) -> KernelBuilder {
    let model = requests.record(Scripted::parse(script, "script").unwrap());
    Kernel::builder()
        .model("m", model)
        .host(LocalHost::new(permissions, folder).unwrap())
}

/// The system prompt of a process of this program.
async fn told(rest: &str, permissions: Permissions) -> String {
    let (requests, folder) = (Requests::default(), tempfile::tempdir().unwrap());
    let kernel = kernel(
        &requests,
        "[[turn]]\ntext = \"done\"\n",
        permissions,
        folder.path(),
    )
    .build()
    .await
    .unwrap();
    let process = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    requests.of(1)[0].system.to_string()
}

#[tokio::test]
async fn what_is_permitted_is_told_and_the_rest_says_what_permits_it() {
    let rest = "[prompt]\nsystem = \"S.\"\n[env_info]\nteam = \"red\"\nenv_vars = { way = \
         \"PATH\", none = \"NO_SUCH_VARIABLE\" }\ncommands = [\"printf 'a <b>'\", [\"sh\", \"-c\", \
         \"echo out; echo why >&2; exit 3\"], \"ls | wc\"]\n";
    let system = told(rest, Permissions::none()).await;
    for part in [
        "team: red",
        "way: not known",
        "--allow-env=PATH",
        "--allow-run=printf",
        "--allow-run=sh",
        "a shell",
    ] {
        assert!(system.contains(part), "{part}: {system}");
    }
    let path = std::env::var("PATH").unwrap();
    assert!(!system.contains(&path), "{system}");
    let permitted = Permissions::none()
        .allow_env("PATH")
        .allow_env("NO_SUCH_VARIABLE")
        .allow_run("printf")
        .allow_run("sh");
    let system = told(rest, permitted).await;
    let expected = format!(
        "S.\n\n<env_info><![CDATA[team: red\nway: {path}\n> printf 'a <b>'\na <b>\n> sh -c"
    );
    assert!(system.starts_with(&expected), "{system}\n{expected}");
    for part in ["out\n", "exited with code 3", "why"] {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert!(!system.contains("none:"), "{system}");
}

#[tokio::test]
async fn a_command_without_end_fills_no_prompt() {
    let rest = "[env_info]\ncommands = [\"seq 100000\", \"yes\"]\n";
    let system = told(rest, Permissions::none().allow_run("seq").allow_run("yes")).await;
    assert!(
        system.len() < 12_000 && system.contains("more bytes"),
        "{} bytes: {system}",
        system.len()
    );
}

/// A folder with a program that links another, which counts how often it was told something.
fn folder_of_two() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let count = "[env_info]\ncommands = [[\"sh\", \"-c\", \"echo x >> count; cat count\"]]\n";
    let main = format!(
        "{model}[tools]\nenabled = [\"spawn\"]\n[linked_programs]\nchild = \"child.toml\"\n{count}"
    );
    std::fs::write(folder.path().join("main.toml"), main).unwrap();
    std::fs::write(folder.path().join("child.toml"), format!("{model}{count}")).unwrap();
    folder
}

#[tokio::test]
async fn a_spawned_process_is_told_at_its_own_birth() {
    let (requests, folder) = (Requests::default(), folder_of_two());
    let permissions = Permissions::none()
        .allow_run("sh")
        .allow_read(folder.path())
        .allow_write(folder.path());
    let kernel = kernel(&requests, SPAWNS, permissions, folder.path())
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let process = kernel.start(main).input("go").await.unwrap();
    assert_eq!(&*within(process.wait()).await.unwrap().message, "done");
    let lines = |pid| {
        requests.of(pid)[0]
            .system
            .lines()
            .filter(|line| line.starts_with('x'))
            .count()
    };
    assert_eq!(
        (lines(1), lines(2)),
        (1, 2),
        "{} {}",
        requests.of(1)[0].system,
        requests.of(2)[0].system
    );
}

#[tokio::test]
async fn what_was_told_stays_when_a_process_comes_back() {
    let (requests, folder) = (Requests::default(), folder_of_two());
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let permissions = Permissions::none()
            .allow_run("sh")
            .allow_read(folder.path())
            .allow_write(folder.path());
        kernel(
            &requests,
            "[[turn]]\ntext = \"done\"\n",
            permissions,
            folder.path(),
        )
        .store(LogStore::open(place.path()).unwrap())
    };
    let first = open().build().await.unwrap();
    let main = first.load(folder.path().join("main.toml")).unwrap().program;
    let process = first.start(main).without_input().session().await.unwrap();
    let pid = process.pid();
    turn(&process, "one").await;
    drop(process);
    within(first.shutdown()).await.unwrap();
    let second = open().build().await.unwrap();
    let process = second.resume(pid).await.unwrap();
    turn(&process, "two").await;
    let systems: Vec<_> = requests
        .all()
        .into_iter()
        .map(|request| request.system.to_string())
        .collect();
    assert_eq!(systems.len(), 2);
    assert_eq!(systems[0], systems[1]);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("count")).unwrap(),
        "x\n"
    );
}

/// A host whose commands stand at a gate.
struct Gated {
    gate: Gate,
    files: LocalHost,
}

impl Host for Gated {
    fn command(&self, _command: &Command) -> Arc<dyn Tool> {
        Arc::new(Standing(self.gate.clone()))
    }

    fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
        NoHost.write(write)
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        self.files.read(path)
    }
}

struct Standing(Gate);

impl Tool for Standing {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "standing".into(),
            description: "".into(),
            schema: "{}".into(),
        }
    }

    fn policy(&self) -> ToolPolicy {
        ToolPolicy::default()
    }

    fn call(&self, _args: String, _out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let gate = self.0.clone();
        async move {
            gate.pass().await;
            Ok(())
        }
        .boxed()
    }
}

#[tokio::test]
async fn no_child_comes_of_a_call_that_was_given_up_while_it_is_told() {
    let (requests, folder, gate) = (Requests::default(), folder_of_two(), Gate::default());
    std::fs::write(
        folder.path().join("main.toml"),
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = \
         [\"spawn\"]\n[linked_programs]\nchild = \"child.toml\"\n",
    )
    .unwrap();
    let files =
        LocalHost::new(Permissions::none().allow_read(folder.path()), folder.path()).unwrap();
    let model = requests.record(Scripted::parse(SPAWNS, "script").unwrap());
    let builder = Kernel::builder().model("m", model).host(Gated {
        gate: gate.clone(),
        files,
    });
    let kernel = builder.build().await.unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let process = kernel.start(main).input("go").await.unwrap();
    gate.entered().await;
    process.kill().await.unwrap();
    within(process.wait()).await.unwrap();
    gate.open();
    assert_eq!(kernel.processes().await.unwrap().len(), 1);
    assert!(requests.of(2).is_empty());
}

#[tokio::test]
async fn parameters_are_described_as_the_program_says() {
    let (requests, folder) = (Requests::default(), tempfile::tempdir().unwrap());
    let script = "[[turn]]\ntext = \"done\"\n";
    let kernel = kernel(&requests, script, Permissions::none(), folder.path())
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [{ name = \"read_fd\", alias = \"r\", param_descriptions = { fd \
         = \"Which one.\" } }, { name = \"x\", param_descriptions = { a = \"Mine.\" } \
         }]\n[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\", \
         \"{a}\"]\nparameters.a = { type = \"string\" }\n";
    let process = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    within(process.wait()).await.unwrap();
    let tools = requests.of(1)[0].tools.clone();
    let schema = |at: usize| serde_json::from_str::<serde_json::Value>(&tools[at].schema).unwrap();
    assert_eq!(schema(0)["properties"]["fd"]["description"], "Which one.");
    assert_eq!(schema(1)["properties"]["a"]["description"], "Mine.");
}
