//! Spawned processes from end to end: what they are given, what comes back, and what a restart in
//! between changes.

use std::path::Path;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::message::Role;
use dormouse::model::{Reply, Request};
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelBuilder, Process};
use dormouse_tests::faulty::Faulty;
use dormouse_tests::{FnModel, Gate, Requests, asks, check_histories, results, says, within};
use serde_json::json;

/// A folder with `main.toml`, which links `helper.toml` and `plain.toml` (no descriptors), and
/// `notes.txt`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = "[tools]\nenabled = [\"read_fd\", \"spawn\", \
         \"create_temp_file\"]\n[file_descriptor]\nmax_direct_output_chars = \
         100\ndefault_page_size = 64\n[linked_programs]\nhelper = { path = \"helper.toml\", \
         description = \"Helps.\" }\nplain = \"plain.toml\"\n";
    let helper = "[prompt]\nsystem = \"You help.\"\n[tools]\nenabled = [\"read_fd\"]\n";
    let files = [
        ("main.toml", main),
        ("helper.toml", helper),
        ("plain.toml", ""),
    ];
    for (file, text) in files {
        std::fs::write(folder.path().join(file), format!("{model}{text}")).unwrap();
    }
    std::fs::write(folder.path().join("notes.txt"), "remember <this>\n").unwrap();
    folder
}

fn host(folder: &Path, permissions: Permissions) -> LocalHost {
    LocalHost::new(permissions, folder).unwrap()
}

async fn start(builder: KernelBuilder, folder: &Path) -> (Kernel, Process) {
    let kernel = builder.build().await.unwrap();
    let main = kernel.load(folder.join("main.toml")).unwrap().program;
    let process = kernel.start(main).input("go").await.unwrap();
    (kernel, process)
}

