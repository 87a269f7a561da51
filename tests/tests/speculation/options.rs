//! The options of a race: deadlines, the policy for repeated calls, scores, a program as the judge, and
//! what a beam search does with branches at their writes.

use std::future::IntoFuture;
use std::time::Duration;

use dormouse::effect::EffectPolicy;
use dormouse::model::{Reply, Request};
use dormouse::program::Program;
use dormouse::record::{HoldReason, Speculation};
use dormouse::store::LogStore;
use dormouse::{
    Candidate, JudgeError, Judgement, Kernel, LossReason, Position, RacePolicy, RaceResult,
};
use dormouse_tests::{FnModel, asks, program, says, within};
use serde_json::{Value, json};

use super::{WRITE, World, Written, append, appends, does, last, living, none_passed, written};

/// A world whose model never answers `never`, and judges what is a candidate as JSON by the line that
/// it wants to append: `1` passes, `2` passes with half a point, `never` is judged for ever, and
/// anything else does not pass, with nine points.
async fn judging_world() -> World {
    let (folder, written) = (tempfile::tempdir().unwrap(), Written::default());
    let model = FnModel(|request: Request| async move {
        let (text, _) = last(&request);
        if text == "never" {
            std::future::pending::<()>().await;
        }
        let candidate = serde_json::from_str::<Value>(&text).ok();
        match candidate.filter(Value::is_object) {
            None => Ok(does(&request)),
            Some(candidate) => Ok(verdict(&candidate).await),
        }
    });
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", model)
        .tool(append(&written))
        .build()
        .await
        .unwrap();
    World {
        folder,
        written,
        kernel,
    }
}

/// What the model of a judge submits about a candidate.
async fn verdict(candidate: &Value) -> Reply {
    let line = &candidate["calls"][0]["args"]["line"];
    let value = match line.as_str() {
        Some("1") => json!({ "pass": true }),
        Some("2") => json!({ "pass": true, "score": 0.5 }),
        Some("never") => std::future::pending().await,
        Some("mute") => return says("I have no opinion."),
        _ => json!({ "pass": false, "score": 9 }),
    };
    asks(&[("submit_result", &json!({ "value": value }).to_string())])
}

fn judge(kernel: &Kernel) -> Program {
    let schema = "[result]\nschema = { type = \"object\", required = [\"pass\"] }\nattempts = 1\n";
    program(kernel, schema)
}

fn reasons(result: &RaceResult) -> Vec<&LossReason> {
    result.losers.iter().map(|loser| &loser.reason).collect()
}

/// Waits until only these processes live: what a race gives up is ended behind its back.
async fn until_living(kernel: &Kernel, expected: &[dormouse::id::Pid]) {
    let ended = async {
        while living(kernel).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_does_not_come_to_rest_in_time_has_lost() {
    let world = judging_world().await;
    let session = world.session(WRITE).await;
    let race = |inputs: [&'static str; 2], deadline| {
        let race = world.kernel.race(session.pid(), Position::Now, 2);
        race.inputs(inputs).deadline(deadline).into_future()
    };
    let short = Duration::from_millis(50);
    let reasons = none_passed(within(race(["never"; 2], short)).await);
    let is_overdue =
        |reason: &LossReason| matches!(reason, LossReason::Overdue(limit) if *limit == short);
    assert!(
        reasons.len() == 2 && reasons.iter().all(is_overdue),
        "{reasons:?}"
    );
    assert_eq!(living(&world.kernel).await, [session.pid()]);
    // A deadline that is not reached changes nothing.
    let long = Duration::from_secs(3_600);
    let result = within(race(["never", "append 1"], long)).await.unwrap();
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&world.written), ["1"]);
}

