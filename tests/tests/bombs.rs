//! Bombs, small: each ends as designed, and another process runs to its end in the same kernel
//! afterwards.

use std::time::Duration;

use dormouse::process::ExitStatus;
use dormouse_tests::bombs::{Bomb, End, Size};
use dormouse_tests::within;

const SMALL: Size = Size {
    width: 3,
    depth: 2,
    budget: None,
    messages: 40,
    model_calls: 10,
    output_cap: 20_000,
    deadline: Duration::from_secs(5),
};

#[track_caller]
fn set_off(bomb: Bomb, size: Size) -> impl Future<Output = End> {
    let end = within(bomb.set_off(size));
    async move {
        let end = end.await.unwrap();
        assert_eq!(end.bystander, ExitStatus::Done, "{end:?}");
        end
    }
}

/// 1 + 3 + 9 processes. The inner ones are refused their second fork, the outer ones both.
#[tokio::test]
async fn a_fork_bomb_ends_at_the_limits() {
    let end = set_off(Bomb::Fork, SMALL).await;
    assert_eq!(
        (end.exit.status, end.processes),
        (ExitStatus::Done, SMALL.processes()),
        "{end:?}"
    );
    assert_eq!((end.done, end.refused), (26, 4 + 18), "{end:?}");
}

#[tokio::test]
async fn a_spawn_bomb_ends_at_the_limits_whether_somebody_waits_or_not() {
    for bomb in [Bomb::SpawnAndWait, Bomb::SpawnAndGoOn] {
        let end = set_off(bomb, SMALL).await;
        assert_eq!(
            (end.exit.status, end.processes),
            (ExitStatus::Done, SMALL.processes()),
            "{end:?}"
        );
        assert_eq!((end.done, end.refused), (13 * 4, 4 + 9 * 4), "{end:?}");
    }
}

/// Children of a process get even shares of what is left: the tree is as deep as the budget can be
/// divided.
#[tokio::test]
async fn where_the_limits_are_wide_open_a_bomb_ends_at_the_budget_of_its_tree() {
    const BOUNDED: Size = Size {
        depth: 64,
        budget: Some(40),
        ..SMALL
    };
    for bomb in [Bomb::Fork, Bomb::SpawnAndWait, Bomb::SpawnAndGoOn] {
        let end = set_off(bomb, BOUNDED).await;
        assert_eq!(end.exit.status, ExitStatus::Done, "{bomb:?}: {end:?}");
        assert!(
            (10..=80).contains(&end.processes) && end.refused > 0,
            "{bomb:?}: {end:?}"
        );
    }
}

/// The host's inbox takes 256. The mailbox takes messages of processes until 256 wait in it, those
/// of the host counted: how many they are together depends on who is faster.
#[tokio::test]
async fn a_flood_from_both_sides_is_refused_beyond_what_may_wait() {
    let end = set_off(Bomb::Flood, SMALL).await;
    assert_eq!(
        (end.exit.status, end.done),
        (ExitStatus::IterationLimit, 800),
        "{end:?}"
    );
    assert!((256..=512).contains(&(end.done - end.refused)), "{end:?}");
}

#[tokio::test]
async fn what_prints_for_ever_is_cut_at_its_cap() {
    for bomb in [Bomb::Command, Bomb::Prints] {
        let end = set_off(bomb, SMALL).await;
        assert_eq!(end.exit.status, ExitStatus::Done, "{end:?}");
        assert!(
            (SMALL.output_cap..SMALL.output_cap + 1_000).contains(&end.chars),
            "{end:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_ends_at_its_deadline() {
    let end = set_off(Bomb::Hangs, SMALL).await;
    assert!(
        end.exit.message.starts_with("error=true") && end.exit.message.contains("5000 ms"),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_tool_that_panics_is_an_answer() {
    let end = set_off(Bomb::Panics, SMALL).await;
    assert!(
        end.exit.message.contains("error=true") && end.exit.message.contains("what is not there"),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_model_that_repeats_itself_ends_at_its_iterations() {
    let end = set_off(Bomb::Loops, SMALL).await;
    assert_eq!(
        (end.exit.status, end.done),
        (ExitStatus::IterationLimit, SMALL.model_calls as usize),
        "{end:?}"
    );
}
