//! The temporary files of each tree of the simulated kernel, as `actors/src/temp_files/` holds
//! them: what waits is decided in its order, made durable together, and only then answered.

use std::collections::BTreeMap;

use bytes::BytesMut;
use dormouse_content::Content;
use dormouse_kernel::process::Completion;
use dormouse_kernel::temp_files::{FileParts, TempFileDecision, TempFiles, decide, evolve};
use dormouse_proto::id::Pid;
use dormouse_proto::record::{ContentRef, codec};
use dormouse_proto::temp_file::{
    TempFileChange, TempFileError, TempFileOp, TempFileOrigin, TempFileRecord, TempFileReply,
    TempId,
};

use crate::defect::Defect;
use crate::event::{Ack, Event, FilesMessage, Reply, Request, Requester};
use crate::invariants::{Held, Violation};
use crate::schedule::FILES;
use crate::store::{Entry, encode_record};
use crate::world::World;

#[derive(Default)]
pub(crate) struct Tree {
    /// As they are durable; none until they were read.
    files: Option<TempFiles<Content>>,
    waiting: Vec<Request>,
    batch: Option<Batch>,
    is_over: bool,
}

struct Batch {
    files: TempFiles<Content>,
    answers: Vec<Answered>,
}

struct Answered {
    pid: Pid,
    call: dormouse_proto::id::CallId,
    reply: Reply,
    result: Result<TempFileReply<FileParts<Content>>, TempFileError>,
}

impl World {
    pub(crate) fn files(&mut self, message: FilesMessage) -> Held {
        match message {
            FilesMessage::Request(request) => {
                let root = request.root;
                if !self.forest.contains_key(&root) {
                    let delay = self.delay();
                    self.schedule.send(
                        FILES,
                        FILES,
                        delay,
                        Event::Files(FilesMessage::Loaded { root }),
                    );
                }
                self.forest.entry(root).or_default().waiting.push(request);
                self.go_on(root)
            }
            FilesMessage::Loaded { root } => {
                let files = self.read_files(root)?;
                if let Some(tree) = self.forest.get_mut(&root) {
                    tree.files = Some(files);
                }
                self.go_on(root)
            }
            FilesMessage::Committed { root } => self.files_committed(root),
            FilesMessage::TreeEnded { root } => {
                if let Some(tree) = self.forest.get_mut(&root) {
                    tree.is_over = true;
                }
                self.fell(root);
                Ok(())
            }
        }
    }

    fn read_files(&self, root: Pid) -> Result<TempFiles<Content>, Violation> {
        let mut files = TempFiles::default();
        for record in self.store.disk.temp_files.get(&root).into_iter().flatten() {
            let record: TempFileRecord<ContentRef> =
                codec::decode(record).expect("it was encoded by us");
            evolve(
                &mut files,
                &record.try_map(&mut |reference| self.store.disk.content(reference))?,
            );
        }
        Ok(files)
    }

    /// Decides what waits, and sends the changes on their way; where nothing changes it is answered
    /// at once.
    fn go_on(&mut self, root: Pid) -> Held {
        let Some(tree) = self.forest.get_mut(&root) else {
            return Ok(());
        };
        if tree.batch.is_some() || tree.waiting.is_empty() {
            return Ok(());
        }
        let Some(mut files) = tree.files.clone() else {
            return Ok(());
        };
        let waiting = std::mem::take(&mut tree.waiting);
        let mut plain = self.plain_files.get(&root).cloned().unwrap_or_default();
        let (mut records, mut answers) = (Vec::new(), Vec::new());
        for Request {
            pid,
            call,
            op,
            max_bytes,
            reply,
            ..
        } in waiting
        {
            let origin = TempFileOrigin { pid, call };
            let decided = decide(
                &files,
                origin,
                self.tampered_op(&files, op.clone()),
                max_bytes,
            );
            let mut made: Vec<_> = decided
                .as_ref()
                .ok()
                .and_then(|decided| decided.record.clone())
                .into_iter()
                .collect();
            self.tamper_records(&mut made);
            for record in &made {
                evolve(&mut files, record);
            }
            let result = decided.map(|TempFileDecision { reply, .. }| reply);
            self.tally.count(if made.is_empty() {
                "temporary files looked at"
            } else {
                "temporary files changed"
            });
            plain.check(origin, &op, &made, &result)?;
            made.iter().for_each(|record| plain.apply(record));
            records.extend(made);
            answers.push(Answered {
                pid,
                call,
                reply,
                result,
            });
        }
        let mut entries = Vec::new();
        for record in &records {
            let encoded = encode_record(record, &mut entries);
            entries.push(Entry::TempFile {
                root,
                record: encoded,
            });
        }
        if let Some(tree) = self.forest.get_mut(&root) {
            tree.batch = Some(Batch { files, answers });
        }
        if entries.is_empty() {
            return self.files_committed(root);
        }
        self.append(entries, Ack::Files { root });
        Ok(())
    }

