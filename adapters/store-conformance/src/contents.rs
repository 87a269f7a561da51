//! Contents: stored by hash, read in parts.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use bytes::Bytes;
use dormouse_actors::ports::{StoreError, WriteOp};

use crate::entries::*;
use crate::subject::*;

pub(crate) fn contents_are_read_by_hash(subject: &mut Subject) {
    let owner = claim(subject);
    let lengths = [0, 1, 65_535, 65_536, 65_537, 200_000];
    let contents: Vec<_> = lengths.iter().map(|length| bytes(3, *length)).collect();
    let ops: Vec<_> = contents.iter().chain(&contents[..2]).map(content).collect();
    commit_ops(subject, owner, &ops);
    commit_ops(subject, owner, &ops[2..]);
    for expected in &contents {
        let found = with_store(subject, |store| read(store, hash(expected)).unwrap());
        assert!(
            found == expected,
            "a content of {} bytes is read as it was written",
            expected.len()
        );
    }
    let wrong_hash = WriteOp::Content {
        hash: hash(b"another"),
        bytes: contents[1].clone(),
        index: Bytes::new(),
    };
    let error = expect_refusal(subject, owner, &[created(1), wrong_hash]);
    assert!(
        error.to_string().contains("does not have this hash"),
        "{error}"
    );
}

pub(crate) fn contents_are_read_in_ranges_and_have_their_index(subject: &mut Subject) {
    let owner = claim(subject);
    for (length, index) in [
        (100, &b""[..]),
        (65_537, b""),
        (400_000, b"an index"),
        (65_537, b"another"),
    ] {
        let bytes = bytes(length as u8 ^ index.len() as u8, length);
        let index = Bytes::from_static(index);
        let op = WriteOp::Content {
            hash: hash(&bytes),
            bytes: bytes.clone(),
            index: index.clone(),
        };
        commit_ops(subject, owner, std::slice::from_ref(&op));
        let index_read = with_store(subject, |store| {
            store.content(hash(&bytes)).unwrap().index()
        });
        assert_eq!(index_read, (!index.is_empty()).then_some(index), "{length}");
        let length = length as u64;
        let ranges = [
            0..0,
            0..1,
            length - 1..length,
            length..length,
            0..length,
            7..length / 2,
            65_535..65_537,
            60_000..200_000,
        ];
        for range in ranges {
            let part = with_store(subject, |store| {
                store.content(hash(&bytes)).unwrap().slice(range.clone())
            });
            let expected = (range.end <= length)
                .then(|| bytes.slice(range.start as usize..range.end as usize));
            assert_eq!(part.ok(), expected, "{range:?} of {length}");
        }
    }
}

pub(crate) fn a_reference_to_an_unknown_content_is_refused(subject: &mut Subject) {
    let owner = claim(subject);
    let one = bytes(1, 10);
    let two = bytes(2, 10);
    let reference = |bytes: &Bytes| WriteOp::ContentReferenced { hash: hash(bytes) };
    let unknown = expect_refusal(subject, owner, &[reference(&one)]);
    assert!(
        matches!(unknown, StoreError::UnknownContent(_)),
        "{unknown}"
    );
    commit_ops(subject, owner, &[content(&one), reference(&one)]);
    commit_ops(subject, owner, &[reference(&one)]);
    let unknown = expect_refusal(subject, owner, &[reference(&one), reference(&two)]);
    assert!(
        matches!(unknown, StoreError::UnknownContent(_)),
        "{unknown}"
    );
}
