//! Tests the files by cases, and random sequences of operations against a plain map.

use std::collections::BTreeMap;

use dormouse_proto::id::{CallId, Pid};
use proptest::prelude::*;

use super::*;

fn content(text: &str) -> Content {
    Content::new(text.to_owned())
}

fn origin(pid: u64, seq: u32) -> TempFileOrigin {
    TempFileOrigin {
        pid: Pid(pid),
        call: CallId { epoch: 0, seq },
    }
}

type Reply = Result<TempFileReply<String>, TempFileError>;

/// Decides an operation and applies its change. A reply with contents is converted to text.
fn apply(
    files: &mut TempFiles<Content>,
    origin: TempFileOrigin,
    op: TempFileOp<Content>,
    max_bytes: u64,
) -> Reply {
    let TempFileDecision { record, reply } = decide(files, origin, op, max_bytes)?;
    record.iter().for_each(|record| evolve(files, record));
    Ok(match reply {
        TempFileReply::Changed {
            id,
            version,
            total_bytes,
        } => TempFileReply::Changed {
            id,
            version,
            total_bytes,
        },
        TempFileReply::Contents {
            id,
            version,
            content,
        } => TempFileReply::Contents {
            id,
            version,
            content: content
                .iter()
                .map(|piece| piece.unlimited_reader().text().unwrap().to_string())
                .collect(),
        },
    })
}

fn changed(id: u32, version: u64, total_bytes: u64) -> Reply {
    Ok(TempFileReply::Changed {
        id: TempId(id),
        version,
        total_bytes,
    })
}

fn contents(id: u32, version: u64, text: &str) -> Reply {
    Ok(TempFileReply::Contents {
        id: TempId(id),
        version,
        content: text.to_owned(),
    })
}

fn create(text: &str) -> TempFileOp<Content> {
    TempFileOp::Create {
        content: content(text),
    }
}

fn read(id: u32) -> TempFileOp<Content> {
    TempFileOp::Read { id: TempId(id) }
}

fn write(id: u32, text: &str, version: u64) -> TempFileOp<Content> {
    TempFileOp::Write {
        id: TempId(id),
        content: content(text),
        version,
    }
}

fn append(id: u32, text: &str) -> TempFileOp<Content> {
    TempFileOp::Append {
        id: TempId(id),
        content: content(text),
    }
}

fn delete(id: u32, version: Option<u64>) -> TempFileOp<Content> {
    TempFileOp::Delete {
        id: TempId(id),
        version,
    }
}

fn stale(id: u32, given: u64, current: u64) -> Reply {
    Err(TempFileError::Stale {
        id: TempId(id),
        given,
        current,
    })
}

fn no_file(id: u32, known: &[u32]) -> Reply {
    Err(TempFileError::NotFound {
        id: TempId(id),
        known: known.iter().copied().map(TempId).collect(),
    })
}

fn deleted(id: u32, known: &[u32]) -> Reply {
    Err(TempFileError::Deleted {
        id: TempId(id),
        known: known.iter().copied().map(TempId).collect(),
    })
}

#[test]
fn files_are_made_changed_read_and_deleted() {
    let steps = [
        (read(1), no_file(1, &[])),
        (create("one"), changed(1, 1, 3)),
        (create(""), changed(2, 1, 0)),
        (read(1), contents(1, 1, "one")),
        (write(1, "two!", 1), changed(1, 2, 4)),
        (write(1, "lost", 1), stale(1, 1, 2)),
        (write(1, "from the future", 3), stale(1, 3, 2)),
        (append(1, " more"), changed(1, 3, 9)),
        (append(1, ""), changed(1, 4, 9)),
        (read(1), contents(1, 4, "two! more")),
        (append(2, "é"), changed(2, 2, 2)),
        (delete(1, Some(3)), stale(1, 3, 4)),
        (delete(1, Some(4)), changed(1, 4, 9)),
        (delete(1, None), deleted(1, &[2])),
        (append(1, "x"), deleted(1, &[2])),
        (write(1, "x", 4), deleted(1, &[2])),
        (write(3, "x", 1), no_file(3, &[2])),
        (create("three"), changed(3, 1, 5)),
        (delete(2, None), changed(2, 2, 2)),
        (read(0), no_file(0, &[3])),
    ];
    let mut files = TempFiles::default();
    for (seq, (op, expected)) in (0..).zip(steps) {
        let shown = format!("{op:?}");
        assert_eq!(
            apply(&mut files, origin(1, seq), op, 100),
            expected,
            "step {seq}: {shown}"
        );
    }
}

