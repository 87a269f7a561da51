//! The cost of a fork of a process with much content, compared with a copy of the same bytes.
//! Prints JSON, for a script that compares the figures with those of another system.
//!
//! `fork_image COUNTxBYTES...`: each argument is a number of descriptors and their size. For each,
//! this program measures the decision that creates one child, loading the child's state from its
//! image, both together, and the copy. It uses the process machine without actors: `decide`
//! takes the reply of the model that requests the fork, and its effects contain the child's image.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse_bench::{Outcome, Percentiles, print_line, tool_call_reply};
use dormouse_content::Content;
use dormouse_kernel::process::{
    Birth, Completion, Effect, HostContext, Input, Preloads, Signal, State, decide, evolve,
    initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::process::Priority;
use dormouse_proto::record::{Entry, Lifetime, Phase};
use dormouse_proto::tool::Access;
use serde_json::json;

const PROGRAM: &[u8] =
    b"[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"read_fd\", \"fork\"]\n";
const LINE: &str =
    "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n";
const FORKS: usize = 201;
const COPIES: usize = 11;

fn main() -> Outcome {
    let mut figures = Vec::new();
    for argument in std::env::args().skip(1) {
        let (count, bytes) = argument
            .split_once('x')
            .ok_or("fork_image COUNTxBYTES...")?;
        figures.push(measure(count.parse()?, bytes.parse()?)?);
    }
    print_line(serde_json::Value::from(figures)).map_err(Into::into)
}

fn measure(count: u32, bytes: usize) -> Outcome<serde_json::Value> {
    let state = process_with_descriptors(count, bytes)?;
    let host_context = Arc::new(HostContext::new(&TOOL_SET));
    let (mut decisions, mut children) = (Vec::new(), Vec::new());
    for _ in 0..FORKS {
        let input = fork_reply(&state);
        let start = Instant::now();
        let mut effects = decide(black_box(&state), input, 0).read_all(0).effects;
        decisions.push(start.elapsed());
        let Some(Effect::StartChildren {
            children: mut requests,
            ..
        }) = effects.pop()
        else {
            panic!("a child is made")
        };
        let child = requests.pop().expect("one child");
        let host_context = host_context.clone();
        let start = Instant::now();
        let child = State::from_image(Pid(2), child.program, host_context, child.image);
        children.push(start.elapsed());
        assert_eq!(
            child?.table().len(),
            count as usize,
            "the child has all descriptors of its parent"
        );
    }
    let contents: Vec<Vec<u8>> = (0..count).map(|_| repeat_line(bytes)).collect();
    let copies = (0..COPIES).map(|_| {
        let start = Instant::now();
        let copy = black_box(&contents).clone();
        let elapsed = start.elapsed();
        drop(black_box(copy));
        elapsed
    });
    let [decide, child, copy] = [decisions, children, copies.collect()]
        .map(|durations| Percentiles::from_durations(durations).median);
    let nanos = |duration: Duration| duration.as_nanos() as u64;
    Ok(json!({
        "count": count,
        "bytes": bytes,
        "decide_ns": nanos(decide),
        "child_ns": nanos(child),
        "fork_ns": nanos(decide + child),
        "copy_ns": nanos(copy),
    }))
}

fn repeat_line(bytes: usize) -> Vec<u8> {
    LINE.bytes().cycle().take(bytes).collect()
}

/// A process that holds `count` descriptors of `bytes` bytes and waits for its model.
fn process_with_descriptors(count: u32, bytes: usize) -> Outcome<State> {
    let program = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from_static(PROGRAM)),
        &[],
    )?
    .program;
    let (host_context, user_input) = (Arc::new(HostContext::new(&TOOL_SET)), "go".into());
    let (access, lifetime, preloads) = (Access::Admin, Lifetime::Task, &Preloads::default());
    let (priority, input) = (Priority::Normal, Some(&user_input));
    let creation = Birth {
        access,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input,
    };
    let mut image = initial_image(&program, &host_context, creation, 0);
    let entry = |number| {
        (
            FdId::Fd(number),
            Entry::new(Content::new(repeat_line(bytes)), 4000, "tool:bench", 0),
        )
    };
    image.table = (1..=count).map(entry).collect();
    image.next_fd = count + 1;
    let mut state = State::from_image(Pid(1), program, host_context, image)?;
    let resumed = decide(&state, Input::Signal(Signal::Resume), 0).read_all(0);
    resumed
        .facts
        .iter()
        .for_each(|fact| evolve(&mut state, fact));
    Ok(state)
}

/// The reply of the model: a fork into one child.
fn fork_reply(state: &State) -> Input {
    let Phase::Thinking { call } = *state.phase() else {
        unreachable!("it waits for its model")
    };
    Input::Completed {
        call,
        result: Completion::Model(Ok(tool_call_reply("fork", r#"{"prompts": ["look"]}"#))),
    }
}
