//! A serialized index round-trips; other bytes are refused.

use proptest::prelude::*;

use super::*;
use crate::Content;
use crate::location::Data;

fn text_index(bytes: Vec<u8>, page_sizes: &[u32]) -> TextIndex {
    let data = Data::new(bytes.into());
    let text_index = TextIndex::new(&data);
    if let (TextIndex::Text { index, pages, .. }, Data::Text(text)) = (&text_index, &data) {
        page_sizes.iter().for_each(|chars| {
            pages.find_or_build(*chars, text, index.is_ascii());
        });
    }
    text_index
}

fn deserialize(input: &[u8], len: usize) -> Option<TextIndex> {
    TextIndex::deserialize(input, len, || false)
}

fn text_or_binary() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        Just("a"),
        Just("\n"),
        Just("é😀"),
        Just("word word word\n"),
        Just("\r\n")
    ];
    let text = (prop::collection::vec(pieces, 0..20), 1..600_usize)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times).into_bytes());
    prop_oneof![4 => text, 1 => prop::collection::vec(any::<u8>(), 0..100)]
}

/// Looks up positions in an index that was accepted; no lookup may panic.
fn look_up(text_index: &TextIndex, len: usize) {
    let opened = Content::new("x".repeat(len))
        .unlimited_reader()
        .open()
        .unwrap();
    for at in [0, 1, len / 2, len] {
        let shown = at.min(text_index.shown_len());
        let _ = (
            text_index.line_at(&opened, shown.min(len)),
            text_index.char_at(&opened, shown.min(len)),
        );
        let _ = (
            text_index.line_start(&opened, at as u64),
            text_index.char_start(&opened, at as u64),
        );
    }
    let _ = (
        text_index.total_chars(),
        text_index.total_lines(),
        text_index.bytes(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_serialized_index_round_trips(bytes in text_or_binary(), page_sizes in prop::collection::vec(1_u32..5_000, 0..3)) {
        let len = bytes.len();
        let text_index = text_index(bytes, &page_sizes);
        prop_assume!(text_index.decoding().is_none());
        let serialized = text_index.serialize();
        let deserialized = deserialize(&serialized, len).expect("it was serialized from a content \
             of this length");
        prop_assert_eq!(format!("{deserialized:?}"), format!("{text_index:?}"));
        prop_assert!(deserialize(&serialized, len + 1).is_none(), "another content's length");
        for end in 0..serialized.len().min(400) {
            prop_assert!(deserialize(&serialized[..end], len).is_none(), "cut at {}", end);
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_harmless(
        bytes in text_or_binary(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let len = bytes.len();
        let mut serialized = text_index(bytes, &[700]).serialize().to_vec();
        prop_assume!(!serialized.is_empty());
        for (at, byte) in changes {
            let at = at.index(serialized.len());
            serialized[at] = byte;
        }
        if let Some(text_index) = deserialize(&serialized, len) {
            look_up(&text_index, len);
        }
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0..2_000_usize) {
        if let Some(text_index) = deserialize(&bytes, len) {
            look_up(&text_index, len);
        }
    }
}

#[test]
fn a_serialized_index_is_about_a_thousandth_of_its_text() {
    let text = "a line of some length, as logs have them\n".repeat(100_000);
    let len = text.len();
    let serialized = text_index(text.into_bytes(), &[4_000]).serialize();
    assert!(
        serialized.len() * 800 < len,
        "{} bytes for {len}",
        serialized.len()
    );
}

#[test]
fn counts_that_no_text_has_are_refused() {
    let serialized = text_index(b"one\ntwo\n".repeat(1_000), &[100]).serialize();
    assert!(deserialize(&serialized, 8_000).is_some());
    let accepts_changed = |at: usize, byte: u8| {
        let mut serialized = serialized.to_vec();
        serialized[at] = byte;
        deserialize(&serialized, 8_000).is_some()
    };
    assert!(!accepts_changed(0, 2), "another version");
    assert!(!accepts_changed(1, 7), "neither text nor binary");
    assert!(!accepts_changed(4, 2), "neither open nor closed");
    assert!(
        !accepts_changed(7, 0xff),
        "more line feeds than the block has bytes"
    );
    let huge = [
        VERSION, TEXT, 8, 1, 0, 0, 0, 1, 10, 0xff, 0xff, 0xff, 0xff, 0x0f,
    ];
    assert!(
        deserialize(&huge, 8).is_none(),
        "a table of more pages than are written"
    );
}

#[test]
fn an_index_of_an_earlier_version_is_used_unless_its_text_is_decoded_now() {
    let mut text = text_index(b"one\ntwo\n".repeat(1_000), &[100])
        .serialize()
        .to_vec();
    text[1] = UTF8;
    assert!(TextIndex::deserialize(&text, 8_000, || false).is_some());
    assert!(TextIndex::deserialize(&text, 8_000, || true).is_none());
    let mut binary = text_index(vec![0xff; 8_000], &[]).serialize().to_vec();
    assert!(deserialize(&binary, 8_000).is_some());
    binary[1] = 1;
    assert!(deserialize(&binary, 8_000).is_none());
}
