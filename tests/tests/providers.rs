//! Providers of the embedder, which programs name as they name those that every kernel knows.

use std::sync::Arc;

use dormouse::model::Request;
use dormouse::store::MemoryStore;
use dormouse::{Kernel, Recovery};
use dormouse_tests::{FnModel, says, turn, within};

const PROGRAM: &str =
    "[model]\nname = \"small\"\nprovider = \"mine\"\nbase_url = \"https://host\"\n";

/// Says which model is asked of which provider.
fn provider(word: &'static str) -> Arc<impl dormouse::ports::Model> {
    let reply =
        move |request: Request| async move { Ok(says(&format!("{} of {word}", request.model))) };
    Arc::new(FnModel(reply))
}

#[tokio::test]
async fn a_program_names_a_provider_of_the_embedder_also_as_a_fallback_and_after_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let open = || {
        Kernel::open(store.clone())
            .provider("mine", provider("mine"))
            .recovery(Recovery::Resume)
    };
    let kernel = open().build().await.unwrap();
    let program = kernel.parse(PROGRAM).unwrap().program;
    let session = kernel
        .start(program)
        .session()
        .without_input()
        .await
        .unwrap();
    let pid = session.pid();
    assert_eq!(turn(&session, "hello").await, "small of mine");
    let fallback = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[[model.fallback]]\nname = \
                    \"n\"\nprovider = \"mine\"\n";
    kernel.parse(fallback).unwrap();
    kernel.shutdown().await.unwrap();
    let kernel = open().build().await.unwrap();
    let session = within(kernel.process(pid)).await.unwrap();
    assert_eq!(turn(&session, "again").await, "small of mine");
    kernel.shutdown().await.unwrap();
    // Where it is not registered any more, the process is held as it is, and goes on once it is.
    let kernel = Kernel::open(store.clone())
        .provider("other", provider("other"))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let held = within(kernel.resume(pid)).await.unwrap_err().to_string();
    assert!(held.contains("provider 'mine'"), "{held}");
    kernel.shutdown().await.unwrap();
    let kernel = open().build().await.unwrap();
    let session = within(kernel.process(pid)).await.unwrap();
    assert_eq!(turn(&session, "and now?").await, "small of mine");
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_provider_that_nobody_registered_is_an_error_that_names_those_there_are() {
    let kernel = Kernel::builder()
        .provider("mine", provider("mine"))
        .provider("gemini", provider("gemini"))
        .build()
        .await
        .unwrap();
    for (word, help) in [
        ("mime", "did you mean `mine`?"),
        ("antropic", "did you mean `anthropic`?"),
    ] {
        let errors = kernel.parse(PROGRAM.replace("mine", word)).unwrap_err();
        assert!(
            errors.to_string().contains("`model.provider` cannot be"),
            "{errors}"
        );
        let finding = format!("{:?}", errors.errors());
        assert!(
            finding.contains(help)
                && finding.contains("gemini, ")
                && finding.contains("scripted, mine\""),
            "{finding}"
        );
    }
    let kernel = Kernel::builder().build().await.unwrap();
    assert!(kernel.parse(PROGRAM).is_err());
}
