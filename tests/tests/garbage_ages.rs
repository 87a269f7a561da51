//! What a collection costs in a store that many have lived and died in.

use std::path::Path;

use dormouse::checkpoint::Checkpoint;
use dormouse::garbage::CollectionReport;
use dormouse::ports::SweepMode;
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::LogStore;
use dormouse::{Kernel, Process};
use dormouse_tests::{FnModel, asks, program, says, turn, within};

const ROUNDS: usize = 24;
/// Processes that come and go in a round.
const GUESTS: usize = 60;
/// Processes that stay.
const RESIDENTS: usize = 40;
const PROGRAM: &str =
    "max_iterations = 500\n[tools]\nenabled = [\"read_fd\", \"checkpoint_process\"]\n";

fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Makes a checkpoint in each turn.
async fn kernel(folder: &Path) -> Kernel {
    let model = FnModel(|request: dormouse::model::Request| async move {
        let last = request
            .messages
            .last()
            .map(|message| format!("{:?}", message.blocks))
            .unwrap_or_default();
        Ok(if last.contains("remember") {
            asks(&[("checkpoint_process", r#"{"label": "mine"}"#)])
        } else {
            says("ok")
        })
    });
    let store = LogStore::options()
        .segment_bytes(400_000)
        .open(folder)
        .unwrap();
    Kernel::open(store)
        .model("m", model)
        .snapshot_after_facts(20)
        .build()
        .await
        .unwrap()
}

async fn start(kernel: &Kernel, content: usize) -> Process {
    let process = kernel
        .start(program(kernel, PROGRAM))
        .session()
        .without_input()
        .await
        .unwrap();
    let text: String = (0..40)
        .map(|line| format!("content {content}, line {line}\n"))
        .collect();
    within(process.open("it", text, None)).await.unwrap();
    turn(&process, "remember").await;
    process
}

/// A round of a house: guests come and go, and everybody who stays does something.
async fn round(kernel: &Kernel, number: usize, residents: &[Process]) {
    for guest in 0..GUESTS {
        let process = start(kernel, 1_000 + number * GUESTS + guest).await;
        within(process.kill()).await.unwrap();
        within(process.wait()).await.unwrap();
    }
    for resident in residents.iter().skip(number % 4).step_by(4) {
        turn(resident, "remember").await;
    }
}

/// Records that were looked at.
fn work(report: &CollectionReport) -> u64 {
    report.read + report.swept.inspected_records
}

#[tokio::test]
async fn a_collection_costs_what_came_since_the_last_one_however_old_the_store_is() {
    let folder = memory_folder();
    let kernel = kernel(folder.path()).await;
    let mut residents = Vec::new();
    for number in 0..RESIDENTS {
        residents.push(start(&kernel, number).await);
    }
    let retention = || Retention {
        checkpoints: CheckpointRules {
            last: Some(3),
            ..CheckpointRules::default()
        },
        ended: EndedRule::ForMs(0),
        history: HistoryRule::FromOldestCheckpoint,
    };
    let (mut costs, mut rows, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
    let mut live = Vec::new();
    for number in 0..ROUNDS {
        round(&kernel, number, &residents).await;
        let foreseen = within(kernel.collect_garbage(retention(), SweepMode::Count))
            .await
            .unwrap();
        let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        assert_eq!(report.deletions, foreseen.deletions);
        assert_eq!(report.deletions.processes.len(), GUESTS, "round {number}");
        live.push(report.live_contents);
        costs.push(work(&foreseen) + work(&report));
        rows.push(kernel.processes().await.unwrap().len());
        checkpoints.push(kernel.checkpoints().await.unwrap().len());
        let nothing = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        let came: u64 = nothing.read;
        assert!(nothing.deletions.is_empty(), "{nothing:?}");
        assert!(
            came <= costs[number] && nothing.swept.inspected_records <= came,
            "round {number}: {nothing:?}"
        );
        let nothing = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        assert_eq!(
            work(&nothing),
            0,
            "where nothing came, nothing is looked at: {nothing:?}"
        );
    }
    // Now and then an older part of the log is worth sweeping, so single collections differ.
    let (early, late) = costs.split_at(ROUNDS / 2);
    let (early, late): (u64, u64) = (early.iter().sum(), late.iter().sum());
    assert!(
        late <= early * 3 / 2,
        "records looked at in each collection: {costs:?}"
    );
    assert!(live.iter().all(|contents| *contents == live[0]), "{live:?}");
    assert!(rows.iter().all(|rows| *rows == RESIDENTS), "{rows:?}");
    assert!(
        checkpoints
            .iter()
            .all(|kept: &usize| *kept <= 3 * RESIDENTS),
        "{checkpoints:?}"
    );
    within(kernel.shutdown()).await.unwrap();
}

#[tokio::test]
async fn what_models_ask_to_keep_goes_with_their_trees() {
    let folder = memory_folder();
    let kernel = kernel(folder.path()).await;
    let pinned = start(&kernel, 0).await;
    let kept: Checkpoint = pinned.checkpoint("release").await.unwrap();
    let others = [start(&kernel, 1).await, start(&kernel, 2).await];
    for process in others.iter().chain([&pinned]) {
        within(process.kill()).await.unwrap();
        within(process.wait()).await.unwrap();
    }
    let pins = || CheckpointRules {
        pinned: ["release".into()].into(),
        ..CheckpointRules::default()
    };
    let retention = |ended| Retention {
        checkpoints: pins(),
        ended,
        ..Retention::default()
    };
    let early =
        within(kernel.collect_garbage(retention(EndedRule::ForMs(3_600_000)), SweepMode::Free))
            .await
            .unwrap();
    assert!(early.deletions.is_empty(), "{early:?}");
    let report = within(kernel.collect_garbage(retention(EndedRule::ForMs(0)), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(
        report.deletions.processes,
        others.iter().map(Process::pid).collect()
    );
    assert_eq!(report.deletions.checkpoints.len(), 2, "{report:?}");
    let left = kernel.checkpoints().await.unwrap();
    assert!(
        left.iter().any(|it| it.id == kept.id) && left.iter().all(|it| it.pid == pinned.pid()),
        "{left:?}"
    );
    let branch = within(kernel.restore(kept.id).stopped().into_future())
        .await
        .unwrap();
    within(branch.kill()).await.unwrap();
    within(kernel.shutdown()).await.unwrap();
}
