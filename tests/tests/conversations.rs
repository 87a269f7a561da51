//! A conversation is read again at any point, as the model read it.

use std::sync::{Arc, Mutex};

use dormouse::id::{FactNumber, Pid};
use dormouse::message::Role;
use dormouse::model::Request;
use dormouse::store::MemoryStore;
use dormouse::{Kernel, KernelError, Position, StoreFailure};
use dormouse_tests::{FnModel, says, turn, within};

const PROGRAM: &str = "
[model]
name = 'm'
provider = 'scripted'
[prompt]
system = 'You count.'
[tools]
enabled = ['read_fd']
[file_descriptor]
max_input_chars = 100
";

#[tokio::test]
async fn at_each_point_it_is_what_the_model_read_there() {
    let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let model = FnModel(move |request: Request| {
        seen.lock().unwrap().push(request);
        let count = seen.lock().unwrap().len();
        async move { Ok(says(&format!("reply {count}"))) }
    });
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let program = kernel.parse(PROGRAM).unwrap().program;
    let start = kernel.start(program).session().without_input();
    let session = start.await.unwrap();
    let pid = session.pid();
    for text in ["one", "two", &"long ".repeat(100)] {
        turn(&session, text).await;
    }
    let last = within(kernel.conversation(pid, Position::Now))
        .await
        .unwrap();
    let requests = requests.lock().unwrap().clone();
    assert_eq!((last.messages.len(), requests.len()), (6, 3));
    assert!(last.system.starts_with("You count."), "{}", last.system);
    assert_eq!(last.messages[5].role, Role::Assistant);
    assert_eq!(last.messages[5].text(), "reply 3");
    assert!(last.messages[4].text().contains("<fd_result"), "{last:?}");
    for request in &requests {
        assert_eq!(
            request.messages[..],
            last.messages[..request.messages.len()]
        );
        assert_eq!(
            (&request.system, &request.tools),
            (&last.system, &last.tools)
        );
    }
    let facts = kernel.log(pid).await.unwrap();
    let mut lengths = Vec::new();
    for line in &facts {
        let point = Position::Fact(line.number);
        let then = within(kernel.conversation(pid, point)).await.unwrap();
        assert_eq!(then.messages[..], last.messages[..then.messages.len()]);
        lengths.push(then.messages.len());
    }
    assert!(lengths.is_sorted(), "{lengths:?}");
    assert_eq!((lengths[0], lengths[lengths.len() - 1]), (0, 6));
    session.kill().await.unwrap();
    session.wait().await.unwrap();
    let ended = within(kernel.conversation(pid, Position::Now))
        .await
        .unwrap();
    assert_eq!(ended.messages, last.messages);
    let beyond = Position::Fact(FactNumber(10_000));
    let error = kernel.conversation(pid, beyond).await.unwrap_err();
    assert!(error.to_string().contains("has no fact 10000"), "{error}");
    let unknown = kernel
        .conversation(Pid(77), Position::Now)
        .await
        .unwrap_err();
    assert!(unknown.to_string().contains("no process 77"), "{unknown}");
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_a_store_there_is_no_point_to_read_at() {
    let kernel = Kernel::builder().build().await.unwrap();
    let error = kernel
        .conversation(Pid(1), Position::Now)
        .await
        .unwrap_err();
    assert!(
        matches!(error, KernelError::Store(StoreFailure::NoStore)),
        "{error}"
    );
}
