//! Notes on a descriptor: name, sections and summary. Notes never change the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// All notes on one descriptor. Usually empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// Assigned name, in addition to the id.
    pub name: Option<Arc<str>>,
    /// Marked sections, by the id that the process chose.
    pub sections: BTreeMap<Arc<str>, Section>,
    /// Summary, written by a model.
    pub summary: Option<Arc<str>>,
}

/// A marked range of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// First line, from 1.
    pub start_line: u64,
    /// Last line, inclusive.
    pub end_line: u64,
}

/// A change of the notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Annotation {
    /// The name was set, or removed if `None`.
    Named {
        /// New name.
        name: Option<Arc<str>>,
    },
    /// A section was marked, replacing one with the same id.
    Marked {
        /// Id of the section.
        ref_id: Arc<str>,
        /// Lines of the section.
        section: Section,
    },
    /// A section was removed.
    Unmarked {
        /// Id of the section.
        ref_id: Arc<str>,
    },
    /// A model summarized the content.
    Summarized {
        /// Text of the summary.
        summary: Arc<str>,
        /// Usage of the model call.
        usage: Usage,
    },
}

impl Annotations {
    /// Applies a change. Total: removing an unknown section has no effect.
    pub fn apply(&mut self, note: &Annotation) {
        match note {
            Annotation::Named { name } => self.name.clone_from(name),
            Annotation::Marked { ref_id, section } => {
                self.sections.insert(ref_id.clone(), *section);
            }
            Annotation::Unmarked { ref_id } => {
                self.sections.remove(ref_id);
            }
            Annotation::Summarized { summary, .. } => self.summary = Some(summary.clone()),
        }
    }
}