    fn files_committed(&mut self, root: Pid) -> Held {
        let Some(tree) = self.forest.get_mut(&root) else {
            return Ok(());
        };
        let Some(Batch { files, answers }) = tree.batch.take() else {
            return Ok(());
        };
        tree.files = Some(files);
        answers
            .into_iter()
            .for_each(|answered| self.answer(answered));
        self.go_on(root)?;
        self.fell(root);
        Ok(())
    }

    fn answer(
        &mut self,
        Answered {
            pid,
            call,
            reply: Reply { life, task, to },
            result,
        }: Answered,
    ) {
        let result = result.map(|reply| match reply {
            TempFileReply::Changed {
                id,
                version,
                total_bytes,
            } => TempFileReply::Changed {
                id,
                version,
                total_bytes,
            },
            TempFileReply::Contents {
                id,
                version,
                content,
            } => TempFileReply::Contents {
                id,
                version,
                content: joined(&content),
            },
        });
        match to {
            Requester::Tool(pending) => {
                let delay = self.random.below(20);
                self.finish(
                    pid,
                    life,
                    call,
                    task,
                    delay,
                    Completion::TempFile {
                        pending: *pending,
                        result,
                    },
                );
            }
            Requester::Fetch { index } => {
                if let Some(gathering) = self.gatherings.get_mut(&task) {
                    gathering.temp_files[index] = Some(result);
                }
                self.gathered(pid, life, call, task);
            }
        }
    }

    fn fell(&mut self, root: Pid) {
        let is_done = |tree: &Tree| tree.is_over && tree.batch.is_none() && tree.waiting.is_empty();
        if self.forest.get(&root).is_some_and(is_done) {
            self.forest.remove(&root);
        }
    }

    fn tampered_op(
        &self,
        files: &TempFiles<Content>,
        op: TempFileOp<Content>,
    ) -> TempFileOp<Content> {
        let TempFileOp::Write {
            id,
            content,
            version,
        } = op
        else {
            return op;
        };
        let origin = TempFileOrigin {
            pid: Pid(0),
            call: dormouse_proto::id::CallId { epoch: 0, seq: 0 },
        };
        let newest = match decide(files, origin, TempFileOp::Read { id }, u64::MAX) {
            Ok(TempFileDecision {
                reply: TempFileReply::Contents { version, .. },
                ..
            }) => version,
            _ => version,
        };
        let version = if self.defect == Some(Defect::WritesFromAnOldVersion) {
            newest
        } else {
            version
        };
        TempFileOp::Write {
            id,
            content,
            version,
        }
    }

    fn tamper_records(&self, records: &mut Vec<TempFileRecord<Content>>) {
        let Some(record) = records.first_mut() else {
            return;
        };
        match self.defect {
            Some(Defect::DoesAnOperationTwice) => {
                let again = TempFileRecord {
                    number: record.number + 1,
                    ..record.clone()
                };
                records.push(again);
            }
            Some(Defect::UsesAFileNumberAgain) if record.id.0 > 1 => {
                if let TempFileChange::Created(_) = record.change {
                    record.id = TempId(record.id.0 - 1);
                }
            }
            _ => {}
        }
    }
}

pub(crate) fn joined(pieces: &FileParts<Content>) -> Content {
    let mut whole = BytesMut::new();
    pieces.iter().for_each(|piece| {
        whole.extend_from_slice(&piece.unlimited_reader().bytes().expect("it is in memory"))
    });
    Content::new(whole.freeze())
}

/// The files of every tree that is in memory.
pub(crate) type Forest = BTreeMap<Pid, Tree>;
