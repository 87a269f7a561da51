//! A model that fails gives way to the next that its program names, where the history can be sent
//! there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::message::{Block, Raw};
use dormouse::model::{Delta, ModelError, ModelErrorKind, Reply, Request, TokenCount};
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::server_tool::container_block;
use dormouse::{Event, Kernel, Process, ProcessView};
use dormouse_tests::{FnModel, asks, says};
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt};

type End = Result<Reply, ModelError>;

/// Who was asked, in order.
type Asked = Arc<Mutex<Vec<String>>>;

/// A kernel with these models, each of which gives its ends one after the other, and the last one
/// from then on.
async fn kernel(models: &[(&str, Vec<End>)]) -> (Kernel, Asked) {
    let asked = Asked::default();
    let mut builder = Kernel::builder().model_attempts(2);
    for (name, ends) in models {
        let (name, asked, ends) = (
            (*name).to_owned(),
            asked.clone(),
            Arc::new(Mutex::new(ends.clone())),
        );
        builder = builder.model(
            name.clone(),
            FnModel(move |_: Request| {
                asked.lock().unwrap().push(name.clone());
                let mut ends = ends.lock().unwrap();
                let end = if ends.len() > 1 {
                    ends.remove(0)
                } else {
                    ends[0].clone()
                };
                async move { end }
            }),
        );
    }
    (builder.build().await.unwrap(), asked)
}

fn fails(kind: ModelErrorKind) -> End {
    Err(ModelError {
        retry_after: Some(Duration::from_millis(1)),
        ..ModelError::new(kind, "it fails")
    })
}

async fn start(kernel: &Kernel, models: &str) -> Process {
    let text = format!("{models}\n[tools]\nenabled = [\"list_fds\", \"fork\"]\n");
    let program = kernel.parse(text).unwrap().program;
    kernel.start(program).input("go").await.unwrap()
}

const TWO: &str = "[model]\nname = \"a\"\nprovider = \"scripted\"\n[[model.fallback]]\nname = \
\"b\"\nprovider = \"scripted\"";