#[test]
fn a_repeated_call_gets_its_first_reply_and_changes_nothing() {
    let mut files = TempFiles::default();
    let steps = [
        create("a"),
        append(1, "b"),
        write(1, "c", 2),
        append(1, "d"),
        delete(1, None),
    ];
    let first: Vec<_> = (0..)
        .zip(&steps)
        .map(|(seq, op)| apply(&mut files, origin(7, seq), op.clone(), 100))
        .collect();
    assert!(first.iter().all(Result::is_ok), "{first:?}");
    apply(&mut files, origin(8, 0), create("another's"), 100).unwrap();
    let before = files.clone();
    for (seq, op) in (0..).zip(&steps) {
        let again = apply(&mut files, origin(7, seq), op.clone(), 0);
        assert_eq!(
            again, first[seq as usize],
            "{op:?}, whatever became of the file and of the limit"
        );
    }
    assert_eq!(files, before);
}

#[test]
fn limits_are_exact_and_a_file_that_is_too_large_can_be_deleted() {
    let mut files = TempFiles::default();
    let too_large = |total_bytes, max_bytes| {
        Err(TempFileError::TooLarge {
            total_bytes,
            max_bytes,
        })
    };
    let steps = [
        (create("12345"), 4, too_large(5, 4)),
        (create("1234"), 4, changed(1, 1, 4)),
        (append(1, "5"), 4, too_large(5, 4)),
        (append(1, "5"), 5, changed(1, 2, 5)),
        (write(1, "12345", 2), 4, too_large(5, 4)),
        (write(1, "12345", 1), 4, stale(1, 1, 2)),
        (read(1), 0, contents(1, 2, "12345")),
        (delete(1, None), 0, changed(1, 2, 5)),
    ];
    for (seq, (op, max_bytes, expected)) in (0..).zip(steps) {
        assert_eq!(
            apply(&mut files, origin(1, seq), op, max_bytes),
            expected,
            "step {seq}"
        );
    }
    for seq in 0..MAX_FILES as u32 {
        apply(&mut files, origin(2, seq), create(""), 0).unwrap();
    }
    let one_more = apply(&mut files, origin(3, 0), create(""), 0);
    assert_eq!(
        one_more,
        Err(TempFileError::TooMany {
            max_files: MAX_FILES
        })
    );
    apply(&mut files, origin(3, 1), delete(2, None), 0).unwrap();
    assert_eq!(
        apply(&mut files, origin(3, 2), create(""), 0),
        changed(MAX_FILES as u32 + 2, 1, 0),
        "TEMP-3"
    );
}

/// A model of the files without records, origins or pieces: version and text of each file.
#[derive(Default)]
struct Reference {
    files: BTreeMap<u32, (u64, String)>,
    created: u32,
}

impl Reference {
    fn apply(&mut self, op: &TempFileOp<Content>) -> Reply {
        let known: Vec<u32> = self.files.keys().rev().take(5).copied().collect();
        match op {
            TempFileOp::Create { content } => {
                self.created += 1;
                self.files.insert(
                    self.created,
                    (1, content.unlimited_reader().text().unwrap().to_string()),
                );
                changed(self.created, 1, content.len_bytes())
            }
            TempFileOp::Read { id: TempId(id) }
            | TempFileOp::Write { id: TempId(id), .. }
            | TempFileOp::Append { id: TempId(id), .. }
            | TempFileOp::Delete { id: TempId(id), .. } => match self.files.get_mut(id) {
                None if (1..=self.created).contains(id) => deleted(*id, &known),
                None => no_file(*id, &known),
                Some(file) => Self::change(*id, file, op).inspect(|_| {
                    if matches!(op, TempFileOp::Delete { .. }) {
                        self.files.remove(id);
                    }
                }),
            },
        }
    }

