//! Exports with right hashes and forged insides, read as `dormouse show` and `import` read them:
//! each is whole or refused by name, and takes no more memory than a multiple of its bytes.

#![no_main]

use arbitrary::Unstructured;
use dormouse_content::Content;
use dormouse_fuzz::forge::export::{self, Record};
use dormouse_fuzz::forging::{EXPORT, facts, forgeries, member, recover, within_bounds};
use dormouse_kernel::export::{Checker, ExportError, ExportVisitor, Keep, Manifest};
use dormouse_kernel::process::{StartMode, summary_line};
use dormouse_proto::export::Facts;
use dormouse_proto::id::{CommitNumber, FactNumber};
use dormouse_proto::record::codec;
use dormouse_proto::record::{ContentRef, Fact};
use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use std::sync::LazyLock;

#[global_allocator]
static ALLOC: PeakAlloc = PeakAlloc;

/// The seed, its first process with facts of every kind.
static RECORDS: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let mut records = export::records(EXPORT);
    let mut first = member();
    let told = Facts {
        pid: first.row.pid,
        commit: CommitNumber(1),
        at_ms: 1,
        first: FactNumber(1),
        facts: facts(),
    };
    first.at = FactNumber(told.facts.len() as u64);
    let at = records
        .iter()
        .position(|record| record.kind == 2)
        .expect("it holds a process");
    records[at].payload = codec::encode(&first).expect("it is small");
    records.retain(|record| record.kind != 3);
    records.insert(
        at + 1,
        Record::new(3, codec::encode(&told).expect("it is small")),
    );
    records
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(forgeries) = forgeries(&mut Unstructured::new(bytes)) else {
        return;
    };
    let mut records = RECORDS.clone();
    for (at, forgery) in forgeries {
        let at = usize::from(at) % records.len();
        forgery.apply(&mut records[at].payload);
    }
    let file = export::file(&records);
    within_bounds(&ALLOC, file.len(), || {
        let shown = read(&file, Keep::Programs);
        let kept = read(&file, Keep::Processes);
        match (shown, kept) {
            (Ok(shown), Ok(kept)) => {
                assert_eq!(shown.id, kept.id);
                born(&kept);
            }
            (Err(ExportError::Invalid { .. }), Err(ExportError::Invalid { .. })) => {}
            (shown, kept) => panic!("{:?} and {:?}", shown.err(), kept.err()),
        }
    });
});

/// Reads every fact, as a log of the file does.
struct Reader;

impl ExportVisitor for Reader {
    fn facts(&mut self, facts: Facts) {
        for fact in &facts.facts {
            let _ = codec::decode::<Fact<ContentRef>>(fact)
                .map(|fact| (fact.name(), summary_line(&fact)));
        }
    }
}

fn read(file: &[u8], keep: Keep) -> Result<Manifest, ExportError> {
    let mut checker = Checker::new(keep);
    file.chunks(4096)
        .try_for_each(|part| checker.feed(part, &mut Reader))?;
    checker.finish()
}

/// Makes processes of what was taken in.
fn born(manifest: &Manifest) {
    for birth in manifest.births() {
        let (row, restored, image) = (birth.row(), birth.restored(), birth.member().image.clone());
        assert_eq!(row.branched_from, Some(restored));
        let bundle = manifest.programs.get(&image.bundle.hash);
        recover(row.local_id(), image, bundle.map(|bytes| &bytes[..]), &[]);
        let image = birth
            .member()
            .image
            .clone()
            .try_map(&mut |named| Ok::<_, ()>(held(named)))
            .expect("it cannot fail");
        let _ = birth.image(image, 7, StartMode::Running);
    }
}

fn held(named: ContentRef) -> Content {
    dormouse_fuzz::forging::named(named)
}
