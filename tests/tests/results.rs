//! Typed results from end to end: what the host, a parent and a kernel that opens the store again
//! get.

use dormouse::model::Request;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Kernel, KernelError, ProcessError};
use dormouse_tests::{FnModel, Requests, asks, program, results, says, within};
use serde::Deserialize;

const RESULT: &str = "[result]\nschema = { type = \"object\", required = [\"sum\"], properties = { \
sum = { type = \"integer\" } } }\n";

#[derive(Debug, Deserialize, PartialEq)]
struct Total {
    sum: i64,
}

/// Submits what its last input says, then says it.
fn submitting() -> FnModel<
    impl Fn(Request) -> std::future::Ready<Result<dormouse::model::Reply, dormouse::model::ModelError>>,
> {
    FnModel(|request: Request| {
        let last = request.messages.last().unwrap().text();
        std::future::ready(Ok(match last.strip_prefix("submit ") {
            Some(value) => asks(&[("submit_result", &format!("{{\"value\":{value}}}"))]),
            None => says("It is seven."),
        }))
    })
}

#[tokio::test]
async fn a_host_gets_the_result_as_a_type_also_from_a_store_that_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let store = LogStore::open(folder.path()).unwrap();
        Kernel::open(store).model("m", submitting()).build()
    };
    let kernel = open().await.unwrap();
    let total = kernel
        .start(program(&kernel, RESULT))
        .input("submit {\"sum\":7}");
    let total = total.await.unwrap();
    assert_eq!(
        within(total.wait_as::<Total>()).await.unwrap(),
        Total { sum: 7 }
    );
    let other = within(total.wait_as::<Vec<u8>>()).await.unwrap_err();
    let KernelError::Process(ProcessError::Result { .. }) = other else {
        panic!("{other:?}")
    };
    let failed = kernel.start(program(&kernel, RESULT)).input("say it");
    let failed = failed.await.unwrap();
    let error = within(failed.wait_as::<Total>())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("invalid_result"), "{error}");
    let pid = total.pid();
    kernel.shutdown().await.unwrap();

    let kernel = open().await.unwrap();
    let exit = kernel.process(pid).await.unwrap().wait().await.unwrap();
    assert_eq!(exit.result_as::<Total>().unwrap(), Total { sum: 7 });
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn each_turn_of_a_session_returns_its_result() {
    let kernel = Kernel::open(MemoryStore::new()).model("m", submitting());
    let kernel = kernel.build().await.unwrap();
    let start = kernel.start(program(&kernel, RESULT));
    let session = start.session().without_input().await.unwrap();
    for sum in [3, -4] {
        let exit = within(session.turn(format!("submit {{\"sum\":{sum}}}")))
            .await
            .unwrap();
        assert_eq!(exit.result_as::<Total>().unwrap(), Total { sum });
    }
    let exit = within(session.turn("say it")).await.unwrap();
    assert_eq!(
        (exit.status, exit.result()),
        (ExitStatus::InvalidResult, None)
    );
    let exit = within(session.turn("submit {\"sum\":5}")).await.unwrap();
    assert!(exit.is_result, "the session goes on: {exit:?}");
    kernel.shutdown().await.unwrap();
}

/// A small value is the answer of the call that made the child; a large one is a descriptor.
#[tokio::test]
async fn a_parent_gets_the_values_of_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = format!(
        "{model}[tools]\nenabled = [\"read_fd\", \"spawn\", {{ name = \"fork\", access = \
         \"write\" }}, \"wait\"]\n[file_descriptor]\nmax_direct_output_chars = \
         100\n[linked_programs]\ntyped = \"typed.toml\"\n"
    );
    std::fs::write(folder.path().join("main.toml"), main).unwrap();
    let typed = format!("{model}[result]\nschema = {{ type = [\"integer\", \"array\"] }}\n");
    std::fs::write(folder.path().join("typed.toml"), typed).unwrap();
    let spawn = |query: &str, more: &str| {
        format!("{{\"program_name\":\"typed\",\"query\":\"submit {query}\"{more}}}")
    };
    let large = format!("[{}1]", "1,".repeat(200));
    let calls = [
        spawn("7", ""),
        spawn(&large, ""),
        spawn("[1]", ", \"result_schema\": {\"maxItems\": 1}"),
        spawn("[1, 2]", ", \"result_schema\": {\"maxItems\": 1}"),
    ];
    let requests = Requests::default();
    let answer = move |request: Request| {
        let last = request.messages.last().unwrap().text();
        let calls: Vec<_> = calls.iter().map(|args| ("spawn", args.as_str())).collect();
        std::future::ready(Ok(
            match (&*request.program, last.strip_prefix("submit ")) {
                ("typed", Some(value)) => {
                    asks(&[("submit_result", &format!("{{\"value\":{value}}}"))])
                }
                ("main", _) if request.messages.len() == 1 => asks(&calls),
                _ => says("done"),
            },
        ))
    };
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", requests.record(FnModel(answer)))
        .host(
            dormouse::host::LocalHost::new(dormouse::host::Permissions::none(), folder.path())
                .unwrap(),
        )
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let parent = kernel.start(main).input("go").await.unwrap();
    within(parent.wait()).await.unwrap();
    let answered = results(requests.of(parent.pid().0).last().unwrap(), 0);
    let [small, large, narrowed, refused] = &answered[..] else {
        panic!("{answered:?}")
    };
    assert_eq!(*small, ("7".to_owned(), false));
    assert!(
        large
            .0
            .starts_with("<fd_result fd=\"fd:1\" source=\"spawn:"),
        "{large:?}"
    );
    assert_eq!(*narrowed, ("[1]".to_owned(), false));
    assert!(
        refused.1 && refused.0.contains("ended as invalid_result"),
        "{refused:?}"
    );
    kernel.shutdown().await.unwrap();
}
