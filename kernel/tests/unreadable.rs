//! Content of which a part is damaged on disk: whoever reads that part is answered with an error,
//! and nothing else fails.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::{BlobReader, BlobStore, Content, ReadQuota, Unreadable};
use dormouse_kernel::syscall::{self, Call, Outcome, handle};
use dormouse_kernel::table::{NewDescriptor, Table};
use dormouse_proto::descriptor::{DescriptorSettings, Preview};
use dormouse_proto::id::FdId;
use dormouse_proto::record::{Annotation, ContentRef, Entry, Section};

const CHUNK: u64 = 64 << 10;
const LINE: &str = "line of fifteen\n";

/// A content on disk of which a chunk, or everything, is damaged.
#[derive(Debug, Clone)]
struct Damaged {
    bytes: Bytes,
    index: Option<Bytes>,
    chunk: Option<u64>,
}

impl BlobStore for Damaged {
    fn open(&self, _: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        Ok(Arc::new(self.clone()))
    }
}

impl BlobReader for Damaged {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        self.index.clone()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        let chunks = bytes.start / CHUNK..bytes.end.div_ceil(CHUNK);
        match self.chunk {
            Some(chunk) if !chunks.contains(&chunk) => {
                Ok(self.bytes.slice(bytes.start as usize..bytes.end as usize))
            }
            _ => Err(Unreadable::new(
                "These bytes are damaged on disk. Others can still be read.",
            )),
        }
    }
}

/// `fd:1`, of which the third chunk is damaged; `fd:2`, of which nothing can be read; `fd:3`, which
/// is in memory.
fn table() -> Table {
    let whole = Content::new(LINE.repeat(20_000));
    whole.unlimited_reader().total_pages(4000).unwrap();
    let (bytes, reference) = (whole.unlimited_reader().bytes().unwrap(), whole.reference());
    let part = Damaged {
        bytes: bytes.clone(),
        index: Some(whole.serialized_index()),
        chunk: Some(2),
    };
    let all = Damaged {
        bytes,
        index: None,
        chunk: None,
    };
    let mut table = Table::new();
    for content in [
        Content::on_disk(reference, Arc::new(part)),
        Content::on_disk(reference, Arc::new(all)),
        whole,
    ] {
        table.insert(table.next_id(), Entry::new(content, 4000, "tool:cat", 0));
    }
    for (id, line) in [(1, 10_000), (2, 10_000)] {
        let section = Section {
            start_line: line,
            end_line: line + 1,
        };
        table.annotate(
            &FdId::Fd(id),
            &Annotation::Marked {
                ref_id: "s".into(),
                section,
            },
        );
    }
    table
}

fn call(name: &str, args: &str) -> Outcome {
    let (table, args, settings) = (
        table(),
        args.replace('\'', "\""),
        DescriptorSettings::default(),
    );
    let outcome = syscall::tool(name)
        .expect("it is a tool")
        .call(&Call::unlimited(&table, &args, &settings, 0));
    outcome.expect("it is a function of the table")
}

/// The answer is an error that names the descriptor and says what is lost.
fn check_lost(name: &str, args: &str, fd: &str) {
    let outcome = call(name, args);
    let answer = outcome
        .answer()
        .unwrap_or_else(|| panic!("{name} {args} must be answered at once"));
    let expected = format!(
        "<fd_error type=\"content_unreadable\" fd=\"{fd}\">\n  <message>These bytes are damaged on \
         disk. Others can still be read.</message>\n</fd_error>"
    );
    assert!(
        answer.is_error && *answer.text == *expected,
        "{name} {args}: {}",
        answer.text
    );
}

/// It does what it does of the same content in memory.
fn check_well(name: &str, args: &str) {
    let seen = |args: &str| match call(name, args) {
        Outcome::Write(pending) => String::from_utf8(pending.write.bytes.to_vec()).unwrap(),
        outcome => {
            let text = &outcome.answer().expect("it asks for nothing outside").text;
            text.replace("fd:3", "fd:1")
        }
    };
    assert_eq!(
        seen(args),
        seen(&args.replace("fd:1", "fd:3")),
        "{name} {args}"
    );
}

#[test]
fn a_read_of_the_damaged_part_is_answered_with_an_error() {
    for (name, args) in [
        ("read_fd", "'page':35"),
        ("read_fd", "'start_line':9000,'end_line':9001"),
        ("read_fd", "'mode':'char','start':140000,'count':5"),
        ("read_fd", "'mode':'page','start':35,'count':2"),
        ("read_fd", "'unit':'paragraph'"),
        ("read_fd", "'unit':'section','index':1"),
        ("read_fd", "'page':35,'extract_to_new_fd':true"),
        ("read_fd", "'page':35,'pretty':true"),
        ("search_fd", "'query':'fifteen'"),
        ("fd_to_file", "'file_path':'out'"),
        ("fd_to_file", "'file_path':'out','page':35"),
        ("summarize_fd", ""),
        (
            "mark_fd_section",
            "'start_line':9000,'end_line':9000,'ref_id':'x'",
        ),
    ] {
        let comma = if args.is_empty() { "" } else { "," };
        check_lost(name, &format!("{{'fd':'fd:1'{comma}{args}}}"), "fd:1");
    }
}

