//! Decides a race between speculative branches of one point: which branches are continued, and which
//! one wins. Pure: the shell runs the branches and asks the judge.
//!
//! A command or a program that judges reads a branch as [`JudgedBranch::json`], in a race as in an
//! exploration (`process/exploring.rs`).

use dormouse_proto::id::Pid;
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus};
use serde::Deserialize;
use serde_json::{Value, json};

/// How the winner of a race is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RacePolicy {
    /// The first branch that the judge passes wins; the others are ended at once.
    #[default]
    FirstToPass,
    /// All branches are judged, and of those that pass the one with the highest score wins.
    BestOf,
    /// Beam search: of the branches of each level, the `width` best ones are continued by new
    /// branches. After `depth` levels, the best one that passes wins.
    Beam {
        /// How many branches of a level are kept, at least 1.
        width: u32,
        /// How many levels there are, at least 1.
        depth: u32,
    },
}

/// What a judge says about a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Whether the branch may win.
    pub passes: bool,
    /// How good it is; higher is better. A score that is no number counts as the lowest.
    pub score: f64,
}

impl Judgement {
    /// The branch passes, with score 1.
    pub const PASS: Self = Self {
        passes: true,
        score: 1.0,
    };
    /// The branch does not pass; its score is 0.
    pub const FAIL: Self = Self {
        passes: false,
        score: 0.0,
    };

    /// The branch passes, with this score.
    #[must_use]
    pub const fn score(score: f64) -> Self {
        Self {
            passes: true,
            score,
        }
    }

    /// What a program that judges has submitted: `{"pass": true, "score": 0.5}`, in which `score` may
    /// be left out. O(n).
    ///
    /// # Errors
    /// Why the end of its process is no judgement.
    pub fn of_exit(exit: &Exit) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Verdict {
            pass: bool,
            score: Option<f64>,
        }
        if exit.status != ExitStatus::Done {
            let (status, message) = (exit.status.word(), &exit.message);
            return Err(format!("it ended as {status}: {message}"));
        }
        let Some(json) = exit.result() else {
            return Err("it submitted no result".to_owned());
        };
        let Verdict { pass, score } = serde_json::from_str(json)
            .map_err(|error| format!("its result does not say whether it passes: {error}"))?;
        let default = match pass {
            true => Self::PASS,
            false => Self::FAIL,
        };
        Ok(Self {
            passes: pass,
            score: score.unwrap_or(default.score),
        })
    }

    fn rank(&self) -> f64 {
        match self.score.is_nan() {
            true => f64::NEG_INFINITY,
            false => self.score,
        }
    }
}

/// A branch that has come to rest, as a judge sees it.
#[derive(Clone, Debug)]
pub struct JudgedBranch<'a> {
    /// The process.
    pub pid: Pid,
    /// The number of the branch within its level, from 1.
    pub branch: u32,
    /// The level of a beam search, from 1.
    pub level: u32,
    /// How its turn ended; `None` if it stands at `calls`.
    pub end: Option<&'a Exit>,
    /// The text of the last reply of its model, or its result.
    pub message: &'a str,
    /// The calls at which it stands: tool and arguments.
    pub calls: Vec<(&'a str, Value)>,
    /// What it has used.
    pub usage: Usage,
}

impl JudgedBranch<'_> {
    /// The branch as commands and programs that judge read it: `pid`, `branch`, `level`, `status`
    /// (`"at_write"`, or the status of the turn), `message`, `result` (the value that it submitted, or
    /// null), `calls` (each with `tool` and `args`), and `usage`. O(n).
    #[must_use]
    pub fn json(&self) -> Value {
        let calls = self.calls.iter();
        let calls = calls.map(|(tool, args)| json!({ "tool": tool, "args": args }));
        let status = self.end.map_or("at_write", |end| end.status.word());
        let result = self.end.and_then(Exit::result);
        json!({
            "pid": self.pid.0, "branch": self.branch, "level": self.level, "status": status,
            "message": self.message,
            "result": result.and_then(|json| serde_json::from_str::<Value>(json).ok()),
            "calls": calls.collect::<Vec<_>>(),
            "usage": {
                "input_tokens": self.usage.all_input_tokens(),
                "output_tokens": self.usage.output_tokens,
            },
        })
    }
}

impl RacePolicy {
    /// How many levels of branches there are.
    #[must_use]
    pub fn depth(self) -> u32 {
        match self {
            Self::FirstToPass | Self::BestOf => 1,
            Self::Beam { depth, .. } => depth.max(1),
        }
    }

