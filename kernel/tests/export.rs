//! Exports as bytes: what goes in comes out, and whatever was cut off, altered or made up is
//! refused by name.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use dormouse_content::Content;
use dormouse_kernel::export::{
    Checker, ExportEncoder, ExportError, ExportVisitor, Manifest, MaskTarget, Masker, Redact,
    mask_text,
};
use dormouse_kernel::process::{Birth, HostContext, Preloads, initial_image};
use dormouse_kernel::program::{Bundle, compile};
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::{Facts, Head, Member, Record, Redaction};
use dormouse_proto::id::{CallId, CommitNumber, FactNumber, FdId, Pid};
use dormouse_proto::process::{Origin, Priority, ProcessRow};
use dormouse_proto::record::{ContentRef, Entry, Image, Lifetime, codec};
use dormouse_proto::temp_file::{TempFileChange, TempFileOrigin, TempFileRecord, TempId};
use dormouse_proto::tool::Access;
use proptest::prelude::*;

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \"s\"\n";

/// What an export is made of.
#[derive(Clone)]
struct Parts {
    records: Vec<Record>,
    contents: Vec<Bytes>,
}

fn image() -> Image<ContentRef> {
    let text = Bytes::from(PROGRAM);
    let program = compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &[])
        .expect("it compiles")
        .program;
    let (access, lifetime, priority, preloads) = (
        Access::Read,
        Lifetime::Session,
        Priority::Normal,
        &Preloads::default(),
    );
    let birth = Birth {
        access,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: None,
    };
    let mut image = initial_image(&program, &HostContext::new(&TOOL_SET), birth, 0);
    // What a model is told may change, and the golden file is not about that.
    (image.system, image.tools) = ("s".into(), Vec::new().into());
    image.table.insert(
        FdId::Fd(1),
        Entry::new(Content::new(large()), 4000, "tool:t", 1),
    );
    image
        .try_map(&mut |content: Content| Ok::<_, ()>(content.reference()))
        .expect("it cannot fail")
}

fn large() -> Bytes {
    Bytes::from("a line with a secret-7 in it\n".repeat(9))
}

fn program() -> Bytes {
    let text = Bytes::from(PROGRAM);
    compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &[])
        .expect("it compiles")
        .program
        .bundle()
        .to_bytes()
}

fn reference(bytes: &Bytes) -> ContentRef {
    Content::new(bytes.clone()).reference()
}

const CALL: CallId = CallId { epoch: 0, seq: 3 };

fn head() -> Head {
    let (made_by, redaction) = ("a test".to_owned(), Redaction::Whole);
    Head {
        made_by,
        at_ms: 5,
        scope: Scope::Tree,
        exported_pid: Pid(2),
        last_pid: Pid(9),
        redaction,
    }
}

fn member(pid: u64, parent: Option<u64>) -> Member {
    let origin = parent.map_or(Origin::Started, |_| Origin::Forked {
        call: CALL,
        index: pid as u32,
    });
    let row = ProcessRow {
        parent: parent.map(Pid),
        origin,
        ..ProcessRow::started(Pid(pid), "p")
    };
    Member {
        row,
        at: FactNumber(4),
        image: image(),
    }
}

fn facts(pid: u64, first: u64) -> Record {
    Record::Facts(Facts {
        pid: Pid(pid),
        commit: CommitNumber(first),
        at_ms: 1,
        first: FactNumber(first),
        facts: vec![vec![1], vec![2]],
    })
}

fn change(number: u64) -> Record {
    let origin = TempFileOrigin {
        pid: Pid(2),
        call: CALL,
    };
    let change = TempFileChange::Appended(reference(&Bytes::from_static(b"a note")));
    Record::TempFile(TempFileRecord {
        number,
        origin,
        id: TempId(1),
        version: number,
        total_bytes: 6,
        change,
    })
}

fn parts() -> Parts {
    let first = Record::Member(Box::new(member(2, None)));
    let child = Record::Member(Box::new(member(5, Some(2))));
    let records = vec![
        Record::Head(head()),
        first,
        facts(2, 1),
        facts(2, 3),
        child,
        facts(5, 3),
        change(1),
        change(2),
    ];
    Parts {
        records,
        contents: vec![program(), large(), Bytes::from_static(b"a note")],
    }
}