#[test]
fn the_other_parts_are_read_as_ever() {
    for (name, args) in [
        ("read_fd", "'page':1"),
        ("read_fd", "'page':80"),
        ("read_fd", "'start_line':19000,'end_line':19100"),
        ("read_fd", "'mode':'char','start':300000,'count':50"),
        ("read_fd", "'read_all':true"),
        ("read_fd", "'page':999"),
        ("fd_to_file", "'file_path':'out','page':1"),
        (
            "mark_fd_section",
            "'start_line':19000,'end_line':19001,'ref_id':'x'",
        ),
        ("rename_fd", "'name':'x'"),
    ] {
        check_well(name, &format!("{{'fd':'fd:1',{args}}}"));
    }
}

#[test]
fn nothing_of_a_lost_content_is_served_and_the_table_works_on() {
    for (name, args) in [
        ("read_fd", "{'fd':'fd:2'}"),
        (
            "read_fd",
            "{'fd':'fd:2','read_all':true,'extract_to_new_fd':true}",
        ),
        ("search_fd", "{'fd':'fd:2','query':'x'}"),
        ("fd_to_file", "{'fd':'fd:2','file_path':'out'}"),
        ("summarize_fd", "{'fd':'fd:2'}"),
        (
            "mark_fd_section",
            "{'fd':'fd:2','start_line':1,'end_line':1,'ref_id':'x'}",
        ),
        ("get_fd_section", "{'fd':'fd:2','ref_id':'s'}"),
        (
            "get_fd_section",
            "{'fd':'fd:2','ref_id':'s','extract_to_new_fd':true}",
        ),
        ("list_fd_sections", "{'fd':'fd:2'}"),
    ] {
        check_lost(name, args, "fd:2");
    }
    assert!(matches!(
        call("rename_fd", "{'fd':'fd:2','name':'gone'}"),
        Outcome::Annotated { .. }
    ));
    assert!(matches!(
        call("delete_fd_section", "{'fd':'fd:2','ref_id':'s'}"),
        Outcome::Annotated { .. }
    ));
    assert!(
        matches!(
            call("create_temp_file", "{'fd':'fd:2'}"),
            Outcome::TempFile(_)
        ),
        "it is handed on unread"
    );
}

#[test]
fn a_list_names_what_is_lost_and_lists_the_others() {
    let outcome = call("list_fds", "{}");
    let text = &outcome.answer().unwrap().text;
    assert_eq!(
        text.matches("error=\"content_unreadable\" message=\"These bytes are damaged")
            .count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("total_lines=\"20000\"").count(), 2, "{text}");
    let outcome = call("list_fd_sections", "{'fd':'fd:1'}");
    let text = &outcome.answer().unwrap().text;
    assert!(
        text.contains("<section ref_id=\"s\" lines=\"10000-10001\">"),
        "{text}"
    );
}

#[test]
fn a_search_of_all_names_what_it_could_not_search() {
    let outcome = call("search_fd", "{'fd':'*','query':'fifteen','max_matches':1}");
    let text = &outcome.answer().unwrap().text;
    assert!(
        text.contains("matches=\"20000\"") && text.contains("descriptors=\"3\" found_in=\"1\""),
        "{text}"
    );
    for fd in ["fd:1", "fd:2"] {
        assert!(
            text.contains(&format!(
                "<fd_error type=\"content_unreadable\" fd=\"{fd}\">"
            )),
            "{text}"
        );
    }
}

#[test]
fn what_is_handed_on_or_shown_anew_says_that_it_is_lost() {
    let (table, settings) = (table(), DescriptorSettings::default());
    let error = handle::expand(&Call::unlimited(
        &table,
        r#"{"x": "{{fd:1 page 35}}"}"#,
        &settings,
        0,
    ))
    .unwrap_err();
    assert_eq!(
        (error.kind.word(), error.fd.as_deref()),
        ("content_unreadable", Some("fd:1"))
    );
    let expanded = handle::expand(&Call::unlimited(
        &table,
        r#"{"x": "{{fd:1 lines 1-1}}"}"#,
        &settings,
        0,
    ));
    assert_eq!(
        expanded,
        Ok(Some(r#"{"x": "line of fifteen\n"}"#.to_owned()))
    );
    for preview in [Preview::Head, Preview::HeadTail] {
        let settings = DescriptorSettings {
            preview,
            pretty_json: true,
            ..settings
        };
        let entry = table.get(&FdId::Fd(2)).unwrap().clone();
        let new =
            NewDescriptor::previewed(entry, "Handed over.", &settings, ReadQuota::unlimited());
        let answer = new.answer(&FdId::Fd(2));
        assert!(
            answer.is_error && answer.text.contains("content_unreadable"),
            "{}",
            answer.text
        );
    }
}