    fn change(id: u32, (current, text): &mut (u64, String), op: &TempFileOp<Content>) -> Reply {
        match op {
            TempFileOp::Read { .. } => return contents(id, *current, text),
            TempFileOp::Write { version, .. }
            | TempFileOp::Delete {
                version: Some(version),
                ..
            } if version != current => {
                return stale(id, *version, *current);
            }
            TempFileOp::Delete { .. } => return changed(id, *current, text.len() as u64),
            TempFileOp::Write { content, .. } => {
                *text = content.unlimited_reader().text().unwrap().to_string()
            }
            TempFileOp::Append { content, .. } => {
                text.push_str(&content.unlimited_reader().text().unwrap())
            }
            TempFileOp::Create { .. } => unreachable!("a file is made elsewhere"),
        }
        *current += 1;
        changed(id, *current, text.len() as u64)
    }
}

fn op() -> impl Strategy<Value = TempFileOp<Content>> {
    let (id, version, text) = (0_u32..5, 0_u64..6, "[a-cé]{0,3}");
    prop_oneof![
        1 => text.prop_map(|text| create(&text)),
        2 => id.clone().prop_map(read),
        3 => (id.clone(), text, version.clone()).prop_map(|(id, text, version)| write(id, &text, version)),
        3 => (id.clone(), text).prop_map(|(id, text)| append(id, &text)),
        1 => (id, prop::option::of(version)).prop_map(|(id, version)| delete(id, version)),
    ]
}

/// One step of a random sequence.
#[derive(Clone, Debug)]
enum Step {
    /// A process requests a new operation.
    Do(u64, TempFileOp<Content>),
    /// An earlier call is repeated.
    Repeat(prop::sample::Index),
    /// The files are rebuilt from their records.
    Replay,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u64..4, op()).prop_map(|(pid, op)| Step::Do(pid, op)),
        3 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => Just(Step::Replay),
    ]
}

/// The files, all records that changed them, and the reply to each call that changed something.
#[derive(Default)]
struct Run {
    files: TempFiles<Content>,
    records: Vec<TempFileRecord<Content>>,
    reference: Reference,
    changes: Vec<(TempFileOrigin, TempFileOp<Content>, Reply)>,
}

impl Run {
    fn execute(&mut self, seq: u32, step: Step) {
        match step {
            Step::Do(pid, op) => {
                let (origin, expected) = (origin(pid, seq), self.reference.apply(&op));
                assert_eq!(self.decide(origin, op.clone()), expected, "{op:?}");
                if matches!(expected, Ok(TempFileReply::Changed { .. })) {
                    self.changes.push((origin, op, expected));
                }
            }
            Step::Repeat(which) if !self.changes.is_empty() => {
                let (origin, op, first_reply) = which.get(&self.changes).clone();
                let before = self.records.len();
                assert_eq!(self.decide(origin, op), first_reply, "TEMP-1");
                assert_eq!(self.records.len(), before, "a repeat makes no record");
            }
            Step::Repeat(_) => {}
            Step::Replay => {
                let mut replayed = TempFiles::default();
                self.records
                    .iter()
                    .for_each(|record| evolve(&mut replayed, record));
                assert_eq!(replayed, self.files, "DUR-2");
            }
        }
    }

    fn decide(&mut self, origin: TempFileOrigin, op: TempFileOp<Content>) -> Reply {
        if let Ok(TempFileDecision {
            record: Some(record),
            ..
        }) = decide(&self.files, origin, op.clone(), 1000)
        {
            assert_eq!(
                record.number,
                self.records.len() as u64 + 1,
                "numbers have no gap"
            );
            self.records.push(record);
        }
        apply(&mut self.files, origin, op, 1000)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_with_repeats_behaves_like_the_model(steps in prop::collection::vec(step(), 0..80)) {
        let mut run = Run::default();
        for (seq, step) in (0..).zip(steps) {
            run.execute(seq, step);
        }
        run.execute(0, Step::Replay);
    }
}