    /// Whether a branch with this judgement wins although others are not judged yet.
    #[must_use]
    pub fn wins_at_once(self, judgement: &Judgement) -> bool {
        self == Self::FirstToPass && judgement.passes
    }

    /// The indices of the branches that are kept after a level, best first; the earlier of two
    /// equal ones comes first. A branch without a judgement is not kept.
    #[must_use]
    pub fn kept(self, judgements: &[Option<Judgement>]) -> Vec<usize> {
        let mut kept = ranked(judgements);
        if let Self::Beam { width, .. } = self {
            kept.truncate(width.max(1) as usize);
        }
        kept
    }
}

/// The index of the winner: the best one that passes.
#[must_use]
pub fn winner(judgements: &[Option<Judgement>]) -> Option<usize> {
    let passes = |index: &usize| judgements[*index].is_some_and(|judgement| judgement.passes);
    ranked(judgements).into_iter().find(passes)
}

/// For each of `branches` new branches, which of `parents` it continues: the better parents, which
/// come first, get the ones that are left over.
#[must_use]
pub fn parents_of_level(branches: usize, parents: usize) -> Vec<usize> {
    match parents {
        0 => Vec::new(),
        parents => (0..branches.max(parents)).map(|at| at % parents).collect(),
    }
}

fn ranked(judgements: &[Option<Judgement>]) -> Vec<usize> {
    let judged = judgements.iter().enumerate();
    let mut ranked: Vec<(usize, f64)> = judged
        .filter_map(|(index, judgement)| Some((index, judgement.as_ref()?.rank())))
        .collect();
    // The sort is stable.
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(score: f64) -> Judgement {
        Judgement {
            passes: false,
            score,
        }
    }

    #[test]
    fn the_best_one_that_passes_wins_and_the_earlier_of_two_equal_ones() {
        let score = |score| Some(Judgement::score(score));
        let cases: [(&[Option<Judgement>], Option<usize>); 6] = [
            (&[], None),
            (&[None, Some(Judgement::FAIL)], None),
            (&[score(1.0), score(3.0), score(2.0)], Some(1)),
            (&[None, score(2.0), score(2.0)], Some(1)),
            (&[score(1.0), Some(failing(9.0))], Some(0)),
            (&[score(f64::NAN), score(-5.0)], Some(1)),
        ];
        for (judgements, expected) in cases {
            assert_eq!(winner(judgements), expected, "{judgements:?}");
        }
    }

    #[test]
    fn a_program_judges_by_its_result() {
        let judged = |exit: Exit| Judgement::of_exit(&exit);
        let result = |json: &str| judged(Exit::with_result(json));
        assert_eq!(result(r#"{"pass": true}"#), Ok(Judgement::PASS));
        assert_eq!(
            result(r#"{"pass": true, "score": 3}"#),
            Ok(Judgement::score(3.0))
        );
        assert_eq!(
            result(r#"{"pass": false, "why": "x"}"#),
            Ok(Judgement::FAIL)
        );
        let refused = [
            (result(r#"{"score": 3}"#), "pass"),
            (
                judged(Exit::new(ExitStatus::Done, r#"{"pass": true}"#)),
                "no result",
            ),
            (
                judged(Exit::new(ExitStatus::ModelFailed, "no model")),
                "it ended as model_failed: no model",
            ),
        ];
        for (judged, why) in refused {
            let error = judged.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_beam_keeps_the_best_whether_they_pass_or_not() {
        let judgements = [
            Some(Judgement::score(1.0)),
            None,
            Some(failing(3.0)),
            Some(Judgement::score(2.0)),
        ];
        let beam = RacePolicy::Beam { width: 2, depth: 3 };
        assert_eq!(beam.kept(&judgements), [2, 3]);
        assert_eq!(RacePolicy::BestOf.kept(&judgements), [2, 3, 0]);
        assert_eq!(beam.depth(), 3);
        assert!(!beam.wins_at_once(&Judgement::PASS));
        assert!(RacePolicy::FirstToPass.wins_at_once(&Judgement::PASS));
        assert!(!RacePolicy::FirstToPass.wins_at_once(&Judgement::FAIL));
    }

    #[test]
    fn each_parent_is_continued_and_the_better_ones_more_often() {
        assert_eq!(parents_of_level(5, 2), [0, 1, 0, 1, 0]);
        assert_eq!(parents_of_level(1, 2), [0, 1]);
        assert_eq!(parents_of_level(3, 0), Vec::<usize>::new());
    }
}
