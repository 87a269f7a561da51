use std::sync::Arc;

use dormouse_proto::descriptor::view::{Encoding, SourceEncoding};
use proptest::prelude::*;

use crate::blob_tests::resident_and_stored;
use crate::{BlobStore, Content, Reader};

fn to_utf16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    ['\u{feff}']
        .into_iter()
        .chain(text.chars())
        .collect::<String>()
        .encode_utf16()
        .flat_map(to_bytes)
        .collect()
}

fn windows_1252(text: &str) -> Vec<u8> {
    let (bytes, _, has_unmappable) = encoding_rs::WINDOWS_1252.encode(text);
    assert!(!has_unmappable);
    bytes.into_owned()
}

/// A broken byte after this many characters of a text.
fn broken(text: &str, at: usize) -> (Vec<u8>, String) {
    let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    let (before, after) = text.split_at(at);
    (
        [before.as_bytes(), &[0xff], after.as_bytes()].concat(),
        [before, "\u{fffd}", after].concat(),
    )
}

/// Checks that all reads agree with those of the decoded text, from memory and from disk, and that
/// the original bytes of all pages, joined, are the bytes.
fn check(bytes: Vec<u8>, text: &str, encoding: Encoding, page_chars: u32) {
    let (content, stored, disk) = resident_and_stored(bytes.clone(), page_chars, Vec::new());
    let disk: Arc<dyn BlobStore> = disk;
    let expected = Content::new(text.to_owned());
    let evicted = Content::new(bytes.clone());
    evicted.evict(&disk);
    for content in [&content, &stored, &evicted] {
        let reader = content.unlimited_reader();
        assert_eq!(reader.encoding().unwrap(), encoding);
        assert_eq!(reader.bytes().unwrap(), bytes);
        check_reads(&reader, &expected.unlimited_reader(), page_chars);
        let pages = reader.total_pages(page_chars).unwrap();
        let original = (1..=pages).flat_map(|page| {
            let range = reader.pages_at(page_chars, page, 1).unwrap().unwrap();
            reader.original_bytes(range).unwrap()
        });
        assert!(original.eq(bytes.iter().copied()), "exports are exact");
    }
}

fn check_reads(reader: &Reader<'_>, expected: &Reader<'_>, page_chars: u32) {
    let pages = expected.total_pages(page_chars).unwrap();
    assert_eq!(reader.text().unwrap(), expected.text().unwrap());
    assert_eq!(reader.total_pages(page_chars).unwrap(), pages);
    assert_eq!(
        reader.total_lines().unwrap(),
        expected.total_lines().unwrap()
    );
    assert_eq!(
        reader.total_chars().unwrap(),
        expected.total_chars().unwrap()
    );
    for page in 1..=pages {
        let slice = reader.page(page_chars, page).unwrap();
        assert_eq!(slice, expected.page(page_chars, page).unwrap());
        let bytes = slice.unwrap().bytes();
        for at in [bytes.start, bytes.end] {
            assert_eq!(reader.char_at(at).unwrap(), expected.char_at(at).unwrap());
            assert_eq!(reader.line_at(at).unwrap(), expected.line_at(at).unwrap());
            let part = reader.extract(bytes.start..at).unwrap();
            let expected = expected.extract(bytes.start..at).unwrap();
            let text = |part: Content| part.unlimited_reader().text().unwrap();
            assert_eq!(text(part), text(expected));
        }
    }
    let lines = expected.total_lines().unwrap();
    for line in [1, lines / 2, lines] {
        assert_eq!(
            reader.lines(line, 2).unwrap(),
            expected.lines(line, 2).unwrap()
        );
    }
    let chars = expected.total_chars().unwrap();
    for first in [0, chars / 3, chars - 1] {
        assert_eq!(
            reader.chars(first, 9).unwrap(),
            expected.chars(first, 9).unwrap()
        );
    }
}

fn decoded(from: SourceEncoding, replaced_bytes: u64) -> Encoding {
    Encoding::Decoded {
        from,
        replaced_bytes,
    }
}

#[test]
fn decoded_text_is_read_as_if_it_were_utf_8() {
    let western = "Straße № 1: «Café» – 12 °C\nein Wort\n".replace('№', "Nr.");
    let any = "Straße 一二 😀 x\ny\n";
    for times in [1, 400, 1500] {
        let (western, any) = (western.repeat(times), any.repeat(times));
        check(
            windows_1252(&western),
            &western,
            decoded(SourceEncoding::Windows1252, 0),
            700,
        );
        check(
            to_utf16(&any, u16::to_le_bytes),
            &any,
            decoded(SourceEncoding::Utf16Le, 0),
            700,
        );
        check(
            to_utf16(&any, u16::to_be_bytes),
            &any,
            decoded(SourceEncoding::Utf16Be, 0),
            700,
        );
        for at in [0, 5, any.chars().count()] {
            let (bytes, text) = broken(&any, at);
            check(bytes, &text, decoded(SourceEncoding::Utf8, 1), 700);
        }
    }
}

#[test]
fn the_bytes_of_utf_16_that_cannot_be_decoded_are_counted() {
    let mut bytes = to_utf16(&"a line of text\n".repeat(2000), u16::to_le_bytes);
    bytes.splice(200..200, 0xd800_u16.to_le_bytes());
    bytes.push(b'x');
    let reader = Content::new(bytes.clone());
    let reader = reader.unlimited_reader();
    assert_eq!(
        reader.encoding().unwrap(),
        decoded(SourceEncoding::Utf16Le, 3)
    );
    let text = reader.text().unwrap();
    assert_eq!(text.matches('\u{fffd}').count(), 2);
    let half = text.char_indices().nth(9000).unwrap().0;
    let parts = [0..half, half..text.len()].map(|range| reader.original_bytes(range).unwrap());
    assert_eq!(parts.concat(), bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn broken_bytes_anywhere_change_no_other_character(
        pieces in prop::collection::vec(prop_oneof![
            Just("word "), Just("\n"), Just("é一😀"), Just("\r\n"), Just("a longer piece of text "),
        ], 8..20),
        times in prop_oneof![1..20_usize, 300..500_usize],
        broken_at in prop::collection::vec((0.0..1.0_f64, 0x80_u8..=0xff), 1..4),
        page_chars in 300_u32..900,
    ) {
        let text = pieces.concat().repeat(times);
        let mut bytes = text.into_bytes();
        for (at, byte) in broken_at {
            let at = (bytes.len() as f64 * at) as usize;
            bytes.insert(at, byte);
        }
        prop_assume!(std::str::from_utf8(&bytes).is_err());
        let content = Content::new(bytes.clone());
        let encoding = content.unlimited_reader().encoding().unwrap();
        if let Encoding::Decoded { from: SourceEncoding::Utf8, .. } = encoding {
            check(bytes.clone(), &String::from_utf8_lossy(&bytes), encoding, page_chars);
        }
    }
}
