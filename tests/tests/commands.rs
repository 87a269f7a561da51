//! Command tools through the host: refused without permission, and with it as bounded as every
//! other tool.

use std::path::Path;
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::process::ExitStatus;
use dormouse::tool::Answer;
use dormouse::{Kernel, Process};
use dormouse_tests::{PATIENCE, Requests, program, results, within};

/// The tools of the tests: `sh -c` is a literal command here, and `{text}` is one argument,
/// whatever stands in it.
pub(super) const COMMANDS: &str = r#"
    [tools]
    enabled = ["read_fd", "search_fd"]
    [file_descriptor]
    max_direct_output_chars = 1000
    default_page_size = 500
    [[tools.command]]
    name = "count"
    description = "Counts."
    argv = ["seq", "{upto}"]
    parameters.upto = { type = "integer", description = "How far." }
    [[tools.command]]
    name = "say"
    description = "Says it."
    argv = ["printf", "%s", "{text}"]
    parameters.text = { type = "string", description = "What." }
    [[tools.command]]
    name = "fail"
    description = "Fails."
    argv = ["sh", "-c", "echo out; echo why >&2; exit 3"]
    [[tools.command]]
    name = "hang"
    description = "Leaves others behind."
    argv = ["sh", "-c", "sleep 1000 & echo $! >> pids; echo $$ >> pids; echo begun; wait"]
    deadline = "300ms"
    [[tools.command]]
    name = "endless"
    description = "Says y."
    argv = ["yes"]
    output_cap = "10kB"
"#;

async fn session(folder: &Path, permissions: Permissions) -> Process {
    let host = LocalHost::new(permissions, folder).unwrap();
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .host(host)
        .build()
        .await
        .unwrap();
    kernel
        .start(program(&kernel, COMMANDS))
        .without_input()
        .session()
        .await
        .unwrap()
}

async fn call(process: &Process, tool: &str, args: &str) -> Answer {
    within(process.call(tool, args)).await.unwrap()
}

#[tokio::test]
async fn without_permission_a_command_is_refused_and_the_answer_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    for permissions in [
        Permissions::none(),
        Permissions::none().allow_run("printf").allow_read("."),
    ] {
        let process = session(folder.path(), permissions).await;
        let answer = call(&process, "count", r#"{"upto": 3}"#).await;
        assert!(
            answer.is_error && answer.text.contains("--allow-run=seq"),
            "{answer:?}"
        );
    }
    // A kernel without any host says what is missing, too.
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, COMMANDS))
        .without_input()
        .session()
        .await
        .unwrap();
    let answer = call(&process, "count", r#"{"upto": 3}"#).await;
    assert!(
        answer.is_error && answer.text.contains("without a host"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_output_of_a_command_goes_straight_into_a_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        [[turn]]
        when.round = 0
        calls = [{ tool = "count", args = { upto = 200000 } }]
        [[turn]]
        when.round = 1
        calls = [{ tool = "read_fd", args = { fd = "fd:1", page = 3 } }, { tool = "search_fd", args = { fd = "fd:1", query = "199999" } }]
        [[turn]]
        text = "done"
    "#;
    let host = LocalHost::new(Permissions::none().allow_run("seq"), folder.path()).unwrap();
    let requests = Requests::default();
    let model = requests.record(Scripted::parse(script, "s").unwrap());
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host)
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, COMMANDS))
        .input("go")
        .await
        .unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    let asked = requests.all();
    let preview = results(&asked[1], 0).remove(0);
    assert!(
        !preview.1
            && preview
                .0
                .starts_with("<fd_result fd=\"fd:1\" source=\"tool:count\""),
        "{}",
        preview.0
    );
    assert!(
        preview.0.contains("total_lines=\"200000\""),
        "{}",
        preview.0
    );
    let answers = results(&asked[2], 0);
    assert!(
        answers[0].0.contains("page=\"3\"") && !answers[0].1,
        "{}",
        answers[0].0
    );
    assert!(answers[1].0.contains("199999"), "{}", answers[1].0);
    let tally = process.view().unwrap().output_totals;
    assert!(
        tally.produced_chars > 1_200_000 && tally.entered_chars < 5_000,
        "{tally:?}"
    );
}

#[tokio::test]
async fn an_argument_is_one_argument_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let process = session(
        folder.path(),
        Permissions::none().allow_run("printf").allow_run("seq"),
    )
    .await;
    for text in [
        "a b; touch hacked",
        "$(touch hacked)",
        "`id`",
        "'\"\n",
        "é <x> &",
    ] {
        let args = serde_json::json!({ "text": text }).to_string();
        assert_eq!(call(&process, "say", &args).await, Answer::shown(text));
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing was run by a shell"
    );
    for (args, part) in [
        ("{}", "upto"),
        (r#"{"upto": "x"}"#, "upto"),
        (r#"{"upto": 1, "more": 2}"#, "more"),
        ("[]", "object"),
        ("{", "JSON"),
    ] {
        let answer = call(&process, "count", args).await;
        assert!(
            answer.is_error && answer.text.contains(part),
            "{args}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_failure_tells_its_exit_code_and_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let process = session(
        folder.path(),
        Permissions::none().allow_run("sh").allow_write("."),
    )
    .await;
    let answer = call(&process, "fail", "{}").await;
    assert!(answer.is_error, "{answer:?}");
    for part in ["out", "exited with code 3", "why"] {
        assert!(answer.text.contains(part), "{part}: {answer:?}");
    }
}

#[tokio::test]
async fn output_beyond_the_cap_ends_the_command_and_its_beginning_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let process = session(folder.path(), Permissions::none().allow_run("yes")).await;
    let answer = call(&process, "endless", "{}").await;
    // 10 kB of it became a descriptor.
    assert!(
        answer.is_error && answer.text.starts_with("<fd_result fd=\"fd:1\""),
        "{answer:?}"
    );
    let whole = call(&process, "read_fd", r#"{"fd": "fd:1", "read_all": true}"#).await;
    assert!(
        whole.text.contains("10000 bytes") && whole.text.len() < 12_000,
        "{}",
        whole.text.len()
    );
}

/// Whether a process of the system is there: not gone, and not only waiting to be collected.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

pub(super) async fn gone(pids: &[String]) {
    // The system tells nobody but a parent of an end: it is looked for.
    let all_gone = async {
        while pids.iter().any(|pid| is_alive(pid)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_gone)
        .await
        .unwrap_or_else(|_| panic!("{pids:?} outlive their call"));
}

pub(super) fn pids(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("pids")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_deadline_ends_the_command_and_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let process = session(
        folder.path(),
        Permissions::none().allow_run("sh").allow_write("."),
    )
    .await;
    let answer = call(&process, "hang", "{}").await;
    assert!(
        answer.is_error && answer.text.contains("300 ms") && answer.text.contains("begun"),
        "{answer:?}"
    );
    let pids = pids(folder.path());
    assert_eq!(pids.len(), 2);
    gone(&pids).await;
}

#[tokio::test]
async fn a_kill_of_the_process_ends_its_command_and_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let text = COMMANDS.replace("deadline = \"300ms\"", "deadline = \"1h\"");
    let host = LocalHost::new(
        Permissions::none().allow_run("sh").allow_write("."),
        folder.path(),
    )
    .unwrap();
    let script = "[[turn]]\ncalls = [{ tool = \"hang\" }]\n";
    let model = Scripted::parse(script, "s").unwrap();
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host)
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, &text))
        .input("go")
        .await
        .unwrap();
    let begun = async {
        while pids(folder.path()).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(begun).await;
    within(process.kill()).await.unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Killed
    );
    gone(&pids(folder.path())).await;
}
