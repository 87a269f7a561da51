//! Races between speculative branches (SPEC-1) in whole kernels: only the winner's write is done,
//! also when the kernel ends in the middle; budgets, rules and judges.

mod options;

use std::future::IntoFuture;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::message::Block;
use dormouse::model::{Reply, Request, Usage};
use dormouse::ports::{Model, Tool};
use dormouse::process::ExitStatus;
use dormouse::program::ValueSchema;
use dormouse::record::{HoldReason, Speculation};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{
    Budget, Candidate, FnTool, JudgeError, Judgement, Kernel, KernelBuilder, KernelError,
    LossReason, Process, RaceError, RacePolicy, RaceResult, Recovery,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, says, within};
use serde_json::{Value, json};

const WRITE: &str = "[tools]\nenabled = [\"append\", \"write_temp_file\"]\n";

/// What was written, in order.
type Written = Arc<Mutex<Vec<String>>>;

fn written(written: &Written) -> Vec<String> {
    written.lock().unwrap().clone()
}

/// Appends a line to a file that all branches share.
fn append(written: &Written) -> impl Tool + use<> {
    let written = written.clone();
    let run = move |args: Value| {
        let line = args["line"].as_str().unwrap_or_default().to_owned();
        written.lock().unwrap().push(line.clone());
        async move { Ok::<_, String>(format!("appended {line}")) }
    };
    FnTool::new("append", "Appends a line.", run)
}

/// What the last message says: the text of the user, or the answer of a tool.
fn last(request: &Request) -> (String, bool) {
    let blocks = request.messages.last().unwrap().blocks.iter();
    let text = blocks.filter_map(|block| match block {
        Block::ToolResult { text, .. } => Some((text.to_string(), true)),
        Block::Text { text, .. } => Some((text.to_string(), false)),
        _ => None,
    });
    text.last().unwrap_or_default()
}

/// `append X` calls the tool, `fail` ends in a failure of the model, `note X` writes a temporary
/// file before it appends, and everything else is said back.
fn does(request: &Request) -> Reply {
    let (text, is_answer) = last(request);
    let reply = match text.split_once(' ') {
        Some(("append", line)) => asks(&[("append", &json!({ "line": line }).to_string())]),
        Some(("note", line)) if !is_answer => {
            asks(&[("write_temp_file", &json!({ "content": line }).to_string())])
        }
        _ if is_answer && text.contains("temp_file") => {
            asks(&[("append", &json!({ "line": "noted" }).to_string())])
        }
        _ => says(&text),
    };
    Reply {
        usage: Usage {
            input_tokens: 10,
            output_tokens: 10,
            ..Usage::default()
        },
        ..reply
    }
}

fn model() -> impl Model {
    FnModel(|request: Request| async move { Ok(does(&request)) })
}

fn open(folder: &Path, written: &Written) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
        .model("m", model())
        .tool(append(written))
}

struct World {
    folder: tempfile::TempDir,
    written: Written,
    kernel: Kernel,
}

impl World {
    async fn new() -> Self {
        let (folder, written) = (tempfile::tempdir().unwrap(), Written::default());
        let kernel = open(folder.path(), &written).build().await.unwrap();
        Self {
            folder,
            written,
            kernel,
        }
    }

    /// A session that has had one turn.
    async fn session(&self, rest: &str) -> Process {
        let start = self.kernel.start(program(&self.kernel, rest)).session();
        let session = start.without_input().await.unwrap();
        within(session.turn("hello")).await.unwrap();
        session
    }
}

/// The inputs `append 1`, `append 2` ….
fn appends(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("append {n}")).collect()
}

/// Passes the branches whose call appends this line.
fn wants(
    line: &'static str,
) -> impl Fn(Candidate) -> std::future::Ready<Result<Judgement, JudgeError>> + Send + Sync + 'static
{
    move |candidate| {
        let is_wanted = candidate
            .calls
            .iter()
            .any(|call| call.args.contains(&format!("\"{line}\"")));
        std::future::ready(Ok(match is_wanted {
            true => Judgement::PASS,
            false => Judgement::FAIL,
        }))
    }
}

