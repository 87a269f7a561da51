//! One owner at a time: what the database saw of each shard, in order.

use std::collections::BTreeMap;

use super::Findings;
use crate::observer::ShardWrite;

/// The epoch of each commit, by shard.
pub(super) type Epochs = BTreeMap<u32, BTreeMap<u64, u64>>;

/// Checks that epochs and commits only rise, one by one, and that each commit was made by the role
/// that had claimed the shard last.
pub(super) fn check(shards: &BTreeMap<u32, Vec<ShardWrite>>, findings: &mut Findings) -> Epochs {
    let mut epochs = Epochs::new();
    for (shard, writes) in shards {
        let mut owner: Option<&str> = None;
        let mut before: Option<&ShardWrite> = None;
        for write in writes {
            let evidence = || format!("shard {shard}: {write:?}, after {before:?}");
            let follows = before.is_none_or(|before| {
                (before.epoch, before.commit) == (write.epoch_before, write.commit_before)
            });
            if !follows {
                findings.violate("log-out-of-order", evidence());
            }
            if write.epoch < write.epoch_before {
                findings.violate("epoch-went-down", evidence());
            }
            let commits = write.commit.checked_sub(write.commit_before);
            if write.epoch != write.epoch_before {
                owner = Some(&write.role);
                findings.count("claims", 1);
                if commits != Some(0) {
                    findings.violate("claim-with-commit", evidence());
                }
            } else {
                if owner != Some(&write.role) {
                    findings.violate(
                        "commit-of-older-epoch",
                        format!("the owner is {owner:?}: {}", evidence()),
                    );
                }
                match commits {
                    Some(0) => {}
                    Some(1) => {
                        findings.count("commits", 1);
                        let of_shard = epochs.entry(*shard).or_default();
                        of_shard.insert(write.commit, write.epoch);
                    }
                    _ => findings.violate("commit-numbers-with-a-gap", evidence()),
                }
            }
            before = Some(write);
        }
    }
    epochs
}
