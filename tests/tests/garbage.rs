//! Collecting garbage under a kernel that runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use dormouse::id::Pid;
use dormouse::models::Scripted;
use dormouse::ports::Purpose;
use dormouse::retention::{EndedRule, Retention};
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, KernelBuilder};
use dormouse_tests::{Gate, Requests, program, results, within};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Named {
    name: String,
}

/// Some dozens of kilobytes that are no other's, and then a wait.
fn script(name: &str) -> String {
    let log = json!({ "name": name });
    format!(
        "[[turn]]\nwhen = {{ prompt = \"{name}\", round = 0 }}\ncalls = [{{ tool = \"log\", args = {{ name = {} }} }}]\n\
         [[turn]]\nwhen = {{ prompt = \"{name}\", round = 1 }}\ncalls = [{{ tool = \"rest\", args = {{ name = {} }} }}]\n\
         [[turn]]\nwhen = {{ prompt = \"{name}\", round = 2 }}\n\
         calls = [{{ tool = \"read_fd\", args = {{ fd = \"fd:1\", start_line = 2000, end_line = 2000 }} }}]\n",
        log["name"], log["name"]
    )
}

fn builder(dir: &Path, requests: &Requests, gate: &Gate) -> KernelBuilder {
    let turns = ["first", "second", "waits", "later"].map(script).concat() + "[[turn]]\ntext = \"done\"\n";
    let log = FnTool::new("log", "Tells much.", |Named { name }: Named| async move {
        Ok::<_, String>((1..=2_500).map(|line| format!("{name} says in line {line}\n")).collect::<String>())
    });
    let gate = gate.clone();
    let rest = FnTool::new("rest", "Rests, if it is to.", move |Named { name }: Named| {
        let gate = gate.clone();
        async move {
            if name == "waits" {
                gate.pass().await;
            }
            Ok::<_, String>("rested")
        }
    });
    let store = LogStore::options().segment_bytes(40_000).open(dir).unwrap();
    let model = requests.record(Scripted::parse(&turns, "script").unwrap());
    Kernel::builder().model("m", model).tool(log).tool(rest).store(store)
}

const PROGRAM: &str = "[tools]\nenabled = [\"log\", \"rest\", \"read_fd\"]\n";

#[tokio::test]
async fn what_has_ended_is_given_up_while_others_go_on() {
    let (folder, requests, gate) = (tempfile::tempdir().unwrap(), Requests::default(), Gate::default());
    let kernel = builder(folder.path(), &requests, &gate).build().await.unwrap();
    let start = |name: &'static str| kernel.start(program(&kernel, PROGRAM)).input(name);
    let waiting = start("waits").await.unwrap();
    within(gate.entered()).await;
    for name in ["first", "second"] {
        within(start(name).await.unwrap().wait()).await.unwrap();
    }
    let nothing = within(kernel.collect_garbage(Retention::default(), Purpose::Count)).await.unwrap();
    assert!(nothing.forgotten.is_empty() && nothing.unreadable.is_empty(), "{nothing:?}");

    let retention = || Retention { ended: EndedRule::ForMs(0), ..Retention::default() };
    let foreseen = within(kernel.collect_garbage(retention(), Purpose::Count)).await.unwrap();
    assert_eq!(kernel.processes().await.unwrap().len(), 3, "to count gives nothing up");
    let garbage = within(kernel.collect_garbage(retention(), Purpose::Free)).await.unwrap();
    assert_eq!(garbage.forgotten.processes, [Pid(2), Pid(3)].into());
    assert_eq!(garbage.forgotten, foreseen.forgotten);
    assert!(garbage.swept.dropped_contents >= 1, "{garbage:?}");
    assert!(garbage.swept.bytes_after + 50_000 < garbage.swept.bytes_before, "{garbage:?}");
    let left: Vec<_> = kernel.processes().await.unwrap().into_iter().map(|info| info.row.pid).collect();
    assert_eq!(left, [waiting.pid()]);
    assert!(kernel.copy(Pid(2), None).await.is_err());

    gate.open();
    within(waiting.wait()).await.unwrap();
    let read = requests.of(1).last().map(|request| results(request, 0)).unwrap();
    assert!(read[0].0.contains("waits says in line 2000"), "{read:?}");
    within(kernel.shutdown()).await;

    let again = builder(folder.path(), &requests, &gate).build().await.unwrap();
    let left: Vec<_> = again.processes().await.unwrap().into_iter().map(|info| info.row.pid).collect();
    assert_eq!(left, [Pid(1)]);
    let later = again.start(program(&again, PROGRAM)).input("later").await.unwrap();
    assert_eq!(later.pid(), Pid(4), "a number is never given again");
    within(later.wait()).await.unwrap();
    within(again.shutdown()).await;
}

#[tokio::test]
async fn a_branch_keeps_what_it_goes_on_from_and_reads_the_contents_of_that() {
    let (folder, requests, gate) = (tempfile::tempdir().unwrap(), Requests::default(), Gate::default());
    let kernel = builder(folder.path(), &requests, &gate).build().await.unwrap();
    for name in ["first", "second"] {
        within(kernel.start(program(&kernel, PROGRAM)).input(name).await.unwrap().wait()).await.unwrap();
    }
    let facts = kernel.log(Pid(1)).await.unwrap();
    let replied: Vec<_> = facts.iter().filter(|line| line.name == "model_replied").map(|line| line.number).collect();
    let branch = within(kernel.branch(Pid(1), replied[2]).stopped().into_future()).await.unwrap();
    let retention = || Retention { ended: EndedRule::ForMs(0), ..Retention::default() };
    let garbage = within(kernel.collect_garbage(retention(), Purpose::Free)).await.unwrap();
    assert_eq!(garbage.forgotten.processes, [Pid(2)].into());
    assert!(garbage.swept.dropped_contents >= 1 && garbage.unreadable.is_empty(), "{garbage:?}");
    within(kernel.shutdown()).await;

    // What it reads lies where the other left it, or was moved from there.
    let kernel = builder(folder.path(), &requests, &gate).build().await.unwrap();
    let branch = within(kernel.resume(branch.pid())).await.unwrap();
    within(branch.cont()).await.unwrap();
    within(branch.wait()).await.unwrap();
    let read = requests.of(branch.pid().0).last().map(|request| results(request, 0)).unwrap();
    assert!(read[0].0.contains("first says in line 2000"), "{read:?}");
    let garbage = within(kernel.collect_garbage(retention(), Purpose::Free)).await.unwrap();
    assert_eq!(garbage.forgotten.processes, [Pid(1), branch.pid()].into());
    within(kernel.shutdown()).await;
}