fn none_passed(result: Result<RaceResult, KernelError>) -> Vec<LossReason> {
    match result {
        Err(KernelError::Race(RaceError::NonePassed { losers })) => {
            losers.into_iter().map(|loser| loser.reason).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn living(kernel: &Kernel) -> Vec<Pid> {
    let processes = kernel.processes().await.unwrap();
    let living = processes.iter().filter(|info| info.row.exit.is_none());
    living.map(|info| info.row.pid).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_branches_want_to_write_and_only_the_winner_does() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let race = world.kernel.race(session.pid(), dormouse::Position::Now, 8);
    let race = race.inputs(appends(8)).judge(wants("5"));
    let result = within(race.policy(RacePolicy::BestOf).into_future())
        .await
        .unwrap();
    assert_eq!(result.candidate.branch, 5);
    let view = within(result.winner.wait_for(|view| view.is_idle())).await;
    assert_eq!(view.unwrap().speculation, Speculation::None);
    assert_eq!(written(&world.written), ["5"]);
    assert_eq!(result.losers.len(), 7);
    for loser in &result.losers {
        assert!(loser.effects.is_empty(), "{loser:?}");
        let candidate = loser.candidate.as_ref().unwrap();
        assert_eq!(&*candidate.calls[0].tool, "append");
        assert_eq!(candidate.calls[0].reason, HoldReason::Speculation);
        assert!(candidate.end.is_none());
        assert!(matches!(loser.reason, LossReason::NotPassed(_)));
    }
    assert_eq!(
        living(&world.kernel).await,
        [session.pid(), result.winner.pid()]
    );
    assert_eq!(
        world.kernel.checkpoints().await.unwrap(),
        [],
        "none is left"
    );
    // The winner is a process like any other.
    within(result.winner.turn("append 9")).await.unwrap();
    assert_eq!(written(&world.written), ["5", "9"]);
    let effects = world.kernel.effects(result.winner.pid(), None).await;
    assert_eq!(effects.unwrap().effects.len(), 2);
}

/// The first one that passes wins, and branches that still think are not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_branch_that_passes_wins_and_all_begin_with_the_same_bytes() {
    let (folder, written_lines) = (tempfile::tempdir().unwrap(), Written::default());
    let requests = Requests::default();
    let slow = FnModel(|request: Request| async move {
        if last(&request).0 == "never" {
            std::future::pending::<()>().await;
        }
        Ok(does(&request))
    });
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", requests.record(slow))
        .tool(append(&written_lines))
        .build()
        .await
        .unwrap();
    let start = kernel.start(program(&kernel, WRITE)).session();
    let session = start.without_input().await.unwrap();
    within(session.turn("hello")).await.unwrap();
    let before = requests.all().len();
    let race = kernel.race(session.pid(), dormouse::Position::Now, 3);
    let race = race
        .inputs(["never", "append a", "never"])
        .replace_original();
    let result = within(race.into_future()).await.unwrap();
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&written_lines), ["a"]);
    let reasons = result.losers.iter().map(|loser| &loser.reason);
    assert!(
        reasons
            .clone()
            .all(|reason| matches!(reason, LossReason::Overtaken))
    );
    assert_eq!(living(&kernel).await, [result.winner.pid()], "in its place");
    check_histories(&requests);
    let first = &requests.all()[before..][..3];
    for request in first {
        assert_eq!(request.messages[..2], first[0].messages[..2]);
        assert_eq!(
            (&request.system, &request.tools),
            (&first[0].system, &first[0].tools)
        );
    }
}

