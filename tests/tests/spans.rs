//! What is traced: spans with the names of OpenTelemetry's conventions for generative AI, and what
//! they stand below.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use dormouse::message::Role;
use dormouse::model::{ModelError, ModelErrorKind, Reply, Request, StopReason, Usage};
use dormouse::process::ExitStatus;
use dormouse::{FnTool, Kernel};
use dormouse_tests::{FnModel, asks, program, says, within};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<String, String>,
    parent: Option<usize>,
}

impl Seen {
    fn name(&self) -> &str {
        &self.fields["otel.name"]
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields
            .insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields
            .insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Keeps every span of the kernel that is made on this thread.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    seen: Vec<Seen>,
    /// Where each stands, by an id that is used again once its span is closed.
    numbers: HashMap<Id, usize>,
}

impl Spans {
    fn install() -> (Self, DefaultGuard) {
        let spans = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(spans.clone()));
        (spans, guard)
    }

    fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().seen.clone()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_span() && metadata.target().starts_with("dormouse")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).unwrap().parent().map(|parent| parent.id());
        let Kept { seen, numbers } = &mut *self.0.lock().unwrap();
        let mut span = Seen {
            fields: BTreeMap::new(),
            parent: parent.map(|parent| numbers[&parent]),
        };
        attributes.record(&mut span);
        numbers.insert(id.clone(), seen.len());
        seen.push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let Kept { seen, numbers } = &mut *self.0.lock().unwrap();
        values.record(&mut seen[numbers[id]]);
    }
}

#[track_caller]
fn check(seen: &Seen, parent: Option<usize>, expected: &[(&str, &str)]) {
    let expected = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    assert_eq!(seen.fields, expected.collect::<BTreeMap<_, _>>());
    assert_eq!(seen.parent, parent, "{seen:?}");
}

#[tokio::test]
async fn a_turn_its_model_calls_and_its_tool_calls_are_traced_by_the_conventions_without_a_word_of_content()
 {
    let (spans, _guard) = Spans::install();
    let model = FnModel(|request: Request| async move {
        let usage = Usage {
            input_tokens: 5,
            output_tokens: 7,
            cache_read_tokens: 100,
            cache_write_tokens: 20,
            ..Usage::default()
        };
        let answered = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let reply = match answered {
            0 => asks(&[("good", "{}"), ("bad", "{}"), ("list_fds", "{}")]),
            _ => Reply {
                stop: StopReason::MaxTokens,
                ..says("SECRET")
            },
        };
        Ok(Reply { usage, ..reply })
    });
    let good = FnTool::new("good", "Works.", |()| async {
        tracing::info_span!(target: "dormouse_test", "inner", otel.name = "inner").in_scope(|| {});
        Ok::<_, String>("SECRET")
    });
    let bad = FnTool::new("bad", "Fails.", |()| async { Err::<String, _>("SECRET") });
    let kernel = Kernel::builder()
        .model("m", model)
        .tool(good)
        .tool(bad)
        .build()
        .await
        .unwrap();
    let rest = "[prompt]\nsystem = \"SECRET\"\n[parameters]\nmax_tokens = 300\n[tools]\nenabled = \
         [\"good\", \"bad\", \"list_fds\"]\n";
    let process = kernel
        .start(program(&kernel, rest))
        .input("SECRET")
        .await
        .unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Truncated
    );

    let all = spans.all();
    let names: Vec<_> = all.iter().map(Seen::name).collect();
    let place = |name: &str| {
        names
            .iter()
            .position(|other| *other == name)
            .unwrap_or_else(|| panic!("{name}: {names:?}"))
    };
    assert_eq!(names.len(), 6, "descriptor tools have none: {names:?}");
    let turn = [
        ("otel.name", "invoke_agent program"),
        ("otel.kind", "internal"),
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "program"),
        ("gen_ai.agent.id", "1"),
        ("gen_ai.conversation.id", "1"),
        ("error.type", "truncated"),
        ("otel.status_code", "ERROR"),
    ];
    check(&all[0], None, &turn);
    let chat = [
        ("otel.name", "chat m"),
        ("otel.kind", "client"),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "scripted"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.request.max_tokens", "300"),
        ("gen_ai.conversation.id", "1"),
        ("gen_ai.usage.input_tokens", "125"),
        ("gen_ai.usage.output_tokens", "7"),
        ("gen_ai.usage.cache_read.input_tokens", "100"),
        ("gen_ai.usage.cache_creation.input_tokens", "20"),
    ];
    check(
        &all[1],
        Some(0),
        &[
            &chat[..],
            &[("gen_ai.response.finish_reasons", "[\"tool_call\"]")],
        ]
        .concat(),
    );
    check(
        all.last().unwrap(),
        Some(0),
        &[
            &chat[..],
            &[("gen_ai.response.finish_reasons", "[\"length\"]")],
        ]
        .concat(),
    );
    for (tool, id, failure) in [
        ("good", "use_0", None),
        ("bad", "use_1", Some("tool_error")),
    ] {
        let name = format!("execute_tool {tool}");
        let mut expected = vec![
            ("otel.name", &*name),
            ("otel.kind", "internal"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", tool),
            ("gen_ai.tool.call.id", id),
        ];
        expected.extend(
            failure
                .into_iter()
                .flat_map(|kind| [("error.type", kind), ("otel.status_code", "ERROR")]),
        );
        check(&all[place(&name)], Some(0), &expected);
    }
    assert_eq!(
        all[place("inner")].parent,
        Some(place("execute_tool good")),
        "what a tool traces stands below its call"
    );
    assert!(!format!("{all:?}").contains("SECRET"), "{all:#?}");
}

