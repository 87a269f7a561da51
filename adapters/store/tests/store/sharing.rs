//! Readers next to a writer see acknowledged commits at once, and never a part of a commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dormouse_actors::ports::Store as _;
use dormouse_proto::id::Pid;
use dormouse_store::LogStore;

use crate::support::*;

const COMMITS: u64 = 300;

#[test]
fn concurrent_readers_see_every_acknowledged_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::options()
        .segment_bytes(20_000)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=COMMITS {
                commit(
                    &store,
                    owner,
                    &[
                        content(&bytes(number as u8, 300)),
                        facts(1, number..=number),
                    ],
                );
                acknowledged.store(number, Ordering::SeqCst);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < COMMITS {
                    let known = acknowledged.load(Ordering::SeqCst);
                    let journal = store.journal(Pid(1), None).unwrap();
                    seen = journal.facts.len() as u64;
                    assert!(
                        seen >= known,
                        "{known} facts were acknowledged, {seen} are seen"
                    );
                    let expected: Vec<_> = (1..=seen).map(|number| fact(1, number)).collect();
                    assert_eq!(journal.facts, expected);
                    if seen > 0 {
                        let expected = bytes(seen as u8, 300);
                        assert_eq!(read(&store, hash(&expected)).unwrap(), expected);
                    }
                }
            });
        }
    });
}
