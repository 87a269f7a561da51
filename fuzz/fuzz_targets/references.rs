//! Any reply with marks in it: what is marked lies between its tags, and a further reference
//! changes no other.

#![no_main]

use dormouse_kernel::references::references;
use libfuzzer_sys::fuzz_target;

/// Long enough that a cost of more than O(n) runs into the time limit of one execution.
const LONG: usize = 1 << 18;

fuzz_target!(|bytes: &[u8]| {
    let reply = String::from_utf8_lossy(bytes);
    ranges_lie_between_tags(&reply);
    a_further_one_changes_no_other(&reply);
    // Few are: a choice that the fuzzer cannot steer towards, since it takes a thousand times as
    // long.
    if !reply.is_empty() && bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 1024 == 0 {
        let _ = references(&reply.repeat(LONG.div_ceil(reply.len())));
    }
});

fn ranges_lie_between_tags(reply: &str) {
    let found = references(reply);
    assert!(found.len() <= closings(reply));
    for (id, range) in found {
        let (before, after) = (reply.get(..range.start), reply.get(range.end..));
        let before = before.expect("it starts in the reply, between characters");
        let tag = &before[before.rfind('<').expect("a tag stands before")..];
        assert!(
            tag.starts_with("<ref") && tag.ends_with('>') && tag.contains(id) && !id.is_empty(),
            "{tag}"
        );
        assert!(
            after.is_some_and(|after| after.starts_with("</ref")),
            "{reply:?}"
        );
        let inner = reply
            .get(range)
            .expect("it lies in the reply, between characters");
        let openings = inner.matches("<ref").count();
        assert!(
            closings(inner) <= openings,
            "it ends at its own tag: {inner:?}"
        );
    }
}

fn a_further_one_changes_no_other(reply: &str) {
    let longer = format!("{reply}<ref id=\"last\">x</ref>");
    let mut found = references(&longer);
    assert_eq!(found.remove("last").map(|range| &longer[range]), Some("x"));
    let mut before = references(reply);
    before.remove("last");
    assert_eq!(found, before);
}

fn closings(text: &str) -> usize {
    text.split("</ref")
        .skip(1)
        .filter(|after| after.trim_start().starts_with('>'))
        .count()
}