#[tokio::test]
async fn a_model_call_that_fails_says_how_and_each_turn_has_a_span_of_its_own() {
    let (spans, _guard) = Spans::install();
    let model = FnModel(|request: Request| async move {
        let said = request.messages.last().unwrap().text();
        match &*said {
            "panic" => panic!("the model panics"),
            "fail" => Err(ModelError::new(ModelErrorKind::Authentication, "refused")),
            _ => Ok(says("done")),
        }
    });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    for said in ["fail", "panic", "fine"] {
        dormouse_tests::turn(&session, said).await;
    }
    let all = spans.all();
    let errors: Vec<_> = all
        .iter()
        .map(|seen| {
            (
                seen.name(),
                seen.fields.get("error.type").map(String::as_str),
            )
        })
        .collect();
    let expected = [
        ("invoke_agent program", Some("model_failed")),
        ("chat m", Some("authentication")),
        ("invoke_agent program", Some("model_failed")),
        ("chat m", Some("panic")),
        ("invoke_agent program", None),
        ("chat m", None),
    ];
    assert_eq!(errors, expected);
    assert_eq!(
        all.iter().map(|seen| seen.parent).collect::<Vec<_>>(),
        [None, Some(0), None, Some(2), None, Some(4)]
    );
}

#[tokio::test]
async fn the_turns_of_a_tree_share_their_conversation_and_no_call_of_the_host_stands_in_one() {
    let (spans, _guard) = Spans::install();
    let model = FnModel(|request: Request| async move {
        Ok(match (request.pid.0, request.messages.len()) {
            (1, 1) => asks(&[("fork", r#"{"prompts": ["go"]}"#)]),
            _ => says("done"),
        })
    });
    let tool = FnTool::new("tool", "Works.", |()| async { Ok::<_, String>("done") });
    let kernel = Kernel::builder()
        .model("m", model)
        .tool(tool)
        .build()
        .await
        .unwrap();
    let parent = program(&kernel, "[tools]\nenabled = [\"fork\", \"tool\"]\n");
    let parent = kernel.start(parent).session().input("go").await.unwrap();
    within(parent.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    within(parent.call("tool", "{}")).await.unwrap();
    let all = spans.all();
    let turns: Vec<_> = all
        .iter()
        .filter(|seen| seen.name().starts_with("invoke_agent"))
        .collect();
    let ids = |name: &str| {
        turns
            .iter()
            .map(|turn| turn.fields[name].as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (ids("gen_ai.agent.id"), ids("gen_ai.conversation.id")),
        (vec!["1", "2"], vec!["1", "1"])
    );
    assert!(turns.iter().all(|turn| turn.parent.is_none()));
    let tool = all
        .iter()
        .find(|seen| seen.name() == "execute_tool tool")
        .unwrap();
    assert_eq!(tool.parent, None, "it is no part of a turn");
}
