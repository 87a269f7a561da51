//! Turns the processes of an export into new processes of another store, in the same way as a
//! branch (a copy of a process tree with new pids). `manifest.rs` has checked the export before;
//! `actors/src/import.rs` creates the processes.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::Member;
use dormouse_proto::mail::is_process_name;
use dormouse_proto::process::{BranchOrigin, ImportSource, Origin, ProcessRow};

use super::Manifest;
use crate::process::{Image, StartMode, image_of_branch, image_of_copy, with_start_mode};

/// A process of an export that is about to be created in another store.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    manifest: &'a Manifest,
    member: &'a Member,
    is_first: bool,
    name: Option<&'a Arc<str>>,
}

impl Manifest {
    /// The processes to create, in file order.
    pub fn births(&self) -> impl Iterator<Item = Birth<'_>> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        self.members.iter().enumerate().map(move |(at, member)| {
            let name = member
                .row
                .name
                .as_ref()
                .filter(|name| is_process_name(name) && names.insert(name));
            Birth {
                manifest: self,
                member,
                is_first: at == 0,
                name,
            }
        })
    }
}

impl<'a> Birth<'a> {
    /// The process in the export.
    #[must_use]
    pub fn member(&self) -> &'a Member {
        self.member
    }

    /// The row for the process table. Pid and parent are still those of the source store. An
    /// invalid or duplicate name is dropped.
    #[must_use]
    pub fn row(&self) -> ProcessRow {
        let row = &self.member.row;
        let (parent, origin) = match self.is_first {
            // The parent and the original of the first process are not part of the export.
            true => (None, Origin::Started),
            false => (row.parent, row.origin.clone()),
        };
        let name = self.name.cloned();
        ProcessRow {
            parent,
            origin,
            name,
            branched_from: Some(self.restored()),
            exit: None,
            // Labels are those of the users and tenants of the source store.
            labels: Arc::default(),
            ..row.clone()
        }
    }

    /// Origin of the process in the source store. The process keeps its pid of that store as a
    /// local id, which is valid only within the tree.
    #[must_use]
    pub fn restored(&self) -> BranchOrigin {
        let import = ImportSource {
            export: Some(self.manifest.id),
            last_pid: self.manifest.head.last_pid,
        };
        let Member { row, at, .. } = self.member;
        BranchOrigin {
            pid: row.pid,
            fact: *at,
            local_id: row.local_id(),
            import: Some(import),
        }
    }

    /// The initial image at `now_ms`: as a member of a branch if the export covers a tree, as a
    /// copy if it covers one process.
    #[must_use]
    pub fn image(&self, image: Image, now_ms: u64, start_mode: StartMode) -> Image {
        match self.manifest.head.scope {
            Scope::Tree => image_of_branch(image, now_ms, start_mode),
            Scope::Process => with_start_mode(image_of_copy(image, now_ms), start_mode),
        }
    }
}
