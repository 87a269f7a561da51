//! Property test: random edits and forks of a table, compared with a plain map.

use std::collections::BTreeMap;

use dormouse_proto::id::FdId;
use dormouse_proto::model::Usage;
use dormouse_proto::record::{Annotation, Entry, Section};
use proptest::prelude::*;

use super::Table;
use dormouse_content::Content;

fn entry(text: &str) -> Entry<Content> {
    Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0)
}

#[derive(Clone, Debug)]
enum Edit {
    /// Inserts a text under the next free number.
    Open(String),
    /// Inserts a text under this number.
    Put(u32, String),
    /// Adds a note to the descriptor with this number.
    Note(u32, Annotation),
    /// Keeps a clone of the table.
    Fork,
}

fn notes() -> impl Strategy<Value = Annotation> {
    let name = prop::option::of("[ab]").prop_map(|name| Annotation::Named {
        name: name.map(Into::into),
    });
    let marked = ("[xyz]", 1_u64..4).prop_map(|(ref_id, line)| Annotation::Marked {
        ref_id: ref_id.into(),
        section: Section {
            start_line: line,
            end_line: line,
        },
    });
    let summary = "[a-z]{1,3}".prop_map(|summary| Annotation::Summarized {
        summary: summary.into(),
        usage: Usage::default(),
    });
    prop_oneof![
        name,
        marked,
        "[xyz]".prop_map(|ref_id| Annotation::Unmarked {
            ref_id: ref_id.into()
        }),
        summary
    ]
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        3 => "[a-z]{0,3}".prop_map(Edit::Open),
        1 => (1_u32..30, "[a-z]{0,3}").prop_map(|(number, text)| Edit::Put(number, text)),
        4 => (1_u32..12, notes()).prop_map(|(number, note)| Edit::Note(number, note)),
        1 => Just(Edit::Fork),
    ];
    prop::collection::vec(edit, 0..60)
}

/// The expected text and notes of a descriptor.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    text: String,
    name: Option<String>,
    sections: BTreeMap<String, u64>,
    summary: Option<String>,
}

impl Expected {
    fn apply_note(&mut self, note: &Annotation) {
        match note {
            Annotation::Named { name } => self.name = name.as_deref().map(str::to_owned),
            Annotation::Marked { ref_id, section } => {
                self.sections.insert(ref_id.to_string(), section.start_line);
            }
            Annotation::Unmarked { ref_id } => {
                self.sections.remove(&**ref_id);
            }
            Annotation::Summarized { summary, .. } => self.summary = Some(summary.to_string()),
        }
    }

    fn of(entry: &Entry<Content>) -> Self {
        let notes = &entry.notes;
        let sections = notes
            .sections
            .iter()
            .map(|(ref_id, section)| (ref_id.to_string(), section.start_line));
        Self {
            text: entry.content.unlimited_reader().text().unwrap().to_string(),
            name: notes.name.as_deref().map(str::to_owned),
            sections: sections.collect(),
            summary: notes.summary.as_deref().map(str::to_owned),
        }
    }
}

type Model = BTreeMap<u32, Expected>;

fn assert_equal(table: &Table, model: &Model, next: u32) {
    let entries = table
        .iter()
        .map(|(id, entry)| (id.clone(), Expected::of(entry)));
    assert!(
        entries.eq(model
            .iter()
            .map(|(number, expected)| (FdId::Fd(*number), expected.clone())))
    );
    assert_eq!(table.next_fd(), next);
    for name in ["a", "b"] {
        let holder = model
            .iter()
            .find(|(_, expected)| expected.name.as_deref() == Some(name))
            .map(|(n, _)| FdId::Fd(*n));
        assert_eq!(table.named(name).map(|(id, _)| id), holder.as_ref());
        assert_eq!(table.resolve(name).ok().map(|(id, _)| id), holder);
    }
    assert_eq!(
        Table::from_parts(table.entries(), next, table.last_history()).as_ref(),
        Ok(table)
    );
}

fn apply_edit((table, model, next): &mut (Table, Model, u32), edit: Edit) {
    let (number, text) = match edit {
        Edit::Open(text) => (table.next_fd(), text),
        Edit::Put(number, text) => (number, text),
        Edit::Note(number, note) => {
            table.annotate(&FdId::Fd(number), &note);
            model
                .entry(number)
                .and_modify(|expected| expected.apply_note(&note));
            return;
        }
        Edit::Fork => return,
    };
    table.insert(FdId::Fd(number), entry(&text));
    model.insert(
        number,
        Expected {
            text,
            ..Expected::default()
        },
    );
    *next = (*next).max(number + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_behaves_like_a_map_and_a_fork_sees_no_later_change(edits in edits()) {
        let mut live = (Table::new(), Model::new(), 1);
        let mut forked = Vec::new();
        for edit in edits {
            if let Edit::Fork = edit {
                forked.push(live.clone());
            }
            apply_edit(&mut live, edit);
        }
        forked.push(live);
        for (table, model, next) in forked {
            assert_equal(&table, &model, next);
        }
    }
}
