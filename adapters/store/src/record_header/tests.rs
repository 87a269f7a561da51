use super::*;

const KEY: StoreKey = StoreKey([7; 32]);
const AT: Location = Location {
    segment: 2,
    offset: 500,
};

#[test]
fn debug_output_hides_the_store_key() {
    assert_eq!(format!("{KEY:?}"), "StoreKey(hidden)");
}

fn header() -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Facts,
        place: PlaceInCommit::Last,
        encoding: Encoding::PLAIN,
        commit: 3,
        first_commit: 2,
        synced: 1,
        at_ms: 1_700_000_000_000,
        length: 24,
        subject: 4,
        first: 5,
        count: 6,
        payload_hash: [1; 32],
        previous: [2; 32],
    }
}

#[test]
fn a_header_verifies_only_at_its_own_location_and_with_its_own_key() {
    let (bytes, hash) = header().sign(&KEY, AT);
    assert_eq!(
        RecordHeader::verify(&bytes, &KEY, AT),
        Ok(Some(CheckedHeader {
            header: header(),
            hash
        }))
    );
    let elsewhere = [
        Location { segment: 3, ..AT },
        Location { offset: 501, ..AT },
    ];
    for place in elsewhere {
        assert_eq!(RecordHeader::verify(&bytes, &KEY, place), Ok(None));
    }
    assert_eq!(
        RecordHeader::verify(&bytes, &StoreKey([8; 32]), AT),
        Ok(None)
    );
}

#[test]
fn every_flipped_bit_invalidates_a_header() {
    let (bytes, _) = header().sign(&KEY, AT);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            RecordHeader::verify(&flipped, &KEY, AT),
            Ok(None),
            "bit {bit}"
        );
    }
}

#[test]
fn an_unknown_version_kind_or_flag_is_an_error_of_its_own() {
    let cases = [
        (4, 2, UnknownFormat::Version(2)),
        (5, 200, UnknownFormat::Kind(200)),
        (6, 1 | 8, UnknownFormat::Flags(9, 0)),
        (6, 1 | COMPRESSED, UnknownFormat::Flags(3, 0)),
        (7, 1, UnknownFormat::Flags(1, 1)),
    ];
    for (at, byte, unknown) in cases {
        let (mut bytes, _) = header().sign(&KEY, AT);
        bytes[at] = byte;
        let hash = authentication_tag(&bytes, &KEY, AT);
        bytes[AUTHENTICATED_BYTES..].copy_from_slice(&hash);
        assert_eq!(
            RecordHeader::verify(&bytes, &KEY, AT),
            Err(unknown),
            "byte {at}"
        );
    }
}

#[test]
fn a_header_with_implausible_numbers_is_rejected() {
    let most = RecordHeader {
        at_ms: MAX_NUMBER,
        ..header()
    };
    let cases = [
        (most.clone(), true),
        (
            RecordHeader {
                at_ms: MAX_NUMBER + 1,
                ..header()
            },
            false,
        ),
        (
            RecordHeader {
                length: u64::MAX,
                ..header()
            },
            false,
        ),
        (
            RecordHeader {
                subject: u64::MAX,
                ..header()
            },
            true,
        ),
        (
            RecordHeader {
                first: u64::MAX,
                ..header()
            },
            false,
        ),
        (
            RecordHeader {
                kind: RecordKind::Content,
                count: u64::MAX,
                ..header()
            },
            false,
        ),
        (
            RecordHeader {
                count: 7,
                ..header()
            },
            false,
        ),
        (
            RecordHeader {
                kind: RecordKind::Content,
                count: 7,
                ..header()
            },
            true,
        ),
    ];
    for (header, is_plausible) in cases {
        let (bytes, hash) = header.sign(&KEY, AT);
        let opened = is_plausible.then(|| CheckedHeader {
            header: header.clone(),
            hash,
        });
        assert_eq!(
            RecordHeader::verify(&bytes, &KEY, AT),
            Ok(opened),
            "{header:?}"
        );
    }
}

#[test]
fn associated_data_covers_exactly_the_fields_that_a_move_keeps() {
    let associated_data = |header: RecordHeader| header.associated_data(PayloadPart::Whole, 0);
    let moved = RecordHeader {
        place: PlaceInCommit::More,
        commit: 9,
        synced: 8,
        previous: [7; 32],
        ..header()
    };
    assert_eq!(associated_data(moved), associated_data(header()));
    let others = [
        RecordHeader {
            kind: RecordKind::Snapshot,
            ..header()
        },
        RecordHeader {
            encoding: Encoding::ENCRYPTED,
            ..header()
        },
        RecordHeader {
            first_commit: 1,
            ..header()
        },
        RecordHeader {
            at_ms: 1,
            ..header()
        },
        RecordHeader {
            subject: 1,
            ..header()
        },
        RecordHeader {
            first: 1,
            ..header()
        },
        RecordHeader {
            count: 1,
            ..header()
        },
    ];
    for other in others {
        assert_ne!(
            associated_data(other.clone()),
            associated_data(header()),
            "{other:?}"
        );
    }
    assert_ne!(
        header().associated_data(PayloadPart::Chunk, 0),
        header().associated_data(PayloadPart::Whole, 0)
    );
    assert_ne!(
        header().associated_data(PayloadPart::Chunk, 0),
        header().associated_data(PayloadPart::Chunk, 1)
    );
}

#[test]
fn a_header_has_the_documented_layout() {
    let (bytes, hash) = header().sign(&KEY, AT);
    let mut expected = Vec::from(*b"DMLG\x01\x04\x01\x00");
    for number in [3_u64, 2, 1, 1_700_000_000_000, 24, 4, 5, 6] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend([1; 32]);
    expected.extend([2; 32]);
    let place = [&expected[..], &2_u32.to_le_bytes(), &500_u64.to_le_bytes()].concat();
    assert_eq!(hash, *blake3::keyed_hash(&KEY.0, &place).as_bytes());
    expected.extend(hash);
    assert_eq!(bytes[..], expected[..]);
}
