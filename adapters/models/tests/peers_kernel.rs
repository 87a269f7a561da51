//! Whole kernels on real servers: the process machine, a tool of the host, descriptors and
//! streaming, through HTTP. `.ci/peers` starts the servers and runs this.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dormouse_actors::handle::{FnTool, Kernel, Process};
use dormouse_actors::{Event, Fact};
use dormouse_models::Anthropic;
use dormouse_models::anthropic::Messages;
use dormouse_models::chat::Completions;
use dormouse_models::gemini::GenerateContent;
use dormouse_models::responses::Responses;
use dormouse_models::wire::{Client, Codec};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::CallFact;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;

const PROGRAM: &str = r#"
[model]
name = "tiny"
provider = "anthropic"
max_iterations = 3
[prompt]
system = "You look around."
[parameters]
max_tokens = 2000
# The tiny model would open one call after the other until it is cut.
stop_sequences = ["</tool_call>"]
[tools]
enabled = ["ls", "read_fd"]
[file_descriptor]
max_direct_output_chars = 200
default_page_size = 100
"#;

/// The program, with what each format calls the words to stop at.
fn program<C: Codec>() -> String {
    match C::FORMAT {
        "anthropic" | "gemini" => PROGRAM.to_owned(),
        "openai-chat" => PROGRAM.replace("stop_sequences", "stop"),
        _ => PROGRAM
            .replace("max_tokens = 2000", "max_tokens = 120")
            .replace("stop_sequences = [\"</tool_call>\"]", ""),
    }
}

/// What a server may ask for; whatever it asks, it gets the same list.
#[derive(Deserialize, JsonSchema)]
struct Look {
    /// The folder.
    #[serde(default)]
    #[expect(dead_code, reason = "the list does not depend on it")]
    path: Option<String>,
    /// How deep.
    #[serde(default)]
    #[expect(dead_code, reason = "the list does not depend on it")]
    depth: Option<i64>,
}

async fn run<C: Codec>(variable: &str, input: &str) -> (Process, Exit, Vec<Event>) {
    let url = std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} must name a server: see .ci/peers"));
    let model = Client::<C>::builder()
        .api_key("test")
        .base_url(url)
        .build()
        .unwrap();
    let list = FnTool::new("ls", "Lists a folder.", |_: Look| async {
        Ok::<_, String>("a.txt is a file with a line of its own\n".repeat(100))
    });
    let kernel = Kernel::builder()
        .model("tiny", model)
        .tool(list.idempotent())
        .build()
        .await
        .unwrap();
    let program = kernel.parse(program::<C>()).unwrap().program;
    let process = kernel.start(program).input(input).await.unwrap();
    let events = process.events();
    let exit = process.wait().await.unwrap();
    let events = events
        .take_until(tokio::time::sleep(std::time::Duration::from_millis(50)))
        .collect()
        .await;
    (process, exit, events)
}

