//! Messages per second between processes, compared with those between bare actors in the same run.
//!
//! There are two figures. *Delivered* counts messages to a stopped process, each until its sender
//! knows that it is durable; the receiver does nothing with it. *Passed on* counts messages to an
//! idle session: it starts a turn and calls its model, which sends the next message before it
//! replies. The baseline is a ring of actors, each of which casts the message to the next. The
//! kernel has no store.
//!
//! The host sends the messages in the name of the processes; [`send`] is the only place that does
//! so.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::model::{Reply, Request};
use dormouse::{Kernel, Process};
use dormouse_bench::{
    Countdown, FnModel, Outcome, Percentiles, Token, bare_actor, kernel, print_line, program,
    ratio, text_reply,
};
use futures_util::future::try_join_all;
use ractor::ActorRef;

const ROUNDS: usize = 7;
const MESSAGES: usize = 20_000;
/// The maximum number of turns of one process: a request contains the whole conversation, which
/// grows with each turn.
const TURNS: usize = 200;
const MAX_SENDERS: usize = 100;

/// Processes that form a ring, and a countdown of the messages that they still have to pass on.
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
            delivered.push(measure_delivery(members, messages).await?);
            passed.push(measure_passing(members, tokens, messages).await?);
            cast.push(measure_casts(members, tokens, messages).await?);
        }
        let (delivered, passed, cast) = (
            Percentiles::from_durations(delivered),
            Percentiles::from_durations(passed),
            Percentiles::from_durations(cast),
        );
        print_line(format_args!(
            "among {members}, {tokens} on their way: medians of {ROUNDS} rounds of {messages} \
             messages"
        ))?;
        for (what, percentiles) in [
            ("bare, cast on", cast),
            ("delivered, receiver stopped", delivered),
            ("passed on, a turn each", passed),
        ] {
            let a_second = messages as f64 / percentiles.median.as_secs_f64();
            let times = ratio(percentiles.median, cast.median);
            print_line(format_args!(
                "  {what:30} {a_second:>12.0} a second {times:>8.1}x of bare"
            ))?;
        }
    }
    Ok(())
}

/// Sends a message from one process to another.
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

/// Measures messages to stopped processes, each from the process before it in the ring.
async fn measure_delivery(members: usize, messages: usize) -> Outcome<Duration> {
    let kernel = kernel(FnModel(|_| async { text_reply("nobody asks") }), 16).await?;
    let processes = Arc::new(sessions(&kernel, members).await?);
    for process in processes.iter() {
        process.stop().await?;
    }
    let start = Instant::now();
    let senders = (0..members.min(MAX_SENDERS)).map(|sender| {
        let processes = processes.clone();
        let senders = members.min(MAX_SENDERS);
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
    let elapsed = start.elapsed();
    kernel.shutdown().await?;
    Ok(elapsed)
}

/// Measures messages in a ring in which each process sends a message to the next when it receives
/// one.
async fn measure_passing(members: usize, tokens: usize, messages: usize) -> Outcome<Duration> {
    let ring = Arc::new(Ring::default());
    let model = {
        let ring = ring.clone();
        FnModel(move |request| send_next(ring.clone(), request))
    };
    let kernel = kernel(model, 16).await?;
    let processes = sessions(&kernel, members).await?;
    let left = Countdown::new(messages);
    let result = ring.members.set(Members {
        processes: processes.clone(),
        left: left.clone(),
    });
    assert!(result.is_ok(), "the ring is formed once");
    let start = Instant::now();
    for process in processes.iter().cycle().take(tokens) {
        send(Pid(0), process).await?;
    }
    left.wait_for_zero().await;
    let elapsed = start.elapsed();
    kernel.shutdown().await?;
    Ok(elapsed)
}

/// Sends the next message, as the model of a process. The kernel has no other processes, so their
/// pids count from 1.
async fn send_next(ring: Arc<Ring>, request: Request) -> Reply {
    let members = ring
        .members
        .get()
        .expect("no message is sent before the ring is formed");
    let next = &members.processes[request.pid.0 as usize % members.processes.len()];
    members.left.count_down();
    // A kernel that shuts down accepts no more messages.
    let _ = send(request.pid, next).await;
    text_reply("passed on")
}

async fn measure_casts(members: usize, tokens: usize, messages: usize) -> Outcome<Duration> {
    let ring: Arc<OnceLock<Vec<ActorRef<Token>>>> = Arc::default();
    let left = Countdown::new(messages);
    let mut actors = Vec::with_capacity(members);
    for index in 0..members {
        let (ring, left) = (ring.clone(), left.clone());
        let pass = move |token| {
            left.count_down();
            let ring = ring
                .get()
                .expect("no message is sent before the ring is formed");
            // A stopped actor accepts no more messages.
            let _ = ring[(index + 1) % members].cast(token);
        };
        actors.push(bare_actor(pass).await?);
    }
    assert!(ring.set(actors.clone()).is_ok(), "the ring is formed once");
    let start = Instant::now();
    for (number, actor) in actors.iter().cycle().take(tokens).enumerate() {
        actor.cast(Token(number as u64))?;
    }
    left.wait_for_zero().await;
    let elapsed = start.elapsed();
    actors.iter().for_each(|actor| actor.stop(None));
    Ok(elapsed)
}