/// A task that is done waits for the choice, and ends with it; its result is what the schema sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_judges_results_messages_and_arguments() {
    let world = World::new().await;
    let schema = |schema| ValueSchema::parse(schema).unwrap();
    let number = schema(json!({ "type": "integer", "minimum": 3 }));
    let start = world.kernel.start(program(&world.kernel, WRITE));
    let task = within(start.input("hello").into_future()).await.unwrap();
    let at = FactNumber(0);
    within(task.wait()).await.unwrap();
    // Each branch continues before the first call of the model, with a further input.
    let race = world.kernel.race(task.pid(), at, 3).inputs(["1", "x", "7"]);
    let race = race.judge_schema(number.clone()).policy(RacePolicy::BestOf);
    let result = within(race.into_future()).await.unwrap();
    assert_eq!(
        (&*result.candidate.message, result.candidate.branch),
        ("7", 3)
    );
    let exit = within(result.winner.wait()).await.unwrap();
    assert_eq!((&*exit.message, exit.status), ("7", ExitStatus::Done));
    let reasons: Vec<_> = result
        .losers
        .iter()
        .map(|loser| loser.reason.to_string())
        .collect();
    assert!(
        reasons[0].contains("minimum") || reasons[0].contains("3"),
        "{reasons:?}"
    );
    assert!(reasons[1].contains("not JSON"), "{reasons:?}");

    let line = json!({ "properties": { "line": { "const": "2" } }, "required": ["line"] });
    let race = world.kernel.race(task.pid(), at, 2).inputs(appends(2));
    let race = race.judge_schema(schema(json!({
        "type": "object", "properties": line["properties"], "required": line["required"],
    })));
    let result = within(race.into_future()).await.unwrap();
    within(result.winner.wait()).await.unwrap();
    assert_eq!(written(&world.written), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_passes_and_each_branch_says_why() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let race = |count| {
        world
            .kernel
            .race(session.pid(), dormouse::Position::Now, count)
    };
    let failing = race(1)
        .inputs(appends(1))
        .judge(|_| async { Err("no".to_owned().into()) });
    let panicking = race(1)
        .inputs(appends(1))
        .judge(|_| async { panic!("odd") });
    let slow = race(1)
        .inputs(appends(1))
        .judge(|_| std::future::pending())
        .judge_limit(Duration::from_millis(20));
    let refusing = race(2).inputs(appends(2)).judge(wants("none"));
    let reasons = none_passed(within(failing.into_future()).await);
    assert!(
        matches!(&reasons[..], [LossReason::NotJudged(JudgeError::Failed(why))] if why == "no")
    );
    let reasons = none_passed(within(panicking.into_future()).await);
    assert!(matches!(
        &reasons[..],
        [LossReason::NotJudged(JudgeError::Panicked(_))]
    ));
    let reasons = none_passed(within(slow.into_future()).await);
    assert!(matches!(
        &reasons[..],
        [LossReason::NotJudged(JudgeError::TimedOut(_))]
    ));
    let error = within(refusing.into_future())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("none of 2 branches passed: process "),
        "{error}"
    );
    assert_eq!(written(&world.written), [""; 0]);
    assert_eq!(living(&world.kernel).await, [session.pid()]);

    let none = within(race(0).into_future()).await.unwrap_err();
    assert!(matches!(
        none,
        KernelError::Race(RaceError::Branches { .. })
    ));
    let command = within(race(2).judge_command(["true"]).into_future()).await;
    assert!(
        matches!(command, Err(KernelError::Race(RaceError::Judge(_)))),
        "there is no host"
    );
    let program = program(&world.kernel, "");
    let no_schema = within(race(2).judge_program(program).into_future()).await;
    assert!(
        no_schema
            .unwrap_err()
            .to_string()
            .contains("[result] schema")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_branch_has_a_budget_of_its_own() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let used = session.view().unwrap().usage.output_tokens;
    assert_eq!(used, 10);
    // A note takes two calls of the model before the write, and each reply costs ten tokens.
    let budget = |output_tokens| Budget {
        output_tokens: Some(output_tokens),
        ..Budget::default()
    };
    let race = |tokens| {
        let race = world.kernel.race(session.pid(), dormouse::Position::Now, 2);
        race.inputs(["note x", "note y"]).budget(budget(tokens))
    };
    let reasons = none_passed(within(race(10).into_future()).await);
    for reason in reasons {
        let LossReason::Ended(exit) = reason else {
            panic!("{reason:?}")
        };
        assert_eq!(exit.status, ExitStatus::BudgetExhausted);
    }
    let result = within(race(1_000).into_future()).await.unwrap();
    assert_eq!(
        &*result.candidate.calls[0].tool, "append",
        "the file is its own"
    );
    let view = within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(view.budget.limits().output_tokens, Some(1_010));
    assert_eq!(written(&world.written), ["noted"]);
}

