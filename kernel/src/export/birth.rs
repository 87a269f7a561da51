//! What becomes of the processes of an export in another store: new processes, as those of a branch
//! are.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::Member;
use dormouse_proto::mail::is_process_name;
use dormouse_proto::process::{Foreign, Origin, ProcessRow, Restored};

use super::Manifest;
use crate::process::{Beginning, Image, begins, branched, copied};

/// A process of an export that is about to be one of another store.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    of: &'a Manifest,
    member: &'a Member,
    is_first: bool,
    name: Option<&'a Arc<str>>,
}

impl Manifest {
    /// Its processes, in their order.
    pub fn births(&self) -> impl Iterator<Item = Birth<'_>> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        self.members.iter().enumerate().map(move |(at, member)| {
            let name = member
                .row
                .name
                .as_ref()
                .filter(|name| is_process_name(name) && names.insert(name));
            Birth {
                of: self,
                member,
                is_first: at == 0,
                name,
            }
        })
    }
}

impl<'a> Birth<'a> {
    /// The process as the export has it.
    #[must_use]
    pub fn member(&self) -> &'a Member {
        self.member
    }

    /// Its line in the process table: pid and parent are still those of the store that it comes
    /// from. A name that none can have, or that one before it has, is none.
    #[must_use]
    pub fn row(&self) -> ProcessRow {
        let row = &self.member.row;
        let (parent, origin) = match self.is_first {
            // What it was made by is not here, nor is what it was copied from.
            true => (None, Origin::Started),
            false => (row.parent, row.origin.clone()),
        };
        let name = self.name.cloned();
        ProcessRow {
            parent,
            origin,
            name,
            restored: Some(self.restored()),
            exit: None,
            ..row.clone()
        }
    }

    /// What it goes on from: the numbers of its store are kept, and mean nobody here but its own
    /// tree.
    #[must_use]
    pub fn restored(&self) -> Restored {
        let foreign = Foreign {
            export: Some(self.of.id),
            last: self.of.head.last,
        };
        let Member { row, at, .. } = self.member;
        Restored {
            from: row.pid,
            at: *at,
            known_as: row.known_as(),
            foreign: Some(foreign),
        }
    }

    /// The image that it starts from at `now_ms`, of what the export has of it: as a member of a
    /// branch where it came as a tree, as a copy where it came alone.
    #[must_use]
    pub fn image(&self, image: Image, now_ms: u64, beginning: Beginning) -> Image {
        match self.of.head.scope {
            Scope::Tree => branched(image, self.of.head.at_ms, now_ms, beginning),
            Scope::Process => begins(copied(image, now_ms), beginning),
        }
    }
}