/// A model that spawns with these arguments, then says what it was answered; its children say what
/// they were given.
fn spawning(args: serde_json::Value) -> impl Model {
    FnModel(move |request: Request| {
        let args = args.clone();
        async move {
            Ok(match (&*request.program, request.messages.len()) {
                ("main", 1) => asks(&[("create_temp_file", r#"{"content": "shared"}"#)]),
                ("main", 3) => asks(&[("spawn", &args.to_string())]),
                ("main", _) => says(&results(&request, 0)[0].0),
                _ => says("done"),
            })
        }
    })
}

#[tokio::test]
async fn a_large_file_is_preloaded_as_a_descriptor_of_the_child() {
    let text: String = (1..=20_000).map(|line| format!("line {line}\n")).collect();
    for (program, fd) in [("helper", Some("fd:1")), ("plain", None)] {
        let (folder, requests) = (folder(), Requests::default());
        std::fs::write(folder.path().join("large.txt"), &text).unwrap();
        let args = json!({
            "program_name": program, "query": "x", "additional_preload_files": ["large.txt"],
        });
        let builder = Kernel::builder().model("m", requests.record(spawning(args)));
        let permissions = Permissions::none().allow_read(".");
        let builder = builder
            .host(host(folder.path(), permissions))
            .store(LogStore::open(folder.path().join("store")).unwrap());
        let (kernel, process) = start(builder, folder.path()).await;
        assert_eq!(&*within(process.wait()).await.unwrap().message, "done");
        let system = requests.of(2)[0].system.to_string();
        let child = kernel.inspect(Pid(2)).await.unwrap();
        let Some(fd) = fd else {
            assert!(system.contains("line 20000"), "it cannot read on");
            assert!(child.list_descriptors().is_empty());
            continue;
        };
        assert!(system.len() < 5_000, "{} bytes", system.len());
        let element = format!("<preload_file path=\"large.txt\" fd=\"{fd}\"");
        assert!(system.contains(&element), "{system}");
        assert!(system.contains("<preview>line 1\n"), "{system}");
        assert!(system.contains("Use read_fd to read more pages."));
        let [descriptor] = &child.list_descriptors()[..] else {
            panic!("the child has one descriptor")
        };
        assert_eq!(
            (descriptor.id.to_string(), &*descriptor.source),
            (fd.to_owned(), "file:large.txt")
        );
        assert_eq!(descriptor.bytes, text.len() as u64);
        kernel.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_is_preloaded_where_the_user_permits_it_and_else_the_missing_permission_is_named() {
    let files = json!(["notes.txt"]);
    let args = json!({
        "program_name": "helper", "query": "x", "additional_preload_files": files,
        "additional_preload_temp_files": ["temp:1"],
    });
    for permitted in [true, false] {
        let (folder, requests) = (folder(), Requests::default());
        let permissions = if permitted {
            Permissions::none().allow_read(".")
        } else {
            Permissions::none()
        };
        let builder = Kernel::builder().model("m", requests.record(spawning(args.clone())));
        let (kernel, process) = start(
            builder.host(host(folder.path(), permissions)),
            folder.path(),
        )
        .await;
        let said = within(process.wait()).await.unwrap().message;
        let system = requests
            .of(2)
            .first()
            .map(|request| request.system.to_string())
            .unwrap_or_default();
        if permitted {
            assert_eq!(&*said, "done");
            let shown = "<preload_file path=\"notes.txt\"><![CDATA[remember \
                 <this>\n]]></preload_file>\n<preload_temp_file temp_file_id=\"temp:1\" \
                 version=\"1\">shared</preload_temp_file>";
            assert!(system.contains(shown), "{system}");
        } else {
            assert!(
                said.contains("Nothing was started: notes.txt cannot be read"),
                "{said}"
            );
            assert!(said.contains("--allow-read="), "{said}");
            assert_eq!(
                kernel.processes().await.unwrap().len(),
                1,
                "nothing was started"
            );
        }
        check_histories(&requests);
    }
}

#[tokio::test]
async fn a_missing_temporary_file_is_named_and_nothing_is_started() {
    let args =
        json!({ "program": "helper", "query": "x", "additional_preload_temp_files": ["temp:9"] });
    let (folder, requests) = (folder(), Requests::default());
    let builder = Kernel::builder().model("m", requests.record(spawning(args)));
    let (kernel, process) = start(
        builder.host(host(folder.path(), Permissions::none())),
        folder.path(),
    )
    .await;
    let said = within(process.wait()).await.unwrap().message;
    assert!(
        said.contains("no temporary file temp:9") && said.contains("temp:1"),
        "{said}"
    );
    assert_eq!(kernel.processes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn parts_and_binary_are_given_as_such_and_a_program_without_descriptors_has_them_in_its_prompt_only()
 {
    for (program, in_table) in [("helper", true), ("plain", false)] {
        let (folder, requests) = (folder(), Requests::default());
        let model = FnModel(move |request: Request| async move {
            let spawn = json!({
                "program_name": program, "query": "x",
                "additional_preload_fds": [{ "fd": "fd:1", "lines": "2-3" }, "fd:2"],
            });
            Ok(match (&*request.program, request.messages.len()) {
                ("main", 1) => asks(&[("spawn", &spawn.to_string())]),
                ("helper", 1) => asks(&[("read_fd", r#"{"fd": "fd:1"}"#)]),
                _ => says("done"),
            })
        });
        let builder = Kernel::builder().model("m", requests.record(model));
        let kernel = builder
            .host(host(folder.path(), Permissions::none()))
            .build()
            .await
            .unwrap();
        let main = kernel
            .load(folder.path().join("main.toml"))
            .unwrap()
            .program;
        let session = kernel.start(main).session().without_input().await.unwrap();
        session
            .open("a", "one\ntwo\nthree\nfour\n", None)
            .await
            .unwrap();
        session.open("b", vec![0_u8, 0xff], None).await.unwrap();
        session.input("go").await.unwrap();
        within(session.wait_for(|view| view.is_idle() && view.messages == 4))
            .await
            .unwrap();
        let child = requests.of(2);
        let part = "<preload_fd fd=\"fd:1\" source=\"fd:1 lines 2-3 of the \
             parent\">two\nthree\n</preload_fd>";
        let binary = "<preload_fd fd=\"fd:2\" source=\"b\" encoding=\"base64\">AP8=</preload_fd>";
        assert!(
            child[0].system.contains(part) && child[0].system.contains(binary),
            "{}",
            child[0].system
        );
        let descriptors = kernel.processes().await.unwrap()[1]
            .view
            .as_ref()
            .unwrap()
            .descriptors;
        assert_eq!(descriptors, if in_table { 2 } else { 0 });
        if in_table {
            let read = &results(&child[1], 0)[0].0;
            assert!(
                read.contains("total_lines=\"2\"") && read.ends_with("two\nthree\n</fd_content>"),
                "{read}"
            );
        }
    }
}

/// The texts of the messages that came from other processes.
fn told(request: &Request) -> Vec<String> {
    let texts = request
        .messages
        .iter()
        .filter(|message| message.role == Role::User)
        .map(|message| message.text());
    texts
        .filter(|text| text.starts_with("<child_ended"))
        .collect()
}

/// A parent that spawns in the background, goes on, and says in the end what it was told; a child
/// that passes `gate`.
fn in_background(gate: Gate, message: &'static str) -> impl Model {
    FnModel(move |request: Request| {
        let gate = gate.clone();
        async move {
            if *request.program == *"main" {
                return Ok(parent(&request));
            }
            gate.pass().await;
            Ok(says(message))
        }
    })
}

fn parent(request: &Request) -> Reply {
    let args = json!({
        "program_name": "helper", "query": "work", "wait": false, "additional_preload_files": ["notes.txt"],
    });
    match told(request).as_slice() {
        _ if request.messages.len() == 1 => asks(&[("spawn", &args.to_string())]),
        [] => says("meanwhile"),
        all => says(&all.join("|")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_goes_on_while_its_child_works_and_ends_when_it_has_heard_of_it() {
    let (folder, gate, requests) = (folder(), Gate::default(), Requests::default());
    let long = "a long finding of many words\n".repeat(20).leak();
    let builder = Kernel::builder().model("m", requests.record(in_background(gate.clone(), long)));
    let builder = builder.host(host(folder.path(), Permissions::none().allow_read(".")));
    let (kernel, process) = start(builder, folder.path()).await;
    within(gate.entered()).await;
    let view = within(process.wait_for(|view| view.status().word() == "waiting"))
        .await
        .unwrap();
    assert!(
        !view.is_idle() && view.background_children == 1 && process.exit().is_none(),
        "{view:?}"
    );
    assert_eq!(
        results(&requests.of(1)[1], 0)[0].0,
        "<spawned pid=\"2\" program=\"helper\"/>"
    );
    gate.open();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    let start =
        "<child_ended pid=\"2\" status=\"done\">\n  <fd_result fd=\"fd:1\" source=\"spawn:2\"";
    assert!(exit.message.starts_with(start), "{exit:?}");
    assert_eq!(kernel.processes().await.unwrap().len(), 2);
    check_histories(&requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_session_keeps_its_child_and_a_killed_one_takes_it_along() {
    for killed in [false, true] {
        let (folder, gate) = (folder(), Gate::default());
        let builder = Kernel::builder().model("m", in_background(gate.clone(), "found"));
        let builder = builder.host(host(folder.path(), Permissions::none().allow_read(".")));
        let kernel = builder.build().await.unwrap();
        let main = kernel
            .load(folder.path().join("main.toml"))
            .unwrap()
            .program;
        let session = kernel.start(main).session().input("go").await.unwrap();
        within(gate.entered()).await;
        within(session.wait_for(|view| view.status().word() == "waiting"))
            .await
            .unwrap();
        let child = kernel.process(Pid(2)).await.unwrap();
        if killed {
            session.kill().await.unwrap();
            assert_eq!(
                within(child.wait()).await.unwrap().status,
                ExitStatus::Killed
            );
            continue;
        }
        session.interrupt().await.unwrap();
        gate.open();
        assert_eq!(within(child.wait()).await.unwrap().status, ExitStatus::Done);
        within(session.wait_for(|view| view.is_idle() && view.messages == 6))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_exists_is_given_its_files_no_second_time() {
    let (folder, store, gate, requests) = (
        folder(),
        tempfile::tempdir().unwrap(),
        Gate::default(),
        Requests::default(),
    );
    let open = |gate: &Gate, permissions| {
        let model = requests.record(in_background(gate.clone(), "found"));
        let builder = Kernel::open(LogStore::open(store.path()).unwrap()).model("m", model);
        builder.host(host(folder.path(), permissions))
    };
    let (kernel, process) = start(
        open(&gate, Permissions::none().allow_read(".")),
        folder.path(),
    )
    .await;
    within(gate.entered()).await;
    within(process.wait_for(|view| view.status().word() == "waiting"))
        .await
        .unwrap();
    drop(process);
    within(kernel.shutdown()).await.unwrap();
    std::fs::remove_file(folder.path().join("notes.txt")).unwrap();
    let opened = Gate::default();
    opened.open();
    let kernel = open(&opened, Permissions::none()).build().await.unwrap();
    let process = kernel.resume(Pid(1)).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(
        &*exit.message,
        "<child_ended pid=\"2\" status=\"done\">found</child_ended>"
    );
    let child = requests.of(2);
    assert!(
        child
            .iter()
            .all(|request| request.system.contains("remember"))
            && child.len() == 2,
        "{child:?}"
    );
    check_histories(&requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_restored_from_before_the_end_of_a_child_is_told_that_it_will_not_hear_of_it() {
    let (folder, store, gate) = (folder(), tempfile::tempdir().unwrap(), Gate::default());
    let model = in_background(gate.clone(), "found");
    let builder = Kernel::open(LogStore::open(store.path()).unwrap()).model("m", model);
    let builder = builder.host(host(folder.path(), Permissions::none().allow_read(".")));
    let (kernel, process) = start(builder, folder.path()).await;
    within(gate.entered()).await;
    let view = within(process.wait_for(|view| view.status().word() == "waiting"))
        .await
        .unwrap();
    let restored = within(kernel.copy(Pid(1), Some(view.fact))).await.unwrap();
    let exit = within(restored.wait()).await.unwrap();
    assert_eq!(
        exit.status,
        ExitStatus::Done,
        "it does not wait without end: {exit:?}"
    );
    gate.open();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(
        &*exit.message,
        "<child_ended pid=\"2\" status=\"done\">found</child_ended>"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_commit_was_the_last_there_is_one_child_and_its_end_is_heard_once() {
    let mut crashes = 0;
    for commits in 1.. {
        let (folder, store, gate) = (folder(), tempfile::tempdir().unwrap(), Gate::default());
        gate.open();
        let crashing = Faulty::crashing_after(commits, LogStore::open(store.path()).unwrap());
        let reading = || host(folder.path(), Permissions::none().allow_read("."));
        let builder = Kernel::open(crashing)
            .model("m", in_background(gate.clone(), "found"))
            .host(reading());
        let (kernel, process) = start(builder, folder.path()).await;
        let first = within(process.wait()).await;
        drop(process);
        within(kernel.shutdown()).await.unwrap();
        let requests = Requests::default();
        let builder = Kernel::open(LogStore::open(store.path()).unwrap()).host(reading());
        let kernel = builder
            .model("m", requests.record(in_background(gate, "found")))
            .build()
            .await
            .unwrap();
        kernel.resume_all().await.unwrap();
        let exit = within(kernel.process(Pid(1)).await.unwrap().wait())
            .await
            .unwrap();
        let said = "<child_ended pid=\"2\" status=\"done\">found</child_ended>";
        assert_eq!(
            (exit.status, &*exit.message),
            (ExitStatus::Done, said),
            "{commits} commits"
        );
        assert_eq!(
            kernel.processes().await.unwrap().len(),
            2,
            "{commits} commits"
        );
        check_histories(&requests);
        within(kernel.shutdown()).await.unwrap();
        if first.is_ok_and(|exit| exit.status == ExitStatus::Done) {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 5, "it was cut off at {crashes} places");
}
