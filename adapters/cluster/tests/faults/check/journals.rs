//! Journals without gaps, whose epochs never go down, and checkpoints that are cuts of one log.

use super::writes::Epochs;
use super::{FinalProcess, FinalState, Findings};

pub(super) fn check(state: &FinalState, epochs: &Epochs, findings: &mut Findings) {
    for (pid, process) in &state.processes {
        let shard = dormouse_cluster::shard_of(*pid).0;
        let mut last_epoch = 0;
        for (index, line) in process.log.iter().enumerate() {
            findings.count("facts", 1);
            if line.number.0 != index as u64 {
                let evidence = format!("process {pid}: fact {} is at {index}", line.number);
                findings.violate("journal-with-a-gap", evidence);
                break;
            }
            let epoch = epochs
                .get(&shard)
                .and_then(|epochs| epochs.get(&line.commit.0));
            let Some(epoch) = epoch else {
                let evidence = format!("process {pid}: fact {} of {:?}", line.number, line.commit);
                findings.violate("fact-of-no-commit", evidence);
                continue;
            };
            if *epoch < last_epoch {
                let evidence = format!("process {pid}: fact {} of epoch {epoch}", line.number);
                findings.violate("fact-of-older-epoch", evidence);
            }
            last_epoch = *epoch;
        }
    }
    check_cuts(state, findings);
}

/// A checkpoint names, for each member, the last fact before its commit, or one of that commit.
fn check_cuts(state: &FinalState, findings: &mut Findings) {
    for (shard, checkpoint) in &state.checkpoints {
        findings.count("checkpoints", 1);
        for member in &checkpoint.members {
            let process = state.processes.get(&member.pid);
            let fits = process.is_some_and(|process| {
                let last = |is_in: &dyn Fn(u64) -> bool| last_fact(process, is_in);
                let before = last(&|commit| commit < checkpoint.commit.0);
                let with = last(&|commit| commit <= checkpoint.commit.0);
                before.is_none_or(|before| before <= member.at.0)
                    && with.is_some_and(|with| member.at.0 <= with)
            });
            if !fits {
                let evidence = format!("shard {shard}: {checkpoint:?}, process {}", member.pid);
                findings.violate("checkpoint-is-no-cut", evidence);
            }
        }
    }
}

fn last_fact(process: &FinalProcess, is_in: &dyn Fn(u64) -> bool) -> Option<u64> {
    let lines = process.log.iter();
    let numbers = lines
        .filter(|line| is_in(line.commit.0))
        .map(|line| line.number.0);
    numbers.max()
}
