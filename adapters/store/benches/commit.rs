//! The commit of one small fact, compared with a bare append and fdatasync of as many bytes, on the
//! same disk in the same run.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;

use dormouse_actors::ports::{Batch, Store as _, WriteOp};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use dormouse_store::LogStore;

const FACT_BYTES: usize = 200;
/// A header, and the length before a fact.
const OVERHEAD_BYTES: usize = 168 + 4;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 2000, sample_size = 1)]
fn commit_of_one_fact(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let store = LogStore::open(folder.path()).expect("an empty folder opens");
    let owner = store.claim().expect("the store is ours");
    let row = ProcessRow::started(Pid(1), "bench");
    store
        .commit(
            owner,
            Batch::durable(
                &[WriteOp::ProcessCreated {
                    row: Box::new(row),
                    image: vec![0; FACT_BYTES],
                }],
                0,
            ),
        )
        .expect("a birth is taken");
    let next = Cell::new(1);
    bencher.bench_local(|| {
        let first = FactNumber(next.replace(next.get() + 1));
        store.commit(
            owner,
            Batch::durable(
                &[WriteOp::Facts {
                    pid: Pid(1),
                    first,
                    facts: vec![vec![7; FACT_BYTES]],
                }],
                0,
            ),
        )
    });
}

#[divan::bench(sample_count = 2000, sample_size = 1)]
fn bare_append_and_fdatasync(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut file = File::create(folder.path().join("log")).expect("a file can be made");
    let bytes = [7; FACT_BYTES + OVERHEAD_BYTES];
    bencher.bench_local(|| file.write_all(&bytes).and_then(|()| file.sync_data()));
}
