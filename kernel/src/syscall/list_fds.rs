//! `list_fds`: lists the descriptors of a process with their notes.

use std::borrow::Cow;

use dormouse_proto::descriptor::{FdError, view};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::window::Window;
use super::{Call, Group, Handler, Outcome, Parameter, Tool};
use crate::table::{Table, listing};
use dormouse_content::Content;

/// `list_fds` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_fds",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("list_fds() - every descriptor, with its name and size"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(list_fds),
};

/// Default maximum of descriptors in one answer.
const MAX_LISTED: u64 = 50;

/// Estimated characters of an item, without name, source and summary.
const ELEMENT_CHARS: u64 = 200;

const DESCRIPTION: &str = "Lists the file descriptors of this process: where each comes from, its \
size, and its name, number of sections and summary where it has them.";

const PARAMETERS: [Parameter; 3] = [
    Parameter::integer(
        "start",
        "The position of the first descriptor to list; 1 if left out",
    )
    .at_least(1),
    Parameter::integer("max", "The most descriptors to list; 50 if left out").at_least(1),
    Parameter::flag("messages", "List the messages that are descriptors as well"),
];

type Item<'a> = (FdId, Cow<'a, Entry<Content>>);

/// Executes a call. `max_read_chars` of the settings limits what is shown. O(descriptors); a
/// descriptor that is listed for the first time costs its page table, O(n) in its content, and
/// messages cost a pass over the conversation.
#[must_use]
pub fn list_fds(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let window = Window::parse(&args, MAX_LISTED, call.settings.max_read_chars)?;
    let items = list_items(call.table, args.flag("messages") == Some(true));
    let (shown, items) = window.select(&args, items, estimated_chars)?;
    let max_chars = usize::try_from(call.settings.max_read_chars).unwrap_or(usize::MAX);
    let summaries: Vec<_> = items
        .iter()
        .map(|(_, entry)| {
            entry
                .notes
                .summary
                .as_deref()
                .map(|text| truncate(text, max_chars))
        })
        .collect();
    let listed = items.iter().zip(&summaries).map(|((id, entry), summary)| {
        let extent = listing::extent(entry, call.settings, call.quota);
        listing::list_entry(id, entry, summary.as_deref(), extent)
    });
    Ok(Outcome::Answer(view::list(
        shown,
        &listed.collect::<Vec<_>>(),
    )))
}

/// The descriptors in the order of their ids. Messages with notes are always included.
fn list_items(table: &Table, with_messages: bool) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = table
        .iter()
        .map(|(id, entry)| (id.clone(), Cow::Borrowed(entry)))
        .collect();
    if with_messages {
        let others = table.messages().filter(|(id, _)| table.get(id).is_none());
        items.extend(others.map(|(id, entry)| (id, Cow::Owned(entry))));
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    items
}

