//! A process of a running kernel forks 1,000 children, compared with 1,000 bare actors that are
//! started in the same run.
//!
//! A fork is measured from the model reply that requests it until the model of every child was
//! called. The actors are measured from the first start until each has handled one message. The
//! kernel has no store. This program also prints the time until every child has ended and the
//! parent has received the answer of its tool call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse::Kernel;
use dormouse::id::Pid;
use dormouse::model::{Reply, Request};
use dormouse::process::ExitStatus;
use dormouse_bench::{
    Countdown, FnModel, Outcome, Percentiles, Token, bare_actor, format_duration, kernel,
    print_line, program, ratio, text_reply, tool_call_reply,
};
use serde_json::json;
use tokio::sync::Semaphore;

const CHILDREN: usize = 1000;
const ROUNDS: usize = 21;

/// The state of one round: who forks, which children have started, and the gate at which they wait.
struct Round {
    parent: Option<Pid>,
    forked: Option<Instant>,
    started: Arc<Countdown>,
    gate: Arc<Semaphore>,
}

type SharedRound = Arc<Mutex<Round>>;

#[tokio::main]
async fn main() -> Outcome {
    let shared_round: SharedRound = Arc::new(Mutex::new(new_round()));
    let kernel = {
        let shared_round = shared_round.clone();
        kernel(
            FnModel(move |request| reply(shared_round.clone(), request)),
            2 * CHILDREN,
        )
        .await?
    };
    let (mut started, mut joined, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (each_has_begun, answered) = measure_fork(&kernel, &shared_round).await?;
        started.push(each_has_begun);
        joined.push(answered);
        bare.push(measure_actors().await?);
    }
    let (started, joined, bare) = (
        Percentiles::from_durations(started),
        Percentiles::from_durations(joined),
        Percentiles::from_durations(bare),
    );
    print_line(format_args!(
        "medians of {ROUNDS} rounds, {CHILDREN} children each"
    ))?;
    print_line(format_args!(
        "{:44} {:>10}",
        "bare actors, each has handled a message",
        format_duration(bare.median)
    ))?;
    for (what, percentiles) in [
        ("fork, each child's model was asked", started),
        ("and each has ended, the parent is answered", joined),
    ] {
        let times = ratio(percentiles.median, bare.median);
        print_line(format_args!(
            "{what:44} {:>10} {times:>6.2}x of bare",
            format_duration(percentiles.median)
        ))?;
    }
    kernel.shutdown().await?;
    Ok(())
}

fn new_round() -> Round {
    let (started, gate) = (Countdown::new(CHILDREN), Arc::new(Semaphore::new(0)));
    Round {
        parent: None,
        forked: None,
        started,
        gate,
    }
}

/// The model. The first process that calls it is the parent: it forks, and ends when its children
/// have ended. The children wait at the gate.
async fn reply(shared_round: SharedRound, request: Request) -> Reply {
    let (started, gate) = {
        let mut round = shared_round.lock().unwrap_or_else(PoisonError::into_inner);
        match round.parent {
            None => {
                round.parent = Some(request.pid);
                let prompts = vec!["look"; CHILDREN];
                let args = json!({ "prompts": prompts }).to_string();
                round.forked = Some(Instant::now());
                return tool_call_reply("fork", &args);
            }
            Some(parent) if parent == request.pid => return text_reply("all have ended"),
            Some(_) => (round.started.clone(), round.gate.clone()),
        }
    };
    started.count_down();
    let _open = gate.acquire().await;
    text_reply("done")
}

async fn measure_fork(
    kernel: &Kernel,
    shared_round: &SharedRound,
) -> Outcome<(Duration, Duration)> {
    let (started, gate) = {
        let mut current = shared_round.lock().unwrap_or_else(PoisonError::into_inner);
        *current = new_round();
        (current.started.clone(), current.gate.clone())
    };
    let parent = kernel.start(program(kernel)?).input("go").await?;
    // A handle buffers events from its creation on, and nobody reads them here.
    drop(parent.events());
    started.wait_for_zero().await;
    let each_has_begun = Instant::now();
    gate.add_permits(CHILDREN);
    let gate_opened = Instant::now();
    let exit = parent.wait().await?;
    let answered = gate_opened.elapsed();
    assert_eq!(exit.status, ExitStatus::Done, "{}", exit.message);
    let forked = shared_round
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .forked
        .expect("the parent has forked");
    let until_begun = each_has_begun - forked;
    Ok((until_begun, until_begun + answered))
}

async fn measure_actors() -> Outcome<Duration> {
    let handled = Countdown::new(CHILDREN);
    let start = Instant::now();
    let mut actors = Vec::with_capacity(CHILDREN);
    for number in 0..CHILDREN {
        let handled = handled.clone();
        let actor = bare_actor(move |_| handled.count_down()).await?;
        actor.cast(Token(number as u64))?;
        actors.push(actor);
    }
    handled.wait_for_zero().await;
    let elapsed = start.elapsed();
    actors.iter().for_each(|actor| actor.stop(None));
    Ok(elapsed)
}