impl Parts {
    fn file(&self) -> Vec<u8> {
        let (mut encoder, mut file) = ExportEncoder::begin();
        for record in &self.records {
            file.extend(encoder.record(record, None).expect("it is small"));
        }
        for content in &self.contents {
            file.extend(encoder.content(content.len() as u64));
            encoder.part(content);
            file.extend_from_slice(content);
            file.extend(encoder.close().1);
        }
        file.extend(encoder.end().1);
        file
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Vec<u8> {
        change(&mut self);
        self.file()
    }
}

/// What was told, in order.
#[derive(Default, Debug, PartialEq)]
struct Heard {
    facts: Vec<Facts>,
    contents: Vec<(ContentRef, Vec<u8>)>,
    coming: Vec<u8>,
}

impl ExportVisitor for Heard {
    fn facts(&mut self, facts: Facts) {
        self.facts.push(facts);
    }

    fn part(&mut self, bytes: &[u8]) {
        self.coming.extend_from_slice(bytes);
    }

    fn closed(&mut self, content: ContentRef) {
        self.contents
            .push((content, std::mem::take(&mut self.coming)));
    }
}

fn read(file: &[u8], step: usize) -> Result<(Manifest, Heard), ExportError> {
    let (mut checker, mut heard) = (Checker::default(), Heard::default());
    file.chunks(step)
        .try_for_each(|part| checker.feed(part, &mut heard))?;
    Ok((checker.finish()?, heard))
}

fn refused(file: &[u8]) -> ExportError {
    read(file, 4096).expect_err("it is not whole")
}

#[test]
fn what_goes_in_comes_out_however_it_is_cut() {
    let parts = parts();
    let file = parts.file();
    let (manifest, heard) = read(&file, file.len()).expect("it is whole");
    assert_eq!(
        (&manifest.head, manifest.bytes),
        (&head(), file.len() as u64)
    );
    let members = parts.records.iter().filter_map(|record| match record {
        Record::Member(member) => Some((**member).clone()),
        _ => None,
    });
    assert_eq!(manifest.members, members.collect::<Vec<_>>());
    assert_eq!(manifest.files.len(), 2);
    assert_eq!(
        manifest.programs.into_values().collect::<Vec<_>>(),
        [program()]
    );
    assert_eq!(
        manifest.facts.into_iter().collect::<Vec<_>>(),
        [(Pid(2), 4), (Pid(5), 2)]
    );
    let held: Vec<_> = parts
        .contents
        .iter()
        .map(|content| (reference(content), content.to_vec()))
        .collect();
    assert_eq!(heard.contents, held);
    assert_eq!(heard.facts.len(), 3);
    for step in [1, 7, 48, 100] {
        assert_eq!(
            read(&file, step).expect("it is whole").1,
            heard,
            "in parts of {step} bytes"
        );
    }
}

/// What the golden export of a version says of its processes.
pub(crate) fn golden_manifest(version: u8) -> Manifest {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let file = std::fs::read(folder.join(format!("export-{version}.dormouse")));
    let read = read(&file.expect("it is there"), 4096);
    read.expect("it is whole").0
}

/// Every later version must read these files, so that they are never written anew. Where the
/// encoding grows, a file of today joins them: `UPDATE_GOLDEN=1` writes one that is not there.
#[test]
fn the_golden_files_are_read() {
    let golden = |version: u8| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        folder.join(format!("export-{version}.dormouse"))
    };
    let today = golden(codec::VERSION);
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !today.exists() {
        std::fs::write(&today, parts().file()).expect("it can be written");
    }
    let (made, told) = read(&parts().file(), 4096).expect("it is whole");
    for version in 1..=codec::VERSION {
        let file = std::fs::read(golden(version));
        let file = file.expect("it is there: UPDATE_GOLDEN=1 makes it");
        let (manifest, heard) = read(&file, 4096).expect("it is whole");
        // An encoded program has another name in each version.
        assert_eq!(manifest.members.len(), made.members.len());
        assert_eq!(manifest.files, made.files);
        assert_eq!(heard.facts.len(), told.facts.len());
        assert_eq!(heard.contents.len(), told.contents.len());
        if version == codec::VERSION {
            assert_eq!(
                (manifest.head, manifest.members),
                (made.head.clone(), made.members.clone())
            );
            assert_eq!(heard, told);
        }
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused_as_such() {
    let file = parts().file();
    for len in 0..file.len() {
        assert_eq!(
            refused(&file[..len]),
            ExportError::Truncated { at: len as u64 }
        );
    }
}

#[test]
fn every_flipped_bit_is_noticed_by_name() {
    let file = parts().file();
    for at in 0..file.len() {
        for bit in [0, 3, 7] {
            let mut altered = file.clone();
            altered[at] ^= 1 << bit;
            let error = refused(&altered);
            let is_named = match at {
                0..8 => error == ExportError::NotAnExport,
                8..12 => matches!(error, ExportError::Newer { .. }),
                _ => matches!(error, ExportError::Altered { .. }),
            };
            assert!(is_named, "bit {bit} of byte {at}: {error}");
        }
    }
}

#[test]
fn what_is_moved_or_added_is_noticed() {
    let file = parts().file();
    let longer = [&file[..], b"x"].concat();
    assert_eq!(
        refused(&longer),
        ExportError::Altered {
            at: file.len() as u64
        }
    );
    let twice = [&file[..], &file[..]].concat();
    assert_eq!(
        refused(&twice),
        ExportError::Altered {
            at: file.len() as u64
        }
    );
    assert_eq!(
        refused(b"PK\x03\x04 something else that is long enough"),
        ExportError::NotAnExport
    );
    assert_eq!(refused(b"PK"), ExportError::NotAnExport);
    let other = parts().with(|parts| parts.records[0] = Record::Head(Head { at_ms: 6, ..head() }));
    let mixed = [&file[..file.len() / 2], &other[file.len() / 2..]].concat();
    assert!(matches!(refused(&mixed), ExportError::Altered { .. }));
}

#[test]
fn a_file_that_is_whole_and_contradicts_itself_is_refused() {
    let alter = |at: usize, change: &dyn Fn(&mut Member)| {
        parts().with(|parts| {
            let Record::Member(member) = &mut parts.records[at] else {
                panic!("record {at} is a process")
            };
            change(member);
        })
    };
    let with_head = |head: Head| parts().with(|parts| parts.records[0] = Record::Head(head));
    let cases = [
        (
            "no head",
            parts().with(|parts| drop(parts.records.remove(0))),
        ),
        (
            "two heads",
            parts().with(|parts| parts.records.insert(1, Record::Head(head()))),
        ),
        (
            "nothing",
            Parts {
                records: Vec::new(),
                contents: Vec::new(),
            }
            .file(),
        ),
        (
            "no process",
            Parts {
                records: vec![Record::Head(head())],
                contents: Vec::new(),
            }
            .file(),
        ),
        (
            "another first process",
            with_head(Head {
                exported_pid: Pid(5),
                ..head()
            }),
        ),
        (
            "more than one process",
            with_head(Head {
                scope: Scope::Process,
                ..head()
            }),
        ),
        (
            "a number beyond all",
            with_head(Head {
                last_pid: Pid(u64::MAX),
                ..head()
            }),
        ),
        (
            "a number beyond the last",
            with_head(Head {
                last_pid: Pid(4),
                ..head()
            }),
        ),
        (
            "a parent that is not there",
            alter(4, &|member| member.row.parent = Some(Pid(4))),
        ),
        (
            "a parent that made nothing",
            alter(4, &|member| member.row.origin = Origin::Started),
        ),
        (
            "one number twice",
            alter(4, &|member| member.row.pid = Pid(2)),
        ),
        (
            "calls that were never made",
            alter(4, &|member| member.image.epoch = u32::MAX),
        ),
        (
            "alarms that were never set",
            alter(4, &|member| member.image.alarms_set = u32::MAX),
        ),
        (
            "a child twice",
            parts().with(|parts| {
                let (mut twin, Record::Member(child)) = (member(6, Some(2)), &parts.records[4])
                else {
                    panic!()
                };
                twin.row.origin = child.row.origin.clone();
                parts.records.insert(5, Record::Member(Box::new(twin)));
                parts.records.insert(6, facts(6, 3));
            }),
        ),
        (
            "facts of another",
            parts().with(|parts| parts.records[2] = facts(5, 1)),
        ),
        (
            "facts with a gap",
            parts().with(|parts| parts.records[3] = facts(2, 4)),
        ),
        (
            "facts that end too early",
            parts().with(|parts| drop(parts.records.remove(3))),
        ),
        (
            "facts of the last process that end too early",
            parts().with(|parts| parts.records[5] = facts(5, 2)),
        ),
        (
            "facts beyond the last",
            parts().with(|parts| parts.records.insert(4, facts(2, 5))),
        ),
        (
            "files with a gap",
            parts().with(|parts| drop(parts.records.remove(6))),
        ),
        (
            "a record out of order",
            parts().with(|parts| parts.records.swap(4, 6)),
        ),
        (
            "a content less",
            parts().with(|parts| drop(parts.contents.remove(1))),
        ),
        (
            "a content more",
            parts().with(|parts| parts.contents.push(Bytes::from_static(b"more"))),
        ),
        (
            "a content twice",
            parts().with(|parts| parts.contents.push(large())),
        ),
    ];
    for (what, file) in cases {
        let error = refused(&file);
        assert!(
            matches!(error, ExportError::Invalid { .. }),
            "{what}: {error}"
        );
    }
}

/// Masks what begins with `secret-` and goes on with digits.
struct Secrets;

impl Redact for Secrets {
    fn masks(&self, _: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(at) = bytes[from..]
            .windows(7)
            .position(|window| window == b"secret-")
        {
            let start = from + at;
            let digits = bytes[start + 7..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            from = start + 7 + digits;
            found.push(start..from);
        }
        found
    }
}

/// Masks these bytes.
struct Ranges(Vec<Range<usize>>);

impl Redact for Ranges {
    fn masks(&self, _: MaskTarget, _: &[u8]) -> Vec<Range<usize>> {
        self.0.clone()
    }
}

#[test]
fn a_mask_keeps_bytes_characters_and_lines() {
    let text = "a\nä€😀z";
    for (range, masked) in [
        (0..text.len(), "*\n·█🔒*"),
        (3..4, "a\n·€😀z"),
        (2..5, "a\n·█😀z"),
        (9..99, "a\nä€🔒*"),
        (0..0, "a\nä€😀z"),
        (40..50, "a\nä€😀z"),
    ] {
        let found = mask_text(&Ranges(vec![range.clone()]), text);
        assert_eq!(found.as_deref().unwrap_or(text), masked, "{range:?}");
    }
}

#[test]
fn a_record_is_masked_wherever_a_text_stands() {
    let mut member = member(2, None);
    member.row.program = "secret-1".into();
    member.image.system = "it is secret-22.".into();
    member.image.table.insert(
        FdId::Ref("secret-3".into()),
        Entry::new(reference(&large()), 1, "tool:secret-4", 1),
    );
    let (mut encoder, _) = ExportEncoder::begin();
    let mask = |text: &str| mask_text(&Secrets, text);
    let bytes = encoder
        .record(&Record::Member(Box::new(member)), Some(&mask))
        .expect("it is small");
    let shown = String::from_utf8_lossy(&bytes);
    assert!(!shown.contains("secret"), "{shown}");
    assert!(
        shown.contains("it is *********.") && shown.contains("tool:********"),
        "{shown}"
    );
}

#[test]
fn the_files_of_a_program_are_masked_and_stay_a_program() {
    let text = Bytes::from(PROGRAM.replace("\"s\"", "\"secret-55\""));
    let compiled =
        compile(Path::new("secret-6.toml"), &mut |_| Ok(text.clone()), &[]).expect("it compiles");
    let masked =
        dormouse_kernel::export::masked_bundle(&Secrets, &compiled.program.bundle().to_bytes())
            .expect("it is a bundle");
    assert!(!String::from_utf8_lossy(&masked).contains("secret"));
    let bundle = Bundle::from_bytes(&masked).expect("it is one still");
    let program = dormouse_kernel::program::compile_bundle(&bundle, &[])
        .expect("it compiles")
        .program;
    assert_eq!(
        program.key(),
        mask_text(&Secrets, compiled.program.key()).expect("it is masked")
    );
    assert!(dormouse_kernel::export::masked_bundle(&Secrets, b"no bundle").is_err());
}

/// A content of 20 MiB is masked as it would be in one piece, wherever its parts end.
#[test]
fn a_long_content_is_masked_across_its_parts() {
    let lines = (0..900_000_u32).map(|number| match number % 3 {
        0 => format!("secret-{number:010}\n"),
        1 => format!("sécret {number:010} "),
        _ => format!("{number:010} €\n"),
    });
    let text: String = lines.collect();
    let whole = {
        let mut masker = Masker::new(&Secrets);
        let mut masked = masker.feed(text.as_bytes());
        masked.extend(masker.finish());
        masked
    };
    assert_eq!(whole.len(), text.len());
    assert!(
        !String::from_utf8(whole.clone())
            .expect("it stays text")
            .contains("secret-0")
    );
    let mut masker = Masker::new(&Secrets);
    let mut masked = Vec::new();
    text.as_bytes()
        .chunks(1 << 20)
        .for_each(|part| masked.extend(masker.feed(part)));
    masked.extend(masker.finish());
    assert!(masked == whole, "parts make a difference");
}

/// The lines and characters by which a content is shown.
fn sizes(bytes: Vec<u8>) -> (u64, u64) {
    let content = Content::new(bytes);
    let reader = content.unlimited_reader();
    let sizes = (reader.total_lines(), reader.total_chars());
    (
        sizes.0.expect("it is in memory"),
        sizes.1.expect("it is in memory"),
    )
}

/// What is no UTF-8, and is told by its control characters, is shown as before.
#[test]
fn a_mask_leaves_binary_data_binary_and_utf_16_what_it_is() {
    let utf16 = "A line with a secret.\nAnd another.".encode_utf16();
    let utf16: Vec<u8> = utf16.flat_map(u16::to_le_bytes).collect();
    for bytes in [vec![153, 32, 0], utf16] {
        for start in 0..bytes.len() {
            for end in start..=bytes.len() {
                let range = start..end;
                let ranges = Ranges(vec![range]);
                let mut masker = Masker::new(&ranges);
                assert!(masker.feed(&bytes).is_empty());
                let masked = masker.finish();
                assert_eq!(masked.len(), bytes.len());
                assert_eq!(sizes(masked), sizes(bytes.clone()), "{start}..{end}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is masked of whatever bytes: their number, and whether they are text, stay.
    #[test]
    fn a_mask_changes_neither_length_nor_kind(
        bytes in prop_oneof![any::<Vec<u8>>(), any::<String>().prop_map(String::into_bytes)],
        ranges in prop::collection::vec((0_usize..300, 0_usize..40), 0..5),
    ) {
        let ranges = Ranges(ranges.into_iter().map(|(start, len)| start..start + len).collect());
        let mut masker = Masker::new(&ranges);
        prop_assert!(masker.feed(&bytes).is_empty());
        let masked = masker.finish();
        prop_assert_eq!(masked.len(), bytes.len());
        prop_assert_eq!(std::str::from_utf8(&masked).is_ok(), std::str::from_utf8(&bytes).is_ok());
        // Bytes with a NUL may be UTF-16, and what is not UTF-8 is shown as its bytes suggest.
        if std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0) {
            prop_assert_eq!(sizes(bytes), sizes(masked));
        }
    }

    /// No bytes make it panic.
    #[test]
    fn arbitrary_bytes_are_refused(tail in any::<Vec<u8>>(), keep in 0_usize..2000) {
        let file = parts().file();
        let mut bytes = file[..keep.min(file.len() - 1)].to_vec();
        bytes.extend(tail);
        prop_assert!(bytes == file || read(&bytes, 64).is_err());
    }
}