/// What a person has to approve is approved by a person, also if the judge passed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_pauses_at_its_budget_has_lost() {
    let world = World::new().await;
    let session = world
        .session(&format!("{WRITE}[budget]\nat_limit = \"pause\"\n"))
        .await;
    let budget = Budget {
        output_tokens: Some(5),
        ..Budget::default()
    };
    // The first reply takes a branch over its limit, so its second call of the model is not made.
    let race = world.kernel.race(session.pid(), dormouse::Position::Now, 2);
    let race = race.inputs(["note a", "note b"]).budget(budget);
    let reasons = none_passed(within(race.into_future()).await);
    assert_eq!(reasons.len(), 2);
    assert!(
        reasons
            .iter()
            .all(|reason| matches!(reason, LossReason::Paused(Some(_)))),
        "{reasons:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_of_the_program_hold_for_the_winner() {
    let world = World::new().await;
    let session = world.session(&format!("{WRITE}ask = [\"append\"]\n")).await;
    let race = world.kernel.race(session.pid(), dormouse::Position::Now, 2);
    let race = race.inputs(appends(2)).judge(wants("2"));
    let result = within(race.into_future()).await.unwrap();
    within(result.winner.wait_for(|view| view.rests))
        .await
        .unwrap();
    let pending = world.kernel.pending().await.unwrap().calls;
    let [call] = &pending[..] else {
        panic!("{pending:?}")
    };
    assert!(matches!(call.reason, HoldReason::Rule { .. }));
    assert_eq!(call.id.pid, result.winner.pid());
    assert!(written(&world.written).is_empty());
    within(world.kernel.approve(call.id)).await.unwrap();
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&world.written), ["2"]);
}

/// The kernel ends in the middle, once in order and once as after a kill: the branches are there,
/// none writes, and one can be chosen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_branch_writes_after_the_host_died_in_the_middle() {
    let world = World::new().await;
    let session = world.session(WRITE).await.pid();
    let (reached, all) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(tokio::sync::Notify::new()),
    );
    let judge = {
        let (reached, all) = (reached.clone(), all.clone());
        move |_| {
            if reached.fetch_add(1, Ordering::SeqCst) == 3 {
                all.notify_one();
            }
            std::future::pending::<Result<Judgement, JudgeError>>()
        }
    };
    let race = world.kernel.race(session, dormouse::Position::Now, 4);
    let racing = tokio::spawn(race.inputs(appends(4)).judge(judge).into_future());
    within(all.notified()).await;
    // As after a kill: nothing is shut down.
    let copy = tempfile::tempdir().unwrap();
    dormouse_tests::copy_folder(world.folder.path(), copy.path(), &["LOCK"]).unwrap();
    // A race that is dropped ends its branches.
    racing.abort();
    let only_the_session = async {
        while living(&world.kernel).await != [session] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(only_the_session).await;
    world.kernel.shutdown().await.unwrap();

    for choice in [1, 3] {
        let again = tempfile::tempdir().unwrap();
        dormouse_tests::copy_folder(copy.path(), again.path(), &["LOCK"]).unwrap();
        let written_lines = Written::default();
        let kernel = open(again.path(), &written_lines)
            .recovery(Recovery::Resume)
            .build()
            .await
            .unwrap();
        let pending = within(kernel.pending()).await.unwrap().calls;
        assert_eq!(pending.len(), 4);
        for call in &pending {
            assert_eq!(call.reason, HoldReason::Speculation);
            assert!(kernel.approve(call.id).await.is_err(), "not by itself");
        }
        assert_eq!(written(&written_lines), [""; 0]);
        let chosen = kernel.process(pending[choice].id.pid).await.unwrap();
        within(chosen.choose()).await.unwrap();
        within(chosen.wait_for(|view| view.is_idle()))
            .await
            .unwrap();
        assert_eq!(written(&written_lines), [format!("{}", choice + 1)]);
        within(chosen.choose()).await.unwrap();
        assert_eq!(written(&written_lines).len(), 1, "once");
        kernel.shutdown().await.unwrap();
    }
}

