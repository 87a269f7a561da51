//! Messages a second between processes, beside those between bare actors in the same run.
//!
//! What is counted: *delivered*, a message that its sender knows to be durable, to a process that
//! is stopped, so that nothing follows from it; *passed on*, a message to a session that waits,
//! which begins a turn, asks its model, and whose model sends the next message before it replies. A
//! bare actor casts to the next. The kernel has no store.
//!
//! A message is sent by the host, in the name of the process: [`send`] is the one place that says
//! how.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::model::{Reply, Request};
use dormouse::{Kernel, Process};
use dormouse_bench::{
    Countdown, Outcome, Replies, Spread, Token, bare, kernel, line, program, ratio, says,
};
use futures_util::future::try_join_all;
use ractor::ActorRef;

const ROUNDS: usize = 7;
const MESSAGES: usize = 20_000;
/// Turns of one process at most: a request holds all of its conversation, which grows with each
/// turn.
const TURNS: usize = 200;
const AT_ONCE: usize = 100;

/// Processes that stand in a ring, by their place in it, and how many messages they still pass on.
#[derive(Default)]
struct Ring {
    members: OnceLock<Members>,
}

struct Members {
    processes: Vec<Process>,
    left: Arc<Countdown>,
}

#[tokio::main]
async fn main() -> Outcome {
    for (members, tokens) in [(2, 1), (1000, 1000)] {
        let messages = MESSAGES.min(TURNS * members);
        let (mut delivered, mut passed, mut cast) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            delivered.push(deliver(members, messages).await?);
            passed.push(pass_on(members, tokens, messages).await?);
            cast.push(between_actors(members, tokens, messages).await?);
        }
        let (delivered, passed, cast) =
            (Spread::of(delivered), Spread::of(passed), Spread::of(cast));
        line(format_args!(
            "among {members}, {tokens} on their way: medians of {ROUNDS} rounds of {messages} \
             messages"
        ))?;
        for (what, spread) in [
            ("bare, cast on", cast),
            ("delivered, receiver stopped", delivered),
            ("passed on, a turn each", passed),
        ] {
            let a_second = messages as f64 / spread.median.as_secs_f64();
            let times = ratio(spread.median, cast.median);
            line(format_args!(
                "  {what:30} {a_second:>12.0} a second {times:>8.1}x of bare"
            ))?;
        }
    }
    Ok(())
}

/// How a process says something to another.
async fn send(from: Pid, to: &Process) -> Outcome {
    Ok(to.message(from, "and on it goes").await?)
}

async fn sessions(kernel: &Kernel, count: usize) -> Outcome<Vec<Process>> {
    let program = program(kernel)?;
    let starts = (0..count).map(|_| {
        kernel
            .start(program.clone())
            .session()
            .without_input()
            .into_future()
    });
    Ok(try_join_all(starts).await?)
}

/// Processes that are stopped get messages, each from the one before it.
async fn deliver(members: usize, messages: usize) -> Outcome<Duration> {
    let kernel = kernel(Replies(|_| async { says("nobody asks") }), 16).await?;
    let processes = Arc::new(sessions(&kernel, members).await?);
    for process in processes.iter() {
        process.stop().await?;
    }
    let start = Instant::now();
    let senders = (0..members.min(AT_ONCE)).map(|sender| {
        let processes = processes.clone();
        let senders = members.min(AT_ONCE);
        tokio::spawn(async move {
            for number in (sender..messages).step_by(senders) {
                let (from, to) = (
                    &processes[number % members],
                    &processes[(number + 1) % members],
                );
                send(from.pid(), to).await?;
            }
            Outcome::Ok(())
        })
    });
    for sent in try_join_all(senders).await? {
        sent?;
    }
    let taken = start.elapsed();
    kernel.shutdown().await?;
    Ok(taken)
}

/// Each process says something to the next when it was said something.
async fn pass_on(members: usize, tokens: usize, messages: usize) -> Outcome<Duration> {
    let ring = Arc::new(Ring::default());
    let model = {
        let ring = ring.clone();
        Replies(move |request| next(ring.clone(), request))
    };
    let kernel = kernel(model, 16).await?;
    let processes = sessions(&kernel, members).await?;
    let left = Countdown::from(messages);
    let known = ring.members.set(Members {
        processes: processes.clone(),
        left: left.clone(),
    });
    assert!(known.is_ok(), "the ring is formed once");
    let start = Instant::now();
    for process in processes.iter().cycle().take(tokens) {
        send(Pid(0), process).await?;
    }
    left.ended().await;
    let taken = start.elapsed();
    kernel.shutdown().await?;
    Ok(taken)
}

/// Processes have the numbers 1 and on in a kernel of their own.
async fn next(ring: Arc<Ring>, request: Request) -> Reply {
    let members = ring
        .members
        .get()
        .expect("nobody is spoken to before the ring is formed");
    let next = &members.processes[request.pid.0 as usize % members.processes.len()];
    members.left.count();
    // A kernel that shuts down takes no more.
    let _ = send(request.pid, next).await;
    says("passed on")
}

async fn between_actors(members: usize, tokens: usize, messages: usize) -> Outcome<Duration> {
    let ring: Arc<OnceLock<Vec<ActorRef<Token>>>> = Arc::default();
    let left = Countdown::from(messages);
    let mut actors = Vec::with_capacity(members);
    for place in 0..members {
        let (ring, left) = (ring.clone(), left.clone());
        let pass = move |token| {
            left.count();
            let ring = ring
                .get()
                .expect("nobody is spoken to before the ring is formed");
            // One that was stopped takes no more.
            let _ = ring[(place + 1) % members].cast(token);
        };
        actors.push(bare(pass).await?);
    }
    assert!(ring.set(actors.clone()).is_ok(), "the ring is formed once");
    let start = Instant::now();
    for (number, actor) in actors.iter().cycle().take(tokens).enumerate() {
        actor.cast(Token(number as u64))?;
    }
    left.ended().await;
    let taken = start.elapsed();
    actors.iter().for_each(|actor| actor.stop(None));
    Ok(taken)
}
