//! Exports: what a process or a tree was, it is in another store, and nothing else of that store is
//! disturbed.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::io::Cursor;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::checkpoint::Scope;
use dormouse::effect::EffectPolicy;
use dormouse::export::{ExportError, ExportSummary, MaskTarget, Redact, Redaction, read_export};
use dormouse::garbage::{CollectionRequest, InUse, UnreadablePolicy, collect};
use dormouse::host::ExportFile;
use dormouse::id::{FactNumber, Pid};
use dormouse::inventory::Inventory;
use dormouse::model::Request;
use dormouse::ports::{OwnerToken, Store, StoreError, SweepLimits, SweepMode, SyncLevel};
use dormouse::process::Exit;
use dormouse::retention::Retention;
use dormouse::store::{LogStore, MemoryStore, StoreSecret};
use dormouse::{
    Event, ExportFailure, FnTool, ImportedTree, Kernel, KernelBuilder, KernelError, NotFound,
    Position, Process, ProcessView, StoreFailure,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::pair::{self, TOOLS, check_end, root_of, rows};
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, says, turn, within};
use futures_util::StreamExt;

/// A session whose model says how much it has heard.
fn echo() -> impl dormouse::ports::Model {
    FnModel(
        |request: Request| async move { Ok(says(&format!("heard {}", request.messages.len()))) },
    )
}

fn on(store: impl Store) -> KernelBuilder {
    Kernel::open(store).model("m", echo())
}

const READER: &str = "[tools]\nenabled = [\"read_fd\", \"search_fd\", \"list_fds\", \
\"mark_fd_section\", \"get_fd_section\", \"list_fd_sections\", \"rename_fd\", \
\"create_temp_file\", \"read_temp_file\", \
\"append_temp_file\"]\n[file_descriptor]\nenable_references = true\nreference_messages = \
true\n[limits]\nmax_children = 5\n";

async fn exported(kernel: &Kernel, of: &Process, scope: Scope) -> Vec<u8> {
    within(kernel.export(of.pid(), scope).write(Vec::new()))
        .await
        .unwrap()
        .0
}

async fn imported(kernel: &Kernel, file: &[u8]) -> Result<ImportedTree, KernelError> {
    within(kernel.import(Cursor::new(file.to_vec())).into_future()).await
}

async fn called(process: &Process, tool: &str, args: &str) -> String {
    let answer = within(process.call(tool, args)).await.unwrap();
    assert!(!answer.is_error, "{tool} {args}: {}", answer.text);
    answer.text.to_string()
}