/// A beam of width 2 and depth 3 on numbers: each level appends a digit, and the largest one wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beam_continues_the_best_branches() {
    let folder = tempfile::tempdir().unwrap();
    let digits = FnModel(|request: Request| async move {
        let said = request.messages.iter().flat_map(|message| &message.blocks);
        let digits: String = said
            .filter_map(|block| match block {
                Block::Text { text, .. } => text.strip_prefix("add ").map(str::to_owned),
                _ => None,
            })
            .collect();
        Ok(says(&digits))
    });
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", digits)
        .build()
        .await
        .unwrap();
    let start = kernel.start(program(&kernel, "")).session();
    let session = start.without_input().await.unwrap();
    within(session.turn("hello")).await.unwrap();
    let race = kernel.race(session.pid(), dormouse::Position::Now, 4);
    let race = race
        .inputs(["add 1", "add 9", "add 5", "add 9"])
        .judge(|candidate| async move {
            let number = candidate.message.parse();
            number
                .map(Judgement::score)
                .map_err(|error: std::num::ParseFloatError| error.to_string().into())
        });
    let beam = RacePolicy::Beam { width: 2, depth: 3 };
    let result = within(race.policy(beam).into_future()).await.unwrap();
    // The two best begin with 9, and their branches get the inputs in turn: 91, 99, 95 and 99.
    assert_eq!(&*result.candidate.message, "999");
    assert_eq!((result.candidate.level, result.judgement.score), (3, 999.0));
    let continued = result
        .losers
        .iter()
        .filter(|loser| matches!(loser.reason, LossReason::Continued));
    assert_eq!((continued.count(), result.losers.len()), (4, 11));
    assert_eq!(living(&kernel).await, [session.pid(), result.winner.pid()]);
}

