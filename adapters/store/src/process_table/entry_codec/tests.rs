use dormouse_proto::process::{ExitStatus, ImportSource};

use super::*;

const PID: Pid = Pid(1 << 40);

fn at(offset: u64) -> Location {
    Location {
        segment: 300,
        offset,
    }
}

fn rows() -> Vec<ProcessRow> {
    let call = CallId {
        epoch: u32::MAX,
        seq: 4,
    };
    let origins = [
        Origin::Started,
        Origin::Forked { call, index: 2 },
        Origin::Spawned { call },
        Origin::Judge { call, index: 500 },
        Origin::Copied {
            from: Pid(9),
            at: FactNumber(800),
        },
    ];
    let waiting = [
        Waiting::Nothing,
        Waiting::Alarm { due_ms: 0 },
        Waiting::Person { expires_ms: None },
        Waiting::Person {
            expires_ms: Some(1_800_000_000_000),
        },
        Waiting::Unknown,
    ];
    let started = ProcessRow::started(PID, "p");
    let common = origins.into_iter().zip(waiting);
    let common = common.map(|(origin, waiting)| ProcessRow {
        origin,
        waiting,
        parent: (waiting != Waiting::Nothing).then_some(Pid(200)),
        is_paused: waiting == Waiting::Unknown,
        ..started.clone()
    });
    let branched_from = BranchOrigin {
        pid: Pid(1),
        fact: FactNumber(2),
        local_id: Pid(3),
        import: Some(ImportSource {
            export: None,
            last_pid: Pid(4),
        }),
    };
    let uncommon = [
        ProcessRow {
            name: Some("é".into()),
            ..started.clone()
        },
        ProcessRow {
            branched_from: Some(branched_from),
            ..started.clone()
        },
        ProcessRow {
            exit: Some(Exit::new(ExitStatus::Done, "done")),
            ..started.clone()
        },
        ProcessRow {
            reopenings: 1,
            ..started.clone()
        },
        ProcessRow {
            labels: ["user=anna".parse().unwrap()].into(),
            ..started.clone()
        },
    ];
    common.chain(uncommon).collect()
}

fn entries() -> Vec<ProcessEntry> {
    let entry = ProcessEntry {
        creation_at: at(9),
        last: FactNumber(1 << 61),
        temp_files: NumberedRecords {
            last: 0,
            last_record: LastRecord {
                first_commit: 7,
                at: at(9),
            },
        },
        ..ProcessEntry::new(LastRecord {
            first_commit: 128,
            at: at(127),
        })
    };
    let mut entries = vec![
        entry.clone(),
        ProcessEntry::new(LastRecord::NONE),
        ProcessEntry::deleted(at(1 << 40)),
    ];
    for creation_row in rows() {
        entries.push(ProcessEntry {
            creation_row: Some(creation_row),
            ..entry.clone()
        });
    }
    for exit in [None, Some(Exit::new(ExitStatus::Killed, "x".repeat(300)))] {
        entries.push(ProcessEntry {
            end: Some(EndEntry {
                first_commit: 3,
                at: at(4),
                exit,
                last: FactNumber(5),
            }),
            ..entry.clone()
        });
    }
    for last_record in [entry.last_record, entry.temp_files.last_record] {
        for last in [0, 200] {
            let temp_files = NumberedRecords { last, last_record };
            entries.push(ProcessEntry {
                temp_files,
                ..entry.clone()
            });
        }
    }
    for is_paused in [false, true] {
        entries.push(ProcessEntry {
            waiting: Some(WaitingEntry {
                first_commit: 8,
                at: at(1),
                waiting: Waiting::Alarm { due_ms: 5 },
                is_paused,
            }),
            reopened: is_paused.then_some(ReopenedEntry {
                first_commit: 9,
                at: at(2),
                reopenings: u32::MAX,
            }),
            retained: RetainedHistory::From(FactNumber(2), at(3)),
            ..entry.clone()
        });
    }
    entries
}

#[test]
fn an_entry_decodes_to_the_entry_that_was_encoded() {
    let mut names = ProgramNames::default();
    for entry in entries() {
        let bytes = entry.to_bytes().unwrap();
        let states = [LatestEntry::Encoded(&bytes), LatestEntry::Changed(&entry)];
        for state in states {
            assert_eq!(state.is_deleted(), entry.is_deleted(), "{entry:?}");
            let has_no_row = !entry.is_deleted() && entry.row().is_none();
            assert_eq!(state.is_row_lost(), has_no_row, "{entry:?}");
        }
        let decoded = ProcessEntry::from_bytes(PID, &bytes, &mut names);
        assert_eq!(decoded.as_ref(), Some(&entry));
    }
}

#[test]
fn an_entry_with_fewer_or_more_bytes_is_refused() {
    let mut names = ProgramNames::default();
    for entry in entries() {
        let bytes = entry.to_bytes().unwrap();
        for length in 0..bytes.len() {
            let decoded = ProcessEntry::from_bytes(PID, &bytes[..length], &mut names);
            assert_eq!(decoded, None, "{length} bytes of {entry:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        let decoded = ProcessEntry::from_bytes(PID, &longer, &mut names);
        assert_eq!(decoded, None, "a byte after {entry:?}");
    }
}

#[test]
fn a_row_whose_parent_is_not_older_is_refused() {
    let entry = ProcessEntry {
        creation_row: Some(ProcessRow {
            parent: Some(PID),
            ..ProcessRow::started(PID, "p")
        }),
        ..ProcessEntry::new(LastRecord::NONE)
    };
    let bytes = entry.to_bytes().unwrap();
    let mut names = ProgramNames::default();
    assert_eq!(ProcessEntry::from_bytes(PID, &bytes, &mut names), None);
}

#[test]
fn rows_of_one_program_share_its_name() {
    let mut names = ProgramNames::default();
    let shared = ["p", "q", "p", "q"].map(|name| names.share(name));
    assert!(Arc::ptr_eq(&shared[0], &shared[2]));
    assert!(Arc::ptr_eq(&shared[1], &shared[3]));
    assert_eq!((&*shared[0], &*shared[1]), ("p", "q"));
}