#[tokio::test]
async fn the_next_model_is_asked_after_so_many_failures_and_from_then_on() {
    for (after, times) in [("", 2), ("\nafter = 3", 3), ("\nafter = 1", 1)] {
        let fork = asks(&[("fork", r#"{"prompts": ["x"]}"#)]);
        let models = [
            ("a", vec![fails(ModelErrorKind::Overloaded)]),
            ("b", vec![Ok(fork), Ok(says("done"))]),
        ];
        let (kernel, asked) = kernel(&models).await;
        let events = kernel.events();
        let process = start(&kernel, &format!("{TWO}{after}")).await;
        assert_eq!(&*process.wait().await.unwrap().message, "done");
        let mut expected = vec!["a"; times];
        // The process, its child, and the process again: nobody goes back to the first.
        expected.extend(["b"; 3]);
        assert_eq!(*asked.lock().unwrap(), expected);
        drop(process);
        kernel.shutdown().await.unwrap();
        let switches = events.filter_map(|event| async move {
            match event {
                Event::ModelSwitched {
                    from, to, reason, ..
                } => Some(format!("{from} {to} {reason}")),
                _ => None,
            }
        });
        let switches: Vec<_> = switches.collect().await;
        assert_eq!(switches, ["a b the provider is overloaded: it fails"]);
    }
}

#[tokio::test]
async fn what_no_other_model_would_do_better_ends_the_process() {
    for (kind, expected) in [
        (ModelErrorKind::ContentRefused, vec!["a"]),
        (ModelErrorKind::Authentication, vec!["a", "b"]),
        (ModelErrorKind::ContextOverflow, vec!["a", "b"]),
        (ModelErrorKind::Malformed, vec!["a", "b"]),
    ] {
        let (kernel, asked) = kernel(&[("a", vec![fails(kind)]), ("b", vec![fails(kind)])]).await;
        let exit = start(&kernel, TWO).await.wait().await.unwrap();
        assert_eq!(exit.status, ExitStatus::ModelFailed);
        assert_eq!(*asked.lock().unwrap(), expected, "{kind:?}");
    }
}

#[tokio::test]
async fn what_its_model_would_read_is_counted_or_estimated() {
    struct Counting;
    impl Model for Counting {
        fn call<'a>(
            &'a self,
            _: Request,
            _: &'a (dyn Fn(Delta) + Send + Sync),
        ) -> BoxFuture<'a, End> {
            ready(Ok(says("a long reply, which is sent back from then on"))).boxed()
        }

        fn count_tokens<'a>(
            &'a self,
            request: &Request,
        ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
            ready(Ok(TokenCount::Counted(
                1_000 * request.messages.len() as u64,
            )))
            .boxed()
        }
    }
    let kernel = Kernel::builder()
        .model("a", Counting)
        .model("b", FnModel(|_| ready(Ok(says("no")))))
        .build();
    let kernel = kernel.await.unwrap();
    let of = |name: &str| format!("[model]\nname = \"{name}\"\nprovider = \"scripted\"\n");
    for name in ["a", "b"] {
        let program = kernel.parse(of(name)).unwrap().program;
        let process = kernel.start(program).session().input("go").await.unwrap();
        process.wait_for(ProcessView::is_idle).await.unwrap();
        let counted = process.count_tokens().await.unwrap();
        match name {
            "a" => assert_eq!(
                counted,
                TokenCount::Counted(2_000),
                "what was said, and the reply"
            ),
            _ => assert!(
                matches!(counted, TokenCount::Estimated(1..=20)),
                "{counted:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_model_that_cannot_be_sent_the_history_is_passed_over() {
    let thought = Raw::new("anthropic", r#"{"type":"thinking"}"#);
    let mut thinking = asks(&[("list_fds", "{}")]);
    thinking.blocks.insert(0, Block::Opaque(thought));
    let models = [
        ("a", vec![Ok(thinking), fails(ModelErrorKind::Transport)]),
        ("b", vec![Ok(says("from b"))]),
        ("c", vec![Ok(says("from c"))]),
    ];
    let of = |provider: &str| {
        let fallback = |name: &str, provider: &str| {
            format!("[[model.fallback]]\nname = \"{name}\"\nprovider = \"{provider}\"\n")
        };
        let first = "[model]\nname = \"a\"\nprovider = \"anthropic\"\n";
        format!(
            "{first}{}{}",
            fallback("b", "openai"),
            fallback("c", provider)
        )
    };
    for (provider, message, expected) in [
        ("anthropic", "from c", ["a", "a", "a", "c"].as_slice()),
        ("gemini", "it fails", &["a", "a", "a"]),
    ] {
        let (kernel, asked) = kernel(&models).await;
        let exit = start(&kernel, &of(provider)).await.wait().await.unwrap();
        assert!(exit.message.ends_with(message), "{}", exit.message);
        assert_eq!(*asked.lock().unwrap(), expected, "{provider}");
    }
}

#[tokio::test]
async fn a_container_of_the_providers_tools_is_named_at_its_own_server_only() {
    let noted = |request: &Request| {
        let mut blocks = request.messages.iter().flat_map(|message| &message.blocks);
        blocks.any(|block| container_block(block).is_some())
    };
    for (elsewhere, named) in [("base_url = \"http://localhost:1\"\n", false), ("", true)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let model = FnModel(move |request: Request| {
            let name = request.model.to_string();
            seen.lock().unwrap().push((name, noted(&request)));
            let mut calls = asks(&[("list_fds", "{}")]);
            let note = r#"{"type":"container","id":"c1"}"#;
            calls.blocks.push(Block::Opaque(Raw::adapter_block(note)));
            ready(match (&*request.model, request.messages.len()) {
                ("a", 1) => Ok(calls),
                ("a", _) => fails(ModelErrorKind::Authentication),
                _ => Ok(says("done")),
            })
        });
        let kernel = Kernel::builder().provider("anthropic", Arc::new(model));
        let kernel = kernel.build().await.unwrap();
        let of = |name: &str| format!("name = \"{name}\"\nprovider = \"anthropic\"\n");
        let (a, b) = (of("a"), of("b"));
        let models = format!("[model]\n{a}[[model.fallback]]\n{b}{elsewhere}");
        let exit = start(&kernel, &models).await.wait().await.unwrap();
        assert_eq!(&*exit.message, "done");
        let expected = [("a", false), ("a", true), ("b", named)];
        let expected = expected.map(|(model, named)| (model.to_owned(), named));
        assert_eq!(*asked.lock().unwrap(), expected, "{elsewhere}");
    }
}

#[tokio::test]
async fn a_model_named_for_summaries_is_asked_at_its_own_provider_also_after_a_switch() {
    let asked = Asked::default();
    let provider = |at: &'static str| {
        let asked = asked.clone();
        Arc::new(FnModel(move |request: Request| {
            asked
                .lock()
                .unwrap()
                .push(format!("{} at {at}", request.model));
            ready(match &*request.model {
                "a" => fails(ModelErrorKind::Authentication),
                "small" => Ok(says("in short")),
                _ if request.messages.len() == 1 => {
                    Ok(asks(&[("summarize_fd", r#"{"fd": "fd:1"}"#)]))
                }
                _ => Ok(says("done")),
            })
        }))
    };
    let kernel = Kernel::builder()
        .provider("anthropic", provider("anthropic"))
        .provider("openai", provider("openai"));
    let kernel = kernel.build().await.unwrap();
    let program = "[model]\nname = \"a\"\nprovider = \"anthropic\"\n[[model.fallback]]\nname = \
         \"b\"\nprovider = \"openai\"\n[tools]\nenabled = [\"read_fd\", \
         \"summarize_fd\"]\n[file_descriptor]\nsummary_model = \"small\"\n";
    let program = kernel.parse(program).unwrap().program;
    let exit = kernel
        .start(program)
        .input("long ".repeat(10_000))
        .await
        .unwrap()
        .wait()
        .await
        .unwrap();
    assert_eq!(&*exit.message, "done");
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "a at anthropic",
            "b at openai",
            "small at anthropic",
            "b at openai"
        ]
    );
}

#[tokio::test]
async fn what_a_server_sent_beside_its_words_does_not_go_to_another() {
    let said = |request: &Request| {
        let raw = |block: &Block| {
            matches!(
                block,
                Block::Text { raw: Some(_), .. } | Block::ToolUse { raw: Some(_), .. }
            )
        };
        let blocks = request.messages.iter().flat_map(|message| &message.blocks);
        blocks.filter(|block| raw(block)).count()
    };
    for (elsewhere, kept) in [("base_url = \"http://localhost:1\"\n", 0), ("", 1)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let model = FnModel(move |request: Request| {
            seen.lock()
                .unwrap()
                .push((request.model.to_string(), said(&request)));
            let mut calls = asks(&[("list_fds", "{}")]);
            let Block::ToolUse { raw, .. } = &mut calls.blocks[0] else {
                panic!("it calls")
            };
            *raw = Some(Raw::new("openai-chat", r#"{"reasoning_content":"hm"}"#));
            ready(match (&*request.model, request.messages.len()) {
                ("a", 1) => Ok(calls),
                ("a", _) => fails(ModelErrorKind::Authentication),
                _ => Ok(says("done")),
            })
        });
        let kernel = Kernel::builder()
            .provider("openai-chat", Arc::new(model))
            .build()
            .await
            .unwrap();
        let of = |name: &str| format!("name = \"{name}\"\nprovider = \"openai-chat\"\n");
        let models = format!(
            "[model]\n{}[[model.fallback]]\n{}{elsewhere}",
            of("a"),
            of("b")
        );
        let exit = start(&kernel, &models).await.wait().await.unwrap();
        assert_eq!(&*exit.message, "done");
        let asked: Vec<_> = asked
            .lock()
            .unwrap()
            .iter()
            .map(|(name, kept)| format!("{name} {kept}"))
            .collect();
        assert_eq!(
            asked,
            ["a 0".to_owned(), "a 1".to_owned(), format!("b {kept}")],
            "{elsewhere}"
        );
    }
}