/// A branch whose race ended with its kernel does not go on by itself: nobody judges it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_without_a_race_does_not_run_when_the_store_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let open = || {
        let asked = asked.clone();
        let waits = FnModel(move |request: Request| {
            asked.lock().unwrap().push(last(&request).0);
            async move {
                match last(&request).0.as_str() {
                    "hello" => Ok(says("hello")),
                    _ => std::future::pending().await,
                }
            }
        });
        let store = LogStore::open(folder.path()).unwrap();
        Kernel::open(store)
            .model("m", waits)
            .recovery(Recovery::Resume)
    };
    let until_asked = |texts: &'static [&'static str]| {
        let asked = asked.clone();
        within(async move {
            while !texts
                .iter()
                .all(|text| asked.lock().unwrap().contains(&(*text).to_owned()))
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    let kernel = open().build().await.unwrap();
    let start = kernel.start(program(&kernel, "")).session();
    let session = start.without_input().await.unwrap();
    within(session.turn("hello")).await.unwrap();
    let branch = kernel
        .branch(session.pid(), dormouse::Position::Now)
        .speculative();
    let branch = within(branch.into_future()).await.unwrap();
    within(branch.input("branch")).await.unwrap();
    within(session.input("session")).await.unwrap();
    until_asked(&["branch", "session"]).await;
    kernel.shutdown().await.unwrap();

    asked.lock().unwrap().clear();
    let kernel = open().build().await.unwrap();
    until_asked(&["session"]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*asked.lock().unwrap(), ["session"]);
    // One that is named runs.
    within(kernel.resume(branch.pid())).await.unwrap();
    until_asked(&["branch"]).await;
    kernel.shutdown().await.unwrap();

    asked.lock().unwrap().clear();
    let kernel = open().recovery(Recovery::Hold).build().await.unwrap();
    let resumed = within(kernel.resume_all()).await.unwrap();
    let resumed: Vec<_> = resumed.iter().map(dormouse::Process::pid).collect();
    assert_eq!(resumed, [session.pid()]);
    until_asked(&["session"]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*asked.lock().unwrap(), ["session"]);
    let processes = kernel.processes().await.unwrap();
    let left = processes.iter().find(|info| info.row.pid == branch.pid());
    assert_eq!(left.expect("it is listed").status.word(), "held");
}

/// What fails for a loser after the choice is its reason: the winner acts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_is_won_also_if_the_effects_of_a_loser_cannot_be_read() {
    let (lines, is_broken) = (Written::default(), Arc::new(AtomicBool::new(false)));
    let broken = is_broken.clone();
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::Journal if broken.load(Ordering::SeqCst) => Fate::Fail(disk_full()),
        _ => Fate::Pass,
    });
    let builder = Kernel::open(store).model("m", model());
    let kernel = builder.tool(append(&lines)).build().await.unwrap();
    let start = kernel.start(program(&kernel, WRITE)).session();
    let session = start.without_input().await.unwrap();
    within(session.turn("hello")).await.unwrap();
    let judged = AtomicUsize::new(0);
    let judge = move |candidate: Candidate| {
        // Both have come to rest: nothing but the list of effects reads a journal from now on.
        if judged.fetch_add(1, Ordering::SeqCst) == 1 {
            is_broken.store(true, Ordering::SeqCst);
        }
        std::future::ready(Ok(Judgement::score(f64::from(candidate.branch))))
    };
    let race = kernel.race(session.pid(), dormouse::Position::Now, 2);
    let race = race.inputs(appends(2)).judge(judge);
    let result = within(race.policy(RacePolicy::BestOf).into_future())
        .await
        .unwrap();
    assert_eq!(result.candidate.branch, 2);
    let reasons: Vec<_> = result.losers.iter().map(|loser| &loser.reason).collect();
    assert!(
        matches!(&reasons[..], [LossReason::Failed(why)] if why.contains("append")),
        "{reasons:?}"
    );
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&lines), ["2"]);
}

/// A race that is dropped while a branch is made ends that one too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_made_when_its_race_is_dropped_is_ended() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let (commits, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (slow, committing, going_on) = (is_slow.clone(), commits.clone(), goes_on.clone());
    let store = Faulty::new(MemoryStore::new(), move |_, operation| {
        let is_commit = matches!(operation, Operation::Commit { .. });
        if is_commit && slow.swap(false, Ordering::SeqCst) {
            committing.wait();
            going_on.wait();
        }
        Fate::Pass
    });
    let kernel = Kernel::open(store).model("m", model()).build().await;
    let kernel = kernel.unwrap();
    let start = kernel.start(program(&kernel, "")).session();
    let session = start.without_input().await.unwrap();
    is_slow.store(true, Ordering::SeqCst);
    let race = kernel.race(session.pid(), FactNumber(0), 1).into_future();
    let racing = tokio::spawn(race);
    let reached = tokio::task::spawn_blocking(move || commits.wait());
    within(reached).await.unwrap();
    racing.abort();
    assert!(within(racing).await.unwrap_err().is_cancelled());
    let released = tokio::task::spawn_blocking(move || goes_on.wait());
    within(released).await.unwrap();
    let ended = async {
        while !kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .any(|info| info.row.pid == Pid(2) && info.row.exit.is_some())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(ended).await;
    assert_eq!(living(&kernel).await, [session.pid()]);
}
