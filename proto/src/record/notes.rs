//! What a process notes of a descriptor: a name, sections, a summary. Notes never change the
//! content.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// Everything noted of one descriptor. Empty for most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// The name that it goes by beside its id.
    pub name: Option<Arc<str>>,
    /// Marked lines, by the id that the process gave them.
    pub sections: BTreeMap<Arc<str>, Section>,
    /// What it is about, in a model's words.
    pub summary: Option<Arc<str>>,
}

/// A marked range of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// The first line, from 1.
    pub start_line: u64,
    /// The last line, not before the first.
    pub end_line: u64,
}

/// One change of the notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// The descriptor has this name; none: it has none any more.
    Named {
        /// The name.
        name: Option<Arc<str>>,
    },
    /// Lines are marked, in place of those of the same id.
    Marked {
        /// The section's id.
        ref_id: Arc<str>,
        /// The lines.
        section: Section,
    },
    /// A mark is gone.
    Unmarked {
        /// The section's id.
        ref_id: Arc<str>,
    },
    /// A model summarized the content.
    Summarized {
        /// Its words.
        summary: Arc<str>,
        /// What that cost.
        usage: Usage,
    },
}

impl Notes {
    /// Applies a change. Total: a mark that is not there is not there afterwards either.
    pub fn apply(&mut self, note: &Note) {
        match note {
            Note::Named { name } => self.name.clone_from(name),
            Note::Marked { ref_id, section } => {
                self.sections.insert(ref_id.clone(), *section);
            }
            Note::Unmarked { ref_id } => {
                self.sections.remove(ref_id);
            }
            Note::Summarized { summary, .. } => self.summary = Some(summary.clone()),
        }
    }
}