/// All that can be read of a session that was prepared.
async fn shown(process: &Process) -> Vec<String> {
    let mut shown = Vec::new();
    for args in [
        r#"{"fd": "fd:1", "page": 1}"#,
        r#"{"fd": "fd:1", "page": 2000}"#,
        r#"{"fd": "fd:1", "start_line": 300000, "end_line": 300003}"#,
        r#"{"fd": "the end", "read_all": true}"#,
        r#"{"fd": "fd:2", "page": 1}"#,
        r#"{"fd": "msg:1"}"#,
        r#"{"fd": "ref:plan"}"#,
    ] {
        shown.push(called(process, "read_fd", args).await);
    }
    for (tool, args) in [
        ("search_fd", r#"{"fd": "fd:1", "query": "line 299999 "}"#),
        ("list_fds", "{}"),
        ("list_fd_sections", r#"{"fd": "fd:1"}"#),
        ("get_fd_section", r#"{"fd": "fd:1", "ref_id": "middle"}"#),
        ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
    ] {
        shown.push(called(process, tool, args).await);
    }
    shown
}

fn large() -> String {
    (1..=400_000)
        .map(|line| format!("line {line} of wörds\n"))
        .collect()
}

/// A session with descriptors of every kind, notes on them, a temporary file of two versions, and a
/// conversation.
async fn prepared(kernel: &Kernel) -> Process {
    let session = kernel
        .start(program(kernel, READER))
        .session()
        .without_input()
        .name("planner")
        .await
        .unwrap();
    turn(&session, "the first word").await;
    session.open("log", large(), None).await.unwrap();
    session
        .open("raw", vec![0xFF_u8; 30_000], Some(500))
        .await
        .unwrap();
    called(
        &session,
        "read_fd",
        r#"{"fd": "fd:1", "start_line": 399990, "end_line": 400000, "extract_to_new_fd": true}"#,
    )
    .await;
    called(
        &session,
        "rename_fd",
        r#"{"fd": "fd:3", "name": "the end"}"#,
    )
    .await;
    called(
        &session,
        "mark_fd_section",
        r#"{"fd": "fd:1", "ref_id": "middle", "start_line": 200000, "end_line": 200002}"#,
    )
    .await;
    called(&session, "create_temp_file", r#"{"content": "begun\n"}"#).await;
    called(
        &session,
        "append_temp_file",
        r#"{"temp_file_id": "temp:1", "content": "and gone on\n"}"#,
    )
    .await;
    turn(&session, "the second word").await;
    session
}

fn model_with_reference() -> impl dormouse::ports::Model {
    FnModel(|_: Request| async { Ok(says("It is <ref id=\"plan\">to go on</ref> then.")) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_the_same_in_another_store_and_stays_as_it_was_in_its_own() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let kernel =
        Kernel::open(LogStore::open(here.path()).unwrap()).model("m", model_with_reference());
    let kernel = kernel.build().await.unwrap();
    let session = prepared(&kernel).await;
    let before = (shown(&session).await, session.view().unwrap());
    let facts = kernel.log(session.pid()).await.unwrap();
    let path = there.path().join("planner.dormouse");
    let file = ExportFile::create(&path).unwrap();
    let (file, told) = within(kernel.export(session.pid(), Scope::Process).write(file))
        .await
        .unwrap();
    file.persist().unwrap();
    assert_eq!(
        (told.processes, told.bytes),
        (1, std::fs::metadata(&path).unwrap().len())
    );
    assert_eq!(
        kernel.log(session.pid()).await.unwrap()[..facts.len()],
        facts
    );
    assert!(kernel.checkpoints().await.unwrap().is_empty());
    let manifest = read_export(std::fs::File::open(&path).unwrap(), &mut ()).unwrap();
    assert_eq!(
        (
            manifest.id,
            manifest.head.redaction,
            manifest.facts[&Pid(1)]
        ),
        (told.id, Redaction::Whole, facts.len() as u64 - 1)
    );

    let other = Kernel::open(LogStore::open(there.path().join("store")).unwrap())
        .model("m", model_with_reference());
    let other = other.resident_bytes_limit(1 << 20).build().await.unwrap();
    for name in [Some("planner".into()), None] {
        let import = other.import(std::fs::File::open(&path).unwrap());
        let ImportedTree { process, pids, .. } = within(import.into_future()).await.unwrap();
        assert_eq!(pids, [(Pid(1), process.pid())]);
        let row = rows(&other).await.remove(&process.pid()).unwrap();
        assert_eq!(
            (row.name.clone(), row.local_id(), row.ancestor()),
            (name, Pid(1), None)
        );
        assert_eq!(
            row.branched_from.unwrap().import.unwrap().export,
            Some(told.id)
        );
        let after = shown(&process).await;
        for (mine, its) in before.0.iter().zip(&after) {
            assert_eq!(mine, its);
        }
        let view = process.view().unwrap();
        assert_eq!(
            (view.messages, view.descriptors),
            (before.1.messages, before.1.descriptors)
        );
        turn(&process, "the third word").await;
    }
    // Importing it twice makes two, and neither is the other.
    assert_eq!(rows(&other).await.len(), 2);
    called(
        &other.process(Pid(2)).await.unwrap(),
        "append_temp_file",
        r#"{"temp_file_id": "temp:1", "content": "x"}"#,
    )
    .await;
    let of_other = called(
        &other.process(Pid(3)).await.unwrap(),
        "read_temp_file",
        r#"{"temp_file_id": "temp:1"}"#,
    )
    .await;
    assert_eq!(Some(&of_other), before.0.last());
    other.shutdown().await.unwrap();
    let again = Kernel::open(LogStore::open(there.path().join("store")).unwrap())
        .model("m", model_with_reference());
    let again = again.build().await.unwrap();
    let process = within(again.resume(Pid(3))).await.unwrap();
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    assert_eq!(shown(&process).await[..7], before.0[..7]);
    assert_eq!(shown(&session).await, before.0);
    again.shutdown().await.unwrap();
    kernel.shutdown().await.unwrap();
}

/// That a swarm came to its end, and that its message was heard once. A sender that asks again
/// after its receiver has heard it and ended is told that it has ended.
fn check_heard(exit: &Exit, of: &str) {
    check_end(
        &Exit {
            message: exit.message.replace("\nlost\n", "\nsent\n").into(),
            ..exit.clone()
        },
        of,
    );
}

/// From every point of a tree, messages on their way and files half written: what goes on elsewhere
/// comes to the same end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_goes_on_elsewhere_from_every_point_and_each_message_arrives_once() {
    let store = Arc::new(MemoryStore::new());
    let kernel = Kernel::open(store.clone())
        .model("m", pair::model())
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    check_end(&within(process.wait()).await.unwrap(), "the swarm itself");
    let requests = Requests::default();
    let other = Kernel::open(MemoryStore::new())
        .model("m", requests.record(pair::model()))
        .build()
        .await
        .unwrap();
    // Somebody is there already, under the numbers that the tree goes by.
    for _ in 0..3 {
        other
            .start(program(&other, ""))
            .session()
            .without_input()
            .await
            .unwrap();
    }
    let mut imports = 0;
    for pid in (1..=3).map(Pid) {
        for at in 0..kernel.log(pid).await.unwrap().len() as u64 {
            let of = format!("the tree at fact {at} of {pid}");
            // What follows is done again.
            let branch = kernel.branch(pid, FactNumber(at)).stopped();
            let branch = within(branch.effects(EffectPolicy::Run).into_future())
                .await
                .unwrap();
            let root = root_of(&kernel, branch.pid()).await;
            let file = exported(&kernel, &root, Scope::Tree).await;
            let ImportedTree { process, pids, .. } = imported(&other, &file).await.unwrap();
            assert!(
                pids.iter().all(|(there, here)| here > there),
                "{of}: {pids:?}"
            );
            check_heard(&within(process.wait()).await.unwrap(), &of);
            imports += 1;
        }
    }
    assert!(imports > 30, "{imports}");
    // The same by a fact of its own.
    let half = FactNumber(kernel.log(Pid(1)).await.unwrap().len() as u64 / 2);
    let (file, _) = within(
        kernel
            .export(Pid(1), Scope::Tree)
            .at(half)
            .write(Vec::new()),
    )
    .await
    .unwrap();
    check_heard(
        &within(imported(&other, &file).await.unwrap().process.wait())
            .await
            .unwrap(),
        "the half of it",
    );
    check_histories(&requests);
    other.shutdown().await.unwrap();
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_imported_can_be_branched_and_exported_again() {
    let first = Kernel::open(MemoryStore::new())
        .model("m", pair::model())
        .build()
        .await
        .unwrap();
    let process = first
        .start(program(&first, TOOLS))
        .input("go")
        .await
        .unwrap();
    check_end(&within(process.wait()).await.unwrap(), "the swarm itself");
    let replied: Vec<_> = first.log(Pid(2)).await.unwrap();
    let second_reply = replied
        .iter()
        .filter(|line| line.name == "model_replied")
        .nth(1)
        .unwrap()
        .number;
    let branch = within(first.branch(Pid(2), second_reply).stopped().into_future())
        .await
        .unwrap();
    let root = root_of(&first, branch.pid()).await;
    let file = exported(&first, &root, Scope::Tree).await;

    let second = Kernel::open(MemoryStore::new())
        .model("m", pair::model())
        .build()
        .await
        .unwrap();
    let brought = within(second.import(Cursor::new(file)).held().into_future())
        .await
        .unwrap();
    let file = exported(&second, &brought.process, Scope::Tree).await;
    let third = Kernel::open(MemoryStore::new())
        .model("m", pair::model())
        .build()
        .await
        .unwrap();
    let again = imported(&third, &file).await.unwrap();
    assert!(
        again.process.pid() > brought.pids.last().unwrap().1,
        "pids are greater than all that stand in it"
    );
    check_heard(
        &within(again.process.wait()).await.unwrap(),
        "what was brought twice",
    );
    let branch = within(
        second
            .branch(brought.process.pid(), Position::Now)
            .into_future(),
    )
    .await
    .unwrap();
    assert_eq!(rows(&second).await[&branch.pid()].local_id(), Pid(1));
    check_heard(
        &within(branch.wait()).await.unwrap(),
        "the branch of what was brought",
    );
    let process = within(second.resume(brought.process.pid())).await.unwrap();
    check_heard(&within(process.wait()).await.unwrap(), "what was brought");
    for kernel in [first, second, third] {
        kernel.shutdown().await.unwrap();
    }
}

/// A store that is cut off at each commit of an import, of contents and of births: all of it is
/// there, or nothing but contents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_born_whole_or_not_at_all() {
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", pair::model())
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    within(process.wait()).await.unwrap();
    let half = FactNumber(kernel.log(Pid(3)).await.unwrap().len() as u64 / 2);
    let branch = within(kernel.branch(Pid(3), half).stopped().into_future())
        .await
        .unwrap();
    let root = root_of(&kernel, branch.pid()).await;
    for number in 0..3_u8 {
        let bytes: Vec<u8> = (0..6_u32 << 20)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ number)
            .collect();
        root.open("data", bytes, None).await.unwrap();
    }
    let file = exported(&kernel, &root, Scope::Tree).await;
    let mut seen = Vec::new();
    for commits in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let store = Faulty::crashing_after(commits, LogStore::open(folder.path()).unwrap());
        let cut_off = Kernel::open(store)
            .model("m", pair::model())
            .build()
            .await
            .unwrap();
        let made = within(
            cut_off
                .import(Cursor::new(file.clone()))
                .held()
                .into_future(),
        )
        .await;
        // The store was cut off, perhaps before its last sync.
        let _ = cut_off.shutdown().await;
        let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
            .model("m", pair::model())
            .build()
            .await
            .unwrap();
        let born = rows(&kernel).await.len();
        assert_eq!(
            born,
            if made.is_ok() { 3 } else { 0 },
            "after {commits} commits"
        );
        seen.push(born);
        let report = within(kernel.collect_garbage(Retention::default(), SweepMode::Free))
            .await
            .unwrap();
        if born == 0 {
            assert_eq!(report.live_contents, 0);
        } else {
            let root = within(kernel.resume(made.unwrap().process.pid()))
                .await
                .unwrap();
            check_heard(
                &within(root.wait()).await.unwrap(),
                &format!("an import that ended after {commits} commits"),
            );
        }
        kernel.shutdown().await.unwrap();
    }
    assert!(
        seen.starts_with(&[0, 0]) && seen.contains(&3),
        "contents are brought in more than one commit: {seen:?}"
    );
    kernel.shutdown().await.unwrap();
}

/// Contents that nothing refers to yet are swept between them and the births: they are brought
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_brings_again_what_was_swept_before_its_births() {
    let kernel = on(MemoryStore::new()).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, READER))
        .session()
        .without_input()
        .await
        .unwrap();
    session
        .open("log", "a line\n".repeat(10_000), None)
        .await
        .unwrap();
    let file = exported(&kernel, &session, Scope::Process).await;
    for (sweeps, is_born) in [(1, true), (3, false)] {
        let store = Arc::new(MemoryStore::new());
        let (inner, left) = (store.clone(), AtomicUsize::new(sweeps));
        let sweeping = Faulty::new(store.clone(), move |_, operation| {
            let is_birth = matches!(operation, Operation::Commit { sync_level: SyncLevel::Synced, entries } if entries > 1);
            if is_birth
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
                    .is_ok()
            {
                let (retention, limits) = (&Retention::default(), SweepLimits::default());
                let (mode, unreadable) = (SweepMode::Free, UnreadablePolicy::KeepAll);
                let watch = &mut |_| ControlFlow::Continue(());
                let (owner, on_deleted) = (OwnerToken(1), &mut |_: &BTreeSet<Pid>| ());
                let inventory = &mut Inventory::default();
                let (in_use, now_ms) = (&InUse::default(), 0);
                let order = CollectionRequest {
                    owner,
                    inventory,
                    retention,
                    in_use,
                    unreadable,
                    mode,
                    limits,
                    now_ms,
                    on_deleted,
                    watch,
                };
                assert_eq!(collect(&*inner, order).unwrap().live_contents, 0);
            }
            Fate::Pass
        });
        let other = on(sweeping).build().await.unwrap();
        match imported(&other, &file).await {
            Ok(ImportedTree { process, .. }) => {
                assert!(is_born);
                called(&process, "read_fd", r#"{"fd": "fd:1", "page": 9}"#).await;
            }
            Err(KernelError::Store(StoreFailure::NotDurable(_))) => {
                assert!(!is_born && rows(&other).await.is_empty())
            }
            Err(error) => panic!("{error}"),
        }
        other.shutdown().await.unwrap();
    }
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn nothing_of_a_file_is_used_where_anything_of_it_is_wrong() {
    let kernel = on(MemoryStore::new()).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, READER))
        .session()
        .without_input()
        .await
        .unwrap();
    session.open("log", large(), None).await.unwrap();
    let file = exported(&kernel, &session, Scope::Process).await;
    let store = Arc::new(MemoryStore::new());
    let other = on(store.clone()).build().await.unwrap();
    let mut altered = file.clone();
    *altered.last_mut().unwrap() ^= 1;
    for (bytes, is_named) in [
        (
            &file[..file.len() - 1],
            (|error| matches!(error, ExportError::Truncated { .. })) as fn(&ExportError) -> bool,
        ),
        (&altered, |error| {
            matches!(error, ExportError::Altered { .. })
        }),
        (b"something else", |error| {
            matches!(error, ExportError::NotAnExport)
        }),
    ] {
        match imported(&other, bytes).await {
            Err(KernelError::Export(ExportFailure::Unusable(error))) => {
                assert!(is_named(&error), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(rows(&other).await.is_empty());
    let content = read_export(&file[..], &mut ())
        .unwrap()
        .contents
        .into_keys()
        .next()
        .unwrap();
    assert!(
        matches!(store.content(content), Err(StoreError::UnknownContent(_))),
        "not even a content"
    );
    let bare = Kernel::builder().model("m", echo()).build().await.unwrap();
    assert!(matches!(
        imported(&bare, &file).await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    let none = bare
        .start(program(&bare, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    assert!(matches!(
        bare.export(none.pid(), Scope::Tree).write(Vec::new()).await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    let unknown = kernel.export(Pid(9), Scope::Tree).write(Vec::new()).await;
    assert!(matches!(
        unknown,
        Err(KernelError::NotFound(NotFound::Process(Pid(9))))
    ));
    for kernel in [kernel, other, bare] {
        kernel.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn one_whose_tools_are_missing_can_be_held_and_not_be_run() {
    let tool = || FnTool::new("weigh", "Weighs.", |()| async { Ok::<_, String>("much") });
    let kernel = on(MemoryStore::new()).tool(tool()).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, "[tools]\nenabled = [\"weigh\"]\n"))
        .session()
        .without_input()
        .await
        .unwrap();
    let file = exported(&kernel, &session, Scope::Process).await;
    let folder = tempfile::tempdir().unwrap();
    let without = on(LogStore::open(folder.path()).unwrap())
        .build()
        .await
        .unwrap();
    let refused = imported(&without, &file).await.unwrap_err();
    assert!(
        matches!(refused, KernelError::Store(StoreFailure::Load(_)))
            && refused.to_string().contains("weigh"),
        "{refused}"
    );
    let held = within(without.import(Cursor::new(file)).held().into_future())
        .await
        .unwrap();
    let info = without.processes().await.unwrap();
    assert_eq!((info.len(), info[0].status.word()), (1, "held"));
    drop(held);
    without.shutdown().await.unwrap();
    let with = on(LogStore::open(folder.path()).unwrap())
        .tool(tool())
        .build()
        .await
        .unwrap();
    let process = within(with.resume(info[0].row.pid)).await.unwrap();
    assert_eq!(turn(&process, "go on").await, "heard 1");
    with.shutdown().await.unwrap();
    kernel.shutdown().await.unwrap();
}

/// A stranger here whose pid was somebody's number there is not taken for that one, and later
/// children do not become one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_another_store_mean_nobody_here() {
    let writer = || {
        FnModel(|request: Request| async move {
            let said = request.messages.last().unwrap().text();
            Ok(match pair::answers(&request).len() {
                0 if said.starts_with("write ") => asks(&[(
                    "send_message",
                    &format!("{{\"to\": {}, \"text\": \"hello\"}}", &said[6..]),
                )]),
                0 if said == "look" => asks(&[("list_processes", "{}")]),
                _ => says(
                    pair::answers(&request)
                        .last()
                        .map_or("nothing", String::as_str),
                ),
            })
        })
    };
    let tools = "[tools]\nenabled = [\"send_message\", \"list_processes\", \"fork\"]\n";
    let open = |store: &Arc<MemoryStore>| {
        Kernel::open(store.clone())
            .model("m", writer())
            .reach(dormouse::mail::Reach::Everyone)
    };
    let (here, there) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let there = open(&there).build().await.unwrap();
    for _ in 0..6 {
        there
            .start(program(&there, tools))
            .session()
            .without_input()
            .await
            .unwrap();
    }
    let moved = there
        .start(program(&there, tools))
        .session()
        .without_input()
        .await
        .unwrap();
    assert_eq!(moved.pid(), Pid(7));
    let file = exported(&there, &moved, Scope::Process).await;
    let store = here;
    let here = open(&store).build().await.unwrap();
    let old = here
        .start(program(&here, tools))
        .session()
        .without_input()
        .name("old")
        .await
        .unwrap();
    let brought = imported(&here, &file).await.unwrap().process;
    let new = here
        .start(program(&here, tools))
        .session()
        .without_input()
        .await
        .unwrap();
    assert_eq!(
        (old.pid(), brought.pid(), new.pid()),
        (Pid(1), Pid(8), Pid(9))
    );
    let looking = imported(&here, &file).await.unwrap().process;
    let list = turn(&looking, "look").await;
    assert!(
        !list.contains("pid=\"1\"") && list.contains("pid=\"9\""),
        "{list}"
    );
    assert!(
        turn(&brought, "write 1")
            .await
            .contains("There is no process 1"),
        "1 was another there"
    );
    let refused = turn(&old, "write 8").await;
    assert!(
        refused.contains("the number of this process means another one there"),
        "{refused}"
    );
    let sent = turn(&new, "write 8").await;
    assert!(sent.starts_with("<message_sent"), "{sent}");
    // A branch of it, and another life of the kernel, know as much.
    let branch = within(
        here.branch(looking.pid(), FactNumber(0))
            .stopped()
            .into_future(),
    )
    .await
    .unwrap()
    .pid();
    here.shutdown().await.unwrap();
    let here = open(&store).build().await.unwrap();
    let branch = within(here.resume(branch)).await.unwrap();
    within(branch.tree().cont()).await.unwrap();
    assert!(
        turn(&branch, "write 1")
            .await
            .contains("There is no process 1")
    );
    here.shutdown().await.unwrap();
    there.shutdown().await.unwrap();
}

/// Masks each occurrence of a word.
struct Word(&'static str);

impl Redact for Word {
    fn masks(&self, _: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>> {
        let word = self.0.as_bytes();
        let found = bytes
            .windows(word.len())
            .enumerate()
            .filter(|(_, window)| *window == word);
        found.map(|(at, _)| at..at + word.len()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redacted_export_holds_the_secret_nowhere_and_can_be_imported() {
    let secret = "tok-5ecret";
    let model = || {
        FnModel(|request: Request| async move {
            Ok(match request.messages.len() {
                1 => asks(&[("create_temp_file", r#"{"content": "kept: tok-5ecret\n"}"#)]),
                _ => says("I use <ref id=\"tok-5ecret\">tok-5ecret</ref>."),
            })
        })
    };
    let rest = READER.replace(
        "[limits]",
        "[prompt]\nsystem = \"Use tok-5ecret wisely.\"\n[limits]",
    );
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", model())
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, &rest))
        .session()
        .without_input()
        .name(secret)
        .await
        .unwrap();
    turn(&session, "the word is tok-5ecret").await;
    let lines = large().replace("line 300000 of", "line 300000 tok-5ecret of");
    session
        .open("from tok-5ecret", lines.clone(), None)
        .await
        .unwrap();
    session
        .open(
            "raw",
            [&[0xFF_u8; 20_000][..], secret.as_bytes()].concat(),
            None,
        )
        .await
        .unwrap();
    called(
        &session,
        "rename_fd",
        r#"{"fd": "fd:1", "name": "tok-5ecret"}"#,
    )
    .await;
    called(
        &session,
        "mark_fd_section",
        r#"{"fd": "fd:1", "ref_id": "tok-5ecret", "start_line": 300000, "end_line": 300001}"#,
    )
    .await;

    let whole = exported(&kernel, &session, Scope::Process).await;
    let (file, told) = within(
        kernel
            .export(session.pid(), Scope::Process)
            .redact(Word(secret))
            .write(Vec::new()),
    )
    .await
    .unwrap();
    let holds = |file: &[u8]| {
        file.windows(secret.len())
            .any(|window| window == secret.as_bytes())
    };
    assert!(holds(&whole) && !holds(&file));
    assert_eq!(
        (file.len() as u64, whole.len()),
        (told.bytes, file.len()),
        "a mask keeps the length"
    );
    let manifest = read_export(&file[..], &mut ()).unwrap();
    assert_eq!(manifest.head.redaction, Redaction::Redacted);
    let mut secret_content = manifest.contents.keys();
    let known = read_export(&whole[..], &mut ()).unwrap().contents;
    assert!(
        secret_content.any(|hash| !known.contains_key(hash)),
        "a masked content has another name"
    );

    let other = Kernel::open(MemoryStore::new())
        .model("m", model())
        .build()
        .await
        .unwrap();
    let process = imported(&other, &file).await.unwrap().process;
    let line = called(
        &process,
        "read_fd",
        r#"{"fd": "**********", "start_line": 299999, "end_line": 300001}"#,
    )
    .await;
    let expected = lines
        .lines()
        .skip(299_998)
        .take(3)
        .collect::<Vec<_>>()
        .join("\n")
        .replace(secret, "**********");
    assert!(line.contains(&expected), "{line}");
    let both = [&session, &process].map(|process| async move {
        called(process, "read_fd", r#"{"fd": "fd:1", "page": 7}"#).await
    });
    let [mine, its] = both;
    assert_eq!(
        mine.await,
        its.await,
        "what is not masked stands where it stood"
    );
    called(
        &process,
        "get_fd_section",
        r#"{"fd": "fd:1", "ref_id": "**********"}"#,
    )
    .await;
    assert!(
        called(&process, "read_temp_file", r#"{"temp_file_id": "temp:1"}"#)
            .await
            .contains("kept: **********")
    );
    assert!(turn(&process, "go on").await.starts_with("I use"));
    for kernel in [kernel, other] {
        kernel.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_another_kernel_writes_is_exported_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let secret = || StoreSecret::new([7; 32]);
    let writing = on(LogStore::options()
        .key(secret())
        .open(folder.path())
        .unwrap())
    .build()
    .await
    .unwrap();
    let session = writing
        .start(program(&writing, READER))
        .session()
        .without_input()
        .await
        .unwrap();
    session
        .open("log", large()[..500_000].to_owned(), None)
        .await
        .unwrap();
    turn(&session, "a word").await;
    let looking = on(LogStore::options()
        .key(secret())
        .read_only(folder.path())
        .unwrap())
    .build()
    .await
    .unwrap();
    let (file, ExportSummary { contents, .. }) =
        within(looking.export(session.pid(), Scope::Tree).write(Vec::new()))
            .await
            .unwrap();
    assert_eq!(contents, 2, "its program and its descriptor");
    looking.shutdown().await.unwrap();
    turn(&session, "a later word").await;
    let other = tempfile::tempdir().unwrap();
    let kernel = on(LogStore::options()
        .key(StoreSecret::new([8; 32]))
        .open(other.path())
        .unwrap())
    .build()
    .await
    .unwrap();
    let process = imported(&kernel, &file).await.unwrap().process;
    assert_eq!(turn(&process, "another").await, "heard 3");
    assert!(
        called(
            &process,
            "read_fd",
            r#"{"fd": "fd:1", "start_line": 10000, "end_line": 10000}"#
        )
        .await
        .contains("line 10000 of")
    );
    kernel.shutdown().await.unwrap();
    writing.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_the_past_is_what_was_then() {
    let kernel = on(MemoryStore::new()).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, READER))
        .session()
        .without_input()
        .await
        .unwrap();
    turn(&session, "one").await;
    let (fact, kept) = (
        session.view().unwrap().fact,
        within(session.checkpoint("early")).await.unwrap(),
    );
    turn(&session, "two").await;
    within(session.kill()).await.unwrap();
    within(session.wait()).await.unwrap();
    let other = on(MemoryStore::new()).build().await.unwrap();
    for (at, heard) in [
        (Position::Fact(fact), "heard 3"),
        (kept.id.into(), "heard 3"),
        (Position::Now, "heard 5"),
    ] {
        let (file, _) = within(
            kernel
                .export(session.pid(), Scope::Process)
                .at(at)
                .write(Vec::new()),
        )
        .await
        .unwrap();
        let process = imported(&other, &file).await.unwrap().process;
        assert_eq!(turn(&process, "on").await, heard, "{at:?}");
    }
    // As a tree, what had ended has ended.
    let file = exported(&kernel, &session, Scope::Tree).await;
    let process = imported(&other, &file).await.unwrap().process;
    assert_eq!(
        process.exit().map(|exit| exit.status),
        session.exit().map(|exit| exit.status)
    );
    let stranger = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    let outside = kernel
        .export(stranger.pid(), Scope::Tree)
        .at(kept.id)
        .write(Vec::new())
        .await;
    assert!(matches!(
        outside,
        Err(KernelError::NotFound(NotFound::InCheckpoint { .. }))
    ));
    let (mut events, file) = (
        other.events(),
        exported(&kernel, &stranger, Scope::Tree).await,
    );
    let stopped = within(other.import(Cursor::new(file)).stopped().into_future())
        .await
        .unwrap()
        .process;
    let event = within(events.next()).await;
    assert!(
        matches!(&event, Some(Event::Started { pid, .. }) if *pid == stopped.pid()),
        "{event:?}"
    );
    within(stopped.wait_for(|view: &ProcessView| view.stopped))
        .await
        .unwrap();
    for kernel in [kernel, other] {
        kernel.shutdown().await.unwrap();
    }
}
