//! The cost of a fork, compared with copying the contents of the process in the same run: the
//! decision that makes one child, and the child's state from its image.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use dormouse_content::Content;
use dormouse_kernel::process::{
    Birth, Completion, Effect, HostContext, Input, Preloads, Signal, State, decide, evolve,
    initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::Priority;
use dormouse_proto::record::{Entry, Lifetime, Phase};
use dormouse_proto::tool::Access;

const PROGRAM: &[u8] =
    b"[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"read_fd\", \"fork\"]\n";
const HOLDINGS: [(u32, usize); 3] = [(100, 1_000_000), (100, 1_000), (10_000, 1_000)];

fn main() {
    divan::main();
}

fn text(len: usize) -> Vec<u8> {
    "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n"
        .bytes()
        .cycle()
        .take(len)
        .collect()
}

/// A process that holds `count` descriptors of `len` bytes and waits for its model.
fn holding(count: u32, len: usize) -> State {
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from_static(PROGRAM)),
        &[],
    );
    let (program, around) = (
        compiled.expect("the program is valid").program,
        Arc::new(HostContext::new(&TOOL_SET)),
    );
    let said = "go".into();
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Task,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&said),
    };
    let mut image = initial_image(&program, &around, birth, 0);
    let entry = |content| Entry::new(content, 4000, "tool:bench", 0);
    image.table = (1..=count)
        .map(|number| (FdId::Fd(number), entry(Content::new(text(len)))))
        .collect();
    image.next_fd = count + 1;
    let mut state = State::from_image(Pid(1), program, around, image).expect("the image is valid");
    let begun = decide(&state, Input::Signal(Signal::Resume), 0).read_all(0);
    begun.facts.iter().for_each(|fact| evolve(&mut state, fact));
    state
}

/// The reply of the model: a fork into one child.
fn fork(state: &State) -> Input {
    let Phase::Thinking { call } = *state.phase() else {
        unreachable!("it waits for its model")
    };
    let args = r#"{"prompts": ["look"]}"#.into();
    let blocks = vec![Block::ToolUse {
        id: "u".into(),
        name: "fork".into(),
        args,
        raw: None,
    }];
    Input::Completed {
        call,
        result: Completion::Model(Ok(Reply {
            blocks,
            stop: StopReason::ToolUse,
            usage: Usage::default(),
        })),
    }
}

#[divan::bench(args = HOLDINGS)]
fn fork_image(bencher: Bencher<'_, '_>, (count, len): (u32, usize)) {
    let state = holding(count, len);
    bencher
        .with_inputs(|| fork(&state))
        .bench_local_values(|input| decide(black_box(&state), input, 0).read_all(0));
}

#[divan::bench(args = HOLDINGS)]
fn child_from_image(bencher: Bencher<'_, '_>, (count, len): (u32, usize)) {
    let state = holding(count, len);
    let mut effects = decide(&state, fork(&state), 0).read_all(0).effects;
    let Some(Effect::StartChildren { children, .. }) = effects.pop() else {
        unreachable!("a child is made")
    };
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let parts = || {
        (
            children[0].program.clone(),
            around.clone(),
            children[0].image.clone(),
        )
    };
    bencher
        .with_inputs(parts)
        .bench_local_values(|(program, around, image)| {
            State::from_image(Pid(2), program, around, image)
        });
}

#[divan::bench(args = HOLDINGS, sample_count = 20)]
fn limit_copy_of_the_bytes(bencher: Bencher<'_, '_>, (count, len): (u32, usize)) {
    let contents: Vec<Vec<u8>> = (0..count).map(|_| text(len)).collect();
    let bytes = BytesCount::new(count as usize * len);
    bencher
        .counter(bytes)
        .bench_local(|| black_box(&contents).clone());
}