async fn led_to_its_answer<C: Codec>() {
    let (process, exit, events) = run::<C>("DORMOUSE_AIMOCK_URL", "list the files").await;
    assert_eq!(
        (exit.status, &*exit.message),
        (ExitStatus::Done, "There are two files."),
        "{}",
        C::FORMAT
    );
    let view = process.view().unwrap();
    // The server asks for the list and for its first page at once: the page is there in the second
    // round only.
    assert_eq!((view.descriptors, view.messages), (2, 6));
    assert!(
        view.output_totals.produced_chars > 7_800 && view.output_totals.entered_chars < 2_000,
        "{:?}",
        view.output_totals
    );
    let streamed: String = events
        .iter()
        .filter_map(|event| {
            if let Event::Text { text, .. } = event {
                Some(&**text)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(streamed, "I will look.I will look.There are two files.");
}

#[tokio::test]
#[ignore = "needs a server: see .ci/peers"]
async fn a_swarm_is_led_through_parallel_tools_to_its_answer() {
    led_to_its_answer::<Messages>().await;
    led_to_its_answer::<Completions>().await;
    led_to_its_answer::<Responses>().await;
    led_to_its_answer::<GenerateContent>().await;
}

async fn every_request_is_accepted<C: Codec>(variable: &str) {
    let (process, exit, _) = run::<C>(variable, "What is here?").await;
    assert_eq!(
        exit.status,
        ExitStatus::IterationLimit,
        "{}: {}",
        C::FORMAT,
        exit.message
    );
    let view = process.view().unwrap();
    assert_eq!(
        view.messages, 7,
        "three replies that each ask for a tool, and their answers"
    );
    assert!(
        view.usage.output_tokens > 0 && view.usage.input_tokens + view.usage.cache_read_tokens > 0,
        "{:?}",
        view.usage
    );
}

#[tokio::test]
#[ignore = "needs a server: see .ci/peers"]
async fn a_real_server_accepts_every_request_of_a_whole_turn() {
    every_request_is_accepted::<Messages>("DORMOUSE_LLAMA_URL").await;
    every_request_is_accepted::<Completions>("DORMOUSE_LLAMA_URL").await;
    every_request_is_accepted::<Responses>("DORMOUSE_LLAMA_URL").await;
    every_request_is_accepted::<Completions>("DORMOUSE_LITELLM_URL").await;
}

#[tokio::test]
#[ignore = "needs a server: see .ci/peers"]
async fn an_overloaded_server_is_asked_again_and_then_given_up_by_name() {
    let url = std::env::var("DORMOUSE_AIMOCK_URL").unwrap();
    let model = Anthropic::builder()
        .api_key("test")
        .base_url(url)
        .build()
        .unwrap();
    let kernel = Kernel::builder()
        .model("tiny", model)
        .model_attempts(2)
        .build()
        .await
        .unwrap();
    let program = kernel
        .parse("[model]\nname = \"tiny\"\nprovider = \"anthropic\"\n")
        .unwrap()
        .program;
    let process = kernel.start(program).input("too many").await.unwrap();
    let events = process.events();
    let exit = process.wait().await.unwrap();
    assert_eq!(exit.status, ExitStatus::ModelFailed);
    assert!(exit.message.contains("overloaded"), "{}", exit.message);
    let retried =
        events.take_while(|event| std::future::ready(!matches!(event, Event::Exited { .. })));
    let retried = retried
        .filter(|event| std::future::ready(matches!(event, Event::Retrying { .. })))
        .count()
        .await;
    assert_eq!(retried, 1);
}

/// The usage of each process's first reply, by pid.
fn first_usages(events: &[Event]) -> std::collections::BTreeMap<u64, Usage> {
    let mut usages = std::collections::BTreeMap::new();
    for event in events {
        if let Event::Fact { pid, fact, .. } = event
            && let Fact::Call(CallFact::ModelReplied { usage, .. }) = &**fact
        {
            usages.entry(pid.0).or_insert(*usage);
        }
    }
    usages
}

#[tokio::test]
#[ignore = "needs a server: see .ci/peers"]
#[expect(
    clippy::print_stderr,
    reason = "what the server had in its cache is the result"
)]
async fn forked_children_find_their_parents_prefix_in_the_servers_cache() {
    const CHILDREN: u64 = 3;
    let url = std::env::var("DORMOUSE_LLAMA_URL").unwrap();
    let toml = PROGRAM
        .replace("\"ls\", \"read_fd\"", "\"read_fd\", \"fork\"")
        .replace("max_iterations = 3", "max_iterations = 1")
        .replace("max_tokens = 2000", "max_tokens = 200");
    for at_once in [1, 4] {
        let model = Anthropic::builder()
            .api_key("test")
            .base_url(url.clone())
            .build()
            .unwrap();
        let kernel = Kernel::builder()
            .model("tiny", model)
            .model_calls(at_once)
            .build()
            .await
            .unwrap();
        let toml = toml.replace(
            "You look around.",
            &format!("You look around, {at_once} at once."),
        );
        let program = kernel.parse(toml).unwrap().program;
        let process = kernel
            .start(program)
            .session()
            .without_input()
            .await
            .unwrap();
        let events = kernel.events();
        process
            .input("Where are the files, and what is in each of them?\n".repeat(400))
            .await
            .unwrap();
        process
            .wait_for(|view| view.is_idle() && view.messages > 0)
            .await
            .unwrap();
        let answer = process
            .call(
                "fork",
                r#"{"prompts": ["Look for a.", "Look for b.", "Look for c."]}"#,
            )
            .await
            .unwrap();
        assert!(answer.text.contains("children=\"3\""), "{answer:?}");
        let is_over = |event: &Event| matches!(event, Event::Exited { .. });
        let mut ended = 0;
        let events: Vec<Event> = events
            .take_while(|event| {
                ended += u64::from(is_over(event));
                std::future::ready(ended < CHILDREN)
            })
            .collect()
            .await;
        let usages = first_usages(&events);
        let parent = usages[&process.pid().0];
        let prefix = parent.input_tokens + parent.cache_read_tokens;
        eprintln!("{at_once} at once: the parent sent {prefix} tokens");
        for pid in 2..=1 + CHILDREN {
            let Usage {
                input_tokens,
                cache_read_tokens,
                ..
            } = usages.get(&pid).copied().unwrap_or_default();
            eprintln!("  child {pid}: {cache_read_tokens} from the cache, {input_tokens} anew");
            // One after the other each finds what the one before it left; at once the server has a
            // slot for one of them.
            assert!(
                at_once > 1 || cache_read_tokens * 10 >= prefix * 9,
                "child {pid}: {cache_read_tokens} of {prefix}"
            );
        }
    }
}
