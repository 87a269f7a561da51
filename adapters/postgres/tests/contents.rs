//! Contents in the database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{FACTS, append_all, claimed, for_each_server, put};
use dormouse_proto::id::ContentHash;
use dormouse_records::{NewContent, RecordLog};

#[test]
fn ranges_of_a_content_of_100_mb_are_read_without_the_rest() {
    const LENGTH: usize = 100_000_000;
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let bytes: Vec<u8> = (0..LENGTH as u32 / 4)
            .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let bytes = Bytes::from(bytes);
        let new = NewContent {
            name: ContentHash([1; 32]),
            bytes: bytes.clone(),
            index: Bytes::from_static(b"index"),
        };
        append_all(
            &log,
            owner,
            std::slice::from_ref(&new),
            &[put(FACTS, 1, "x")],
        )
        .unwrap();
        let reader = log.content(new.name).unwrap().expect("it was written");
        assert_eq!(
            (reader.length(), reader.index()),
            (LENGTH as u64, Some(new.index.clone()))
        );
        let chunk = 256 * 1024;
        for (start, end) in [
            (0, 1),
            (chunk - 1, chunk + 1),
            (chunk, 2 * chunk),
            (5 * chunk + 7, 5 * chunk + 9),
            (0, LENGTH),
            (LENGTH - 1, LENGTH),
            (3 * chunk + 1, 40 * chunk - 1),
            (16 * chunk - 1, 32 * chunk + 1),
            (9, 9),
        ] {
            let read = reader.slice(start as u64..end as u64).unwrap();
            assert_eq!(read, bytes.slice(start..end), "{start}..{end}");
        }
        for (start, end) in [(0, LENGTH as u64 + 1), (2, 1), (u64::MAX, u64::MAX)] {
            assert!(reader.slice(start..end).is_err(), "{start}..{end}");
        }
        // A page in the middle touches the pieces of its chunk that hold it, and not the other 130.
        // The first reading of a connection also touches the catalog.
        let schema = database.schema();
        let touched = |part: &str| {
            let sql = format!(
                "EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) SELECT length({part})
                 FROM {schema}.content_chunk
                 WHERE shard = 0 AND body = (SELECT body FROM {schema}.content) AND number = 200"
            );
            blocks(&server.sql(&format!(
                "{}; {sql}",
                sql.split_once(") ").expect("it has options").1
            )))
        };
        let (part, whole) = (
            touched("substr(bytes, 100001, 4000)"),
            touched("substr(bytes, 1)"),
        );
        assert!(part + 20 < whole, "{part} of {whole} blocks");
        // The content is written once, and is gone when it was deleted.
        append_all(&log, owner, std::slice::from_ref(&new), &[]).unwrap();
        let chunks = || server.sql(&format!("SELECT count(*) FROM {schema}.content_chunk"));
        assert_eq!(chunks(), [LENGTH.div_ceil(chunk).to_string()]);
        log.delete_contents(owner, &[new.name]).unwrap();
        assert_eq!(chunks(), ["0"]);
        assert!(reader.slice(0..1).is_err());
    });
}

/// The blocks that a plan touched, in memory or on disk.
fn blocks(plan: &[String]) -> u32 {
    let line = plan.iter().find(|line| line.contains("Buffers: shared"));
    let line = line.unwrap_or_else(|| panic!("{plan:?}"));
    let numbers = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    numbers
        .map(|(_, number)| number.parse::<u32>().unwrap())
        .sum()
}

#[test]
fn chunks_of_an_upload_that_was_not_finished_are_deleted_with_the_next_contents() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let schema = database.schema();
        let upload = format!(
            "SELECT {schema}.upload_chunks(0, {}, 77, 0, ARRAY['\\x01'::bytea, '\\x02'::bytea])",
            owner.0
        );
        assert_eq!(server.sql(&upload), ["t"]);
        let (newer, newer_owner) = claimed(&database);
        assert_eq!(
            server.sql(&upload),
            ["f"],
            "a superseded owner uploads no more"
        );
        let chunks = || server.sql(&format!("SELECT count(*) FROM {schema}.content_chunk"));
        assert_eq!(chunks(), ["2"]);
        drop(log);
        newer
            .delete_contents(newer_owner, &[ContentHash([9; 32])])
            .unwrap();
        assert_eq!(chunks(), ["0"]);
    });
}
