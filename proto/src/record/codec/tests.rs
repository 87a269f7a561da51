use super::*;
use crate::id::FactNumber;
use imbl::{OrdMap, Vector};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_record_of_a_later_version_is_refused_by_name() {
    let mut bytes = encode(&FactNumber(7)).unwrap();
    assert_eq!(bytes, [VERSION, 7]);
    bytes[0] = VERSION + 1;
    let newer = decode::<FactNumber>(&bytes).unwrap_err();
    assert!(matches!(newer, CodecError::Newer(3)), "{newer}");
    for older in [&[][..], &[0, 7]] {
        let refused = decode::<FactNumber>(older).unwrap_err();
        assert!(matches!(refused, CodecError::Decode(_)), "{refused}");
    }
}

#[test]
fn a_record_that_is_too_long_is_said_to_be_when_it_is_read() {
    let error = decode::<FactNumber>(&vec![VERSION; MAX_PAYLOAD_BYTES + 1]).unwrap_err();
    assert!(matches!(error, CodecError::TooLarge), "{error}");
    assert!(!error.to_string().contains("written"), "{error}");
}

#[test]
fn a_struct_of_an_earlier_version_has_the_fields_of_that_version() {
    let added = |since, fields_before| AddedFields {
        of: "Grown",
        since,
        fields_before,
    };
    let added = [added(2, 3), added(4, 5)];
    let counts = (1..=4).map(|version| fields_in_version(&added, version, "Grown", 6));
    assert_eq!(counts.collect::<Vec<_>>(), [3, 5, 5, 6]);
    assert_eq!(fields_in_version(&added, 1, "Other", 6), 6);
}

#[test]
fn a_record_round_trips_and_other_lengths_are_refused() {
    let bytes = encode(&(FactNumber(7), "seven")).unwrap();
    assert_eq!(
        decode::<(FactNumber, String)>(&bytes).unwrap(),
        (FactNumber(7), "seven".to_owned())
    );
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(
        decode::<(FactNumber, String)>(&longer),
        Err(CodecError::Trailing(1))
    ));
    assert!(decode::<(FactNumber, String)>(&bytes[..bytes.len() - 1]).is_err());
}

/// No claimed length reserves memory, in any kind of list.
#[test]
fn a_length_that_the_bytes_cannot_hold_is_refused_by_every_kind_of_list() {
    fn refused<T: DeserializeOwned + std::fmt::Debug>(claimed: u64) {
        let mut bytes = encode(&claimed).unwrap();
        bytes.extend([0; 40]);
        let found = decode::<T>(&bytes);
        assert!(
            matches!(found, Err(CodecError::Claim { left: 40, .. })),
            "{claimed} elements: {found:?}"
        );
    }
    for claimed in [41, 1 << 16, 1 << 31, 1 << 32, 1 << 46, 1 << 60, u64::MAX] {
        refused::<Vec<u8>>(claimed);
        refused::<Vec<Vec<u8>>>(claimed);
        refused::<Vector<Arc<str>>>(claimed);
        refused::<OrdMap<u32, u64>>(claimed);
        refused::<BTreeMap<String, u64>>(claimed);
        refused::<String>(claimed);
        refused::<Arc<str>>(claimed);
        refused::<Arc<[String]>>(claimed);
        refused::<bytes::Bytes>(claimed);
    }
}

/// Lists of a correct length whose elements take some dozen times their bytes.
#[test]
fn many_empty_elements_that_exceed_the_allowance_are_refused() {
    let many = vec![0_u8; 24 << 20];
    let bytes = [encode(&(many.len() as u64)).unwrap(), many].concat();
    assert!(matches!(
        decode::<Vec<Vec<u8>>>(&bytes),
        Err(CodecError::Expands { .. })
    ));
    assert!(matches!(
        decode::<Vector<Arc<str>>>(&bytes),
        Err(CodecError::Expands { .. })
    ));
    assert!(matches!(
        decode::<Vec<[u64; 0]>>(&[VERSION, 200, 1]),
        Err(CodecError::Claim { .. })
    ));
    let few = encode(&vec![String::new(); 5_000]).unwrap();
    assert_eq!(decode::<Vec<String>>(&few).unwrap().len(), 5_000);
}

#[test]
fn records_that_share_an_allowance_are_charged_together() {
    let texts = encode(&vec!["a text of some length"; 1_000]).unwrap();
    let mut allowance = Allowance::of(texts.len() as u64);
    decode_within::<Vec<String>>(&texts, &mut allowance).unwrap();
    let once = allowance.charged();
    assert!((1_000 * 45..1_000 * 90).contains(&once), "{once}");
    let before = allowance;
    decode_within::<Vec<String>>(&texts, &mut allowance).unwrap();
    assert_eq!(allowance.charged(), 2 * once);
    allowance.refund_since(&before);
    assert_eq!(allowance.charged(), once);
}

/// A value is charged once, whether it is in a box, in a list or in a struct.
#[test]
fn a_boxed_value_is_charged_and_an_inline_value_is_not_charged_twice() {
    fn charge_of<T: DeserializeOwned + Serialize>(value: T) -> u64 {
        let bytes = encode(&value).unwrap();
        let mut allowance = Allowance::of(bytes.len() as u64);
        decode_within::<T>(&bytes, &mut allowance).unwrap();
        allowance.charged()
    }
    assert_eq!(charge_of((1_u64, (2_u64, Some(3_u64)))), 0);
    assert_eq!(charge_of(Box::new((1_u64, 2_u64))), 16 + 24);
    assert_eq!(
        charge_of((7_u8, Arc::new((1_u64, (2_u64, 3_u64))))),
        24 + 24
    );
    assert_eq!(
        charge_of(vec![(1_u64 << 40, (2_u64 << 40, 3_u64 << 40)); 10]),
        10 * 24 + 24
    );
}

/// A list is charged at least what it holds room for, however large its elements are.
#[test]
fn a_list_is_charged_its_capacity() {
    fn check<T: DeserializeOwned + Serialize + Clone>(element: T, count: usize) {
        let bytes = encode(&vec![element; count]).unwrap();
        let mut allowance = Allowance::of(bytes.len() as u64);
        let list = decode_within::<Vec<T>>(&bytes, &mut allowance).unwrap();
        let held = list.capacity() * size_of::<T>();
        assert!(
            held as u64 <= allowance.charged(),
            "{count} of {}: {held} of {allowance:?}",
            size_of::<T>()
        );
    }
    for count in [
        1,
        2,
        3,
        4,
        5,
        9,
        100,
        5_000,
        40_000,
        (1 << 16) - 1,
        1 << 16,
        (1 << 16) + 1,
        70_000,
    ] {
        check(u64::MAX, count);
        check([u64::MAX; 16], count);
        check((u64::MAX, [u64::MAX; 9]), count);
        check([u8::MAX; 32], count);
        check(0_u64, count.min(5_000));
        check(String::new(), count.min(100));
    }
}