/// All branches repeat what the original did beyond the point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_of_a_race_decides_about_calls_that_repeat() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let view = within(session.wait_for(|view| view.is_idle())).await;
    let point = view.unwrap().fact;
    within(session.turn("append x")).await.unwrap();
    assert_eq!(written(&world.written), ["x"]);
    let race = async |policy: EffectPolicy| {
        let race = world.kernel.race(session.pid(), point, 1);
        let race = race.inputs(["append x"]).effects(policy);
        within(race.into_future()).await.unwrap()
    };
    // These are answered without a write, so that the branch does not stand at one.
    for (policy, says) in [
        (EffectPolicy::Recorded, "<recorded_answer "),
        (EffectPolicy::Refuse, "Not run: "),
    ] {
        let result = race(policy).await;
        let Candidate { calls, message, .. } = &result.candidate;
        assert!(
            calls.is_empty() && message.contains(says),
            "{policy:?}: {:?}",
            result.candidate
        );
        assert_eq!(written(&world.written), ["x"], "{policy:?}");
    }
    let result = race(EffectPolicy::Ask).await;
    assert_eq!(result.candidate.calls[0].reason, HoldReason::Speculation);
    let chosen = result
        .winner
        .wait_for(|view| view.rests && view.speculation == Speculation::None);
    within(chosen).await.unwrap();
    let pending = world.kernel.pending().await.unwrap().calls;
    let [call] = &pending[..] else {
        panic!("{pending:?}")
    };
    assert!(matches!(
        call.reason,
        HoldReason::Repeats { effect: Some(_) }
    ));
    assert_eq!(written(&world.written), ["x"], "nobody has approved it");
    let result = race(EffectPolicy::Run).await;
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&world.written), ["x", "x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_score_wins_and_the_earlier_of_two_equal_ones() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let race = world.kernel.race(session.pid(), Position::Now, 4);
    let race = race
        .inputs(appends(4))
        .policy(RacePolicy::BestOf)
        .judge(|candidate| async move {
            let score = [2.0, 7.0, 7.0, 8.0][candidate.branch as usize - 1];
            let passes = candidate.branch < 4;
            Ok(Judgement { passes, score })
        });
    let result = within(race.into_future()).await.unwrap();
    assert_eq!(
        (result.candidate.branch, result.judgement.score),
        (2, 7.0),
        "the best of those that pass"
    );
    let reasons = reasons(&result);
    let [
        LossReason::Beaten(worse),
        LossReason::Beaten(later),
        LossReason::NotPassed(failed),
    ] = reasons[..]
    else {
        panic!("{reasons:?}")
    };
    let scores = [worse, later, failed].map(|judgement| judgement.score);
    assert_eq!(scores, [2.0, 7.0, 8.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_judges_by_its_result_and_its_processes_end() {
    let world = judging_world().await;
    let session = world.session(WRITE).await;
    let race = world.kernel.race(session.pid(), Position::Now, 4);
    let race = race
        .inputs(["append 1", "append 2", "append 3", "append mute"])
        .policy(RacePolicy::BestOf)
        .judge_program(judge(&world.kernel));
    let result = within(race.into_future()).await.unwrap();
    assert_eq!(result.candidate.branch, 1);
    assert_eq!(result.judgement, Judgement::PASS, "without a score");
    let reasons = reasons(&result);
    let [
        LossReason::Beaten(half),
        LossReason::NotPassed(failed),
        LossReason::NotJudged(JudgeError::Failed(why)),
    ] = reasons[..]
    else {
        panic!("{reasons:?}")
    };
    assert_eq!((half.score, failed.score), (0.5, 9.0));
    assert!(why.starts_with("it ended as "), "{why}");
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&world.written), ["1"]);
    until_living(&world.kernel, &[session.pid(), result.winner.pid()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_judges_too_long_fails_its_branch_and_is_ended() {
    let world = judging_world().await;
    let session = world.session(WRITE).await;
    let limit = Duration::from_millis(50);
    let race = world.kernel.race(session.pid(), Position::Now, 1);
    let race = race
        .inputs(["append never"])
        .judge_program(judge(&world.kernel))
        .judge_limit(limit);
    let reasons = none_passed(within(race.into_future()).await);
    assert!(
        matches!(&reasons[..], [LossReason::NotJudged(JudgeError::TimedOut(after))] if *after == limit),
        "{reasons:?}"
    );
    until_living(&world.kernel, &[session.pid()]).await;
    assert_eq!(written(&world.written), [""; 0]);
}

/// Without inputs, the branches of the first level end as the original did, and later ones get
/// `Continue.`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beam_without_inputs_tells_its_branches_to_continue() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let race = world.kernel.race(session.pid(), Position::Now, 2);
    let beam = RacePolicy::Beam { width: 1, depth: 2 };
    let result = within(race.policy(beam).into_future()).await.unwrap();
    let Candidate {
        message,
        level,
        branch,
        ..
    } = &result.candidate;
    assert_eq!((&**message, *level, *branch), ("Continue.", 2, 1));
    let reasons = reasons(&result);
    assert!(
        matches!(
            reasons[..],
            [
                LossReason::Continued,
                LossReason::Beaten(_),
                LossReason::Beaten(_)
            ]
        ),
        "{reasons:?}"
    );
}

/// The best branch of the first level stands at its write: the others are continued, and it wins
/// over them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_at_its_write_keeps_its_place_in_a_beam() {
    let world = World::new().await;
    let session = world.session(WRITE).await;
    let race = world.kernel.race(session.pid(), Position::Now, 2);
    let race = race
        .inputs(["append 1", "look"])
        .policy(RacePolicy::Beam { width: 2, depth: 2 })
        .judge(|candidate| async move {
            Ok(Judgement::score(
                match (candidate.level, candidate.calls.is_empty()) {
                    (1, false) => 5.0,
                    (_, false) => 3.0,
                    _ => 1.0,
                },
            ))
        });
    let result = within(race.into_future()).await.unwrap();
    assert_eq!((result.candidate.level, result.candidate.branch), (1, 1));
    within(result.winner.wait_for(|view| view.is_idle()))
        .await
        .unwrap();
    assert_eq!(written(&world.written), ["1"], "its write is done once");
    let reasons = reasons(&result);
    let [
        LossReason::Continued,
        LossReason::Beaten(at_write),
        LossReason::Beaten(looked),
    ] = reasons[..]
    else {
        panic!("{reasons:?}")
    };
    assert_eq!((at_write.score, looked.score), (3.0, 1.0));
    assert!(result.losers.iter().all(|loser| loser.effects.is_empty()));
}