fn estimated_chars((_, entry): &Item<'_>) -> u64 {
    let texts = [
        entry.notes.name.as_deref(),
        Some(&entry.source),
        entry.notes.summary.as_deref(),
    ];
    ELEMENT_CHARS
        + texts
            .into_iter()
            .flatten()
            .map(|text| text.chars().count() as u64)
            .sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_proto::descriptor::DescriptorSettings;
    use dormouse_proto::message::{Block, Message, Role};
    use dormouse_proto::model::Usage;
    use dormouse_proto::record::{Annotation, Section};
    use roxmltree::Document;

    use super::*;

    const SUMMARY: &str = "An <xml> file.</descriptor><section>";

    /// A table with `fd:1` (has notes), `fd:2` (binary and truncated) and a `ref:`.
    fn table() -> Table {
        let mut table = Table::new();
        table.insert(
            FdId::Fd(1),
            Entry::new(Content::new("one\ntwo\n"), 4, "tool:cat", 1_709_164_805_999),
        );
        let binary = Entry {
            cut_bytes: 9,
            ..Entry::new(Content::new(vec![0_u8, 0xff]), 4, "tool:cat", 0)
        };
        table.insert(FdId::Fd(2), binary);
        table.insert(
            FdId::Ref("plan".into()),
            Entry::new(Content::new(""), 4, "reply", 0),
        );
        let section = Section {
            start_line: 1,
            end_line: 1,
        };
        for note in [
            Annotation::Named {
                name: Some("error logs".into()),
            },
            Annotation::Marked {
                ref_id: "top".into(),
                section,
            },
            Annotation::Summarized {
                summary: SUMMARY.into(),
                usage: Usage::default(),
            },
        ] {
            table.annotate(&FdId::Fd(1), &note);
        }
        table
    }

    fn with_messages() -> Table {
        let mut table = table();
        let messages = ["first", "second"].map(|text| {
            Arc::new(Message {
                role: Role::User,
                blocks: vec![Block::text(text)],
            })
        });
        table.set_conversation(messages.into_iter().collect(), Default::default(), 4);
        table
    }

    fn call(table: &Table, args: &str, max_read_chars: u64) -> String {
        let settings = DescriptorSettings {
            max_read_chars,
            ..DescriptorSettings::default()
        };
        let outcome = list_fds(&Call::unlimited(
            table,
            &args.replace('\'', "\""),
            &settings,
            0,
        ));
        outcome
            .answer()
            .expect("a list only answers")
            .text
            .to_string()
    }

    /// Returns `total`, `shown` and `next_start`, and the ids.
    fn seen(xml: &str) -> (String, Vec<String>) {
        let document = Document::parse(xml).unwrap();
        let root = document.root_element();
        let totals = ["total", "shown", "next_start"]
            .map(|name| root.attribute(name).unwrap_or("-"))
            .join(" ");
        let ids = root.children().filter(|node| node.is_element());
        (
            totals,
            ids.map(|node| node.attribute("fd").unwrap_or_default().to_owned())
                .collect(),
        )
    }

    #[test]
    fn each_descriptor_is_listed_with_its_size_and_notes() {
        let xml = call(&table(), "{}", 100_000);
        assert!(
            !xml.contains("<section"),
            "content never looks like the kernel speaking: {xml}"
        );
        let document = Document::parse(&xml).unwrap();
        let of = |index: usize| {
            let node = document
                .root_element()
                .children()
                .filter(|node| node.is_element())
                .nth(index)
                .unwrap();
            let attributes = node
                .attributes()
                .map(|a| format!("{}={}", a.name(), a.value()));
            (
                attributes.collect::<Vec<_>>().join(" "),
                node.children()
                    .filter_map(|node| node.text())
                    .collect::<String>(),
            )
        };
        let noted = "fd=fd:1 name=error logs source=tool:cat pages=2 total_lines=2 total_chars=8 \
             page_size=4 opened=2024-02-29T00:00:05Z sections=1";
        assert_eq!(of(0), (noted.to_owned(), SUMMARY.to_owned()));
        let cut = "fd=fd:2 source=tool:cat pages=1 total_lines=1 total_chars=4 encoding=base64 \
             page_size=4 cut_bytes=9";
        assert_eq!(of(1), (cut.to_owned(), String::new()));
        let plain = "fd=ref:plan source=reply pages=1 total_lines=1 total_chars=0 page_size=4";
        assert_eq!(of(2), (plain.to_owned(), String::new()));
    }

    #[test]
    fn a_list_is_shown_in_parts_and_includes_messages_on_request() {
        let mut noted = with_messages();
        noted.annotate(
            &FdId::Message {
                number: 2,
                part: None,
            },
            &Annotation::Named {
                name: Some("task".into()),
            },
        );
        let cases: [(&Table, &str, &str, &[&str]); 9] = [
            (&Table::new(), "{}", "0 0 -", &[]),
            (&table(), "{}", "3 1-3 -", &["fd:1", "fd:2", "ref:plan"]),
            (
                &table(),
                "{'messages':true}",
                "3 1-3 -",
                &["fd:1", "fd:2", "ref:plan"],
            ),
            (&table(), "{'max':2}", "3 1-2 3", &["fd:1", "fd:2"]),
            (&table(), "{'start':3,'max':'2'}", "3 3-3 -", &["ref:plan"]),
            (
                &with_messages(),
                "{}",
                "3 1-3 -",
                &["fd:1", "fd:2", "ref:plan"],
            ),
            (
                &with_messages(),
                "{'messages':true,'start':3}",
                "5 3-5 -",
                &["ref:plan", "msg:1", "msg:2"],
            ),
            (&noted, "{'start':3}", "4 3-4 -", &["ref:plan", "msg:2"]),
            (
                &noted,
                "{'messages':true,'start':3}",
                "5 3-5 -",
                &["ref:plan", "msg:1", "msg:2"],
            ),
        ];
        for (table, args, totals, ids) in cases {
            let expected = (
                totals.to_owned(),
                ids.iter().map(ToString::to_string).collect(),
            );
            assert_eq!(seen(&call(table, args, 100_000)), expected, "{args}");
        }
        for (args, kind) in [
            ("{'start':4}", "invalid_range"),
            ("{'max':0}", "invalid_range"),
            ("{'fd':'fd:1'}", "invalid_parameter"),
        ] {
            assert!(
                call(&table(), args, 100_000).contains(&format!("type=\"{kind}\"")),
                "{args}"
            );
        }
    }

    #[test]
    fn an_answer_is_bounded_and_paging_reaches_the_end() {
        let mut table = table();
        for _ in 0..200 {
            table.insert(
                table.next_id(),
                Entry::new(Content::new("text"), 4, "tool:cat", 0),
            );
        }
        for max_read_chars in [0, 5, 2_000] {
            let (mut start, mut ids) = (1, Vec::new());
            loop {
                let xml = call(
                    &table,
                    &format!("{{'start':{start},'max':999}}"),
                    max_read_chars,
                );
                assert!(xml.len() < 2_000 + 500, "{}", xml.len());
                ids.extend(seen(&xml).1);
                match Document::parse(&xml)
                    .unwrap()
                    .root_element()
                    .attribute("next_start")
                {
                    Some(next) => start = next.parse().unwrap(),
                    None => break,
                }
            }
            assert!(
                ids.iter().map(String::as_str).eq(table
                    .iter()
                    .map(|(id, _)| id.to_string())
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str))
            );
        }
        assert!(
            call(&table, "{'max':1}", 5).contains("An <x…"),
            "a summary is cut to what may be shown"
        );
    }
}
