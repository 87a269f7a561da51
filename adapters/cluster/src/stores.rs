//! Trees that move: to another shard, into a cluster from another store, and out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse::export::read_export;
use dormouse::id::Pid;
use dormouse::label::Label;
use dormouse::program::Bundle;
use dormouse::{Kernel, KernelError};
use dormouse_postgres::ShardId;

use crate::call::{Blob, Call, Reply};
use crate::cluster::Cluster;
use crate::copies::{ImportCall, MAX_EXPORT_BYTES, export_tree, is_tree, labels_to_keep, roots};
use crate::database::on_database;
use crate::error::ClusterError;
use crate::move_tables::{MoveState, TreeMove};
use crate::process::{ClusterProcess, unexpected};
use crate::random;
use crate::shard::shard_of;
use crate::start::{ProgramFiles, choose_shard};

/// The key of the label that names the process of a cluster that a tree of a store was exported
/// from.
const EXPORTED_LABEL: &str = "dormouse.exported";

/// How often it is looked how far a move is.
const EVERY: Duration = Duration::from_millis(100);

/// How long a move is waited for.
const MOVE_LIMIT: Duration = Duration::from_secs(300);

/// How often a tree is sent again that may have arrived.
const MAX_ATTEMPTS: u32 = 5;

/// Why a tree did not move.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The kernel of the other store cannot be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There is no such shard.
    #[error("there is no {0}: `Cluster::move_tree` needs a shard that the database has")]
    NoShard(ShardId),
    /// The shard is for nodes without labels that the trees of the present one need.
    #[error(
        "a tree of {from} cannot move to {to}: nodes with the labels [{}] have the first, and those of the \
         other may lack some of them. Choose a shard with the same needs",
        needs.join(", ")
    )]
    Needs {
        /// The shard of the tree.
        from: ShardId,
        /// The other shard.
        to: ShardId,
        /// The needs of the first.
        needs: Vec<String>,
    },
    /// The tree is on its way to another shard.
    #[error("the tree is on its way to {to} already: wait for that, then move it on from there")]
    UnderWay {
        /// Where it goes.
        to: ShardId,
    },
    /// The tree cannot move. It is where it was.
    #[error("the tree of process {root} does not move: {why}")]
    Refused {
        /// The root.
        root: Pid,
        /// Why, and what to try.
        why: String,
    },
    /// The move takes long, and goes on.
    #[error("the tree of process {root} has not moved within {waited:?}. Ask again to wait for it")]
    Unfinished {
        /// The root.
        root: Pid,
        /// How long this was waited for.
        waited: Duration,
    },
}

/// What came into a cluster from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedStore {
    /// The pid of each process in the store, and its pid in the cluster.
    pub pids: BTreeMap<Pid, Pid>,
    /// The labels whose budgets are budgets of the cluster now. They count from zero.
    pub budgets: Vec<Label>,
}

impl From<dormouse::ports::StoreError> for MoveError {
    fn from(error: dormouse::ports::StoreError) -> Self {
        Self::Cluster(error.into())
    }
}

impl Cluster {
    /// Moves the tree of a root to another shard, and returns a handle on the root there. All
    /// processes get new pids; calls and messages for the old ones follow them, for as long as the
    /// cluster exists. The tree goes on in one of both shards, whatever is lost in the middle: a
    /// table of the database says in which. Called again for the same root, it waits for the same
    /// move, or moves the tree on from where it went.
    ///
    /// Everything in the shard of the tree rests meanwhile, for up to the drain deadline and the
    /// time of the export: calls that still run then are cut off, as when a node is lost. The other
    /// shard needs an owner. The export of the tree has at most 64 MiB.
    ///
    /// The tree keeps its conversations, descriptors, effects, temporary files, labels, what is
    /// stopped, and names that are free in the other shard. It does not keep its checkpoints, and
    /// the positions of its past stay with the old pids. Its processes know each other by their old
    /// pids, and other trees by the pids that these have. A message to another tree that was under
    /// way may arrive twice, since its sender has another pid now; and a process of the shard that
    /// the tree has left, which writes to an old pid, is told that this process has ended.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn move_tree(&self, root: Pid, to: ShardId) -> Result<ClusterProcess, MoveError> {
        let mut root = root;
        let known = loop {
            let tables = self.tables();
            match on_database(move || tables.move_of_root(root)).await? {
                // It went somewhere earlier.
                Some(done) if done.state == MoveState::Done => root = new_root(&done)?,
                known => break known,
            }
        };
        let from = shard_of(root);
        let tree_move = match known {
            Some(known) if known.to != to => return Err(MoveError::UnderWay { to: known.to }),
            Some(known) => known,
            None if from == to => return Ok(self.process(root)),
            None => {
                self.check_target(from, to).await?;
                let (tables, id) = (self.tables(), random::id()?);
                let asked = on_database(move || tables.ask_move(&id, root, Some(from), to)).await?;
                asked.ok_or_else(|| no_row(root))?
            }
        };
        self.wait_for_move(tree_move).await
    }

    async fn wait_for_move(&self, mut tree_move: TreeMove) -> Result<ClusterProcess, MoveError> {
        let (root, begun) = (tree_move.root, Instant::now());
        loop {
            match tree_move.state {
                MoveState::Done => return Ok(self.process(new_root(&tree_move)?)),
                MoveState::Refused => {
                    let why = tree_move.why.unwrap_or_default();
                    return Err(MoveError::Refused { root, why });
                }
                MoveState::Wanted | MoveState::Moved if begun.elapsed() > MOVE_LIMIT => {
                    let waited = begun.elapsed();
                    return Err(MoveError::Unfinished { root, waited });
                }
                MoveState::Wanted | MoveState::Moved => tokio::time::sleep(EVERY).await,
            }
            let (tables, id) = (self.tables(), tree_move.id.clone());
            let read = on_database(move || tables.tree_move(&id)).await?;
            tree_move = read.ok_or_else(|| no_row(root))?;
        }
    }

    async fn check_target(&self, from: ShardId, to: ShardId) -> Result<(), MoveError> {
        let tables = self.tables();
        let read = move || Ok((tables.0.shards()?, tables.needs()?));
        let (shards, needs) = on_database(read).await?;
        if !shards.iter().any(|status| status.shard == to) {
            return Err(MoveError::NoShard(to));
        }
        let of = |shard| needs.get(&shard).cloned().unwrap_or_default();
        let needs = of(from);
        match needs.is_subset(&of(to)) {
            true => Ok(()),
            false => Err(MoveError::Needs {
                from,
                to,
                needs: needs.into_iter().collect(),
            }),
        }
    }

    /// Brings all trees of a store into the cluster. `source` is a kernel of the store in which
    /// nothing runs, such as one that was opened with [`Recovery::Hold`](dormouse::Recovery::Hold):
    /// it is only read, and must not run afterwards. `name` names the import: called again with the
    /// same name, it goes on where it was, and brings no tree twice.
    ///
    /// Each tree comes as a whole, to a shard whose owners have the labels that its programs need,
    /// and goes on there at once. Trees keep what they keep when they [move](Self::move_tree), also
    /// ended ones. Budgets of labels become those of the cluster, unless it has some for the same
    /// labels, and count from zero. Checkpoints, positions of the past and pids do not come along.
    /// One export is in memory at a time, of at most 64 MiB.
    ///
    /// # Errors
    /// [`MoveError`]. The trees that came before are in the cluster.
    pub async fn import_store(
        &self,
        name: &str,
        source: &Kernel,
    ) -> Result<ImportedStore, MoveError> {
        let tables = self.tables();
        let present = on_database(move || tables.label_budgets()).await?;
        let mut budgets = Vec::new();
        for status in source.labels() {
            if !present.contains_key(&status.label) {
                let label = status.label.clone();
                self.set_label_budget(label.clone(), status.budget).await?;
                budgets.push(label);
            }
        }
        let mut pids = BTreeMap::new();
        for row in roots(source).await? {
            let id = format!("{name}/{}", row.pid);
            let tables = self.tables();
            let wanted = id.clone();
            let known = on_database(move || tables.tree_move(&wanted)).await?;
            let mut tree_move = match known {
                Some(tree_move) => tree_move,
                None => TreeMove {
                    id,
                    root: row.pid,
                    to: ShardId(0),
                    attempt: 0,
                    state: MoveState::Wanted,
                    pids: Vec::new(),
                    why: None,
                },
            };
            if tree_move.state == MoveState::Wanted {
                let export = export_tree(source, row.pid).await?;
                tree_move = self.bring(tree_move, labels_to_keep(&row), export).await?;
            }
            if tree_move.state == MoveState::Moved {
                let new = tree_move.pids.iter().map(|(_, new)| *new).collect();
                let resume = Call::ResumeCopy { pids: new };
                self.caller().call(tree_move.to, resume).await?;
                let (tables, id) = (self.tables(), tree_move.id.clone());
                on_database(move || tables.finish_move(&id)).await?;
            }
            pids.extend(tree_move.pids);
        }
        Ok(ImportedStore { pids, budgets })
    }

    /// Sends an export to a shard, and makes it the tree.
    async fn bring(
        &self,
        tree_move: TreeMove,
        labels: Vec<Label>,
        export: Bytes,
    ) -> Result<TreeMove, MoveError> {
        let TreeMove { id, root, .. } = tree_move;
        if export.len() > MAX_EXPORT_BYTES {
            let why = format!(
                "its export has {} bytes, and at most {MAX_EXPORT_BYTES} can move",
                export.len()
            );
            return Err(MoveError::Refused { root, why });
        }
        let needs = needs_of(&export).await?;
        let to = choose_shard(self.caller(), needs, &id).await?;
        let (tables, asked) = (self.tables(), id.clone());
        let tree_move = on_database(move || tables.ask_move(&asked, root, None, to)).await?;
        let to = tree_move.ok_or_else(|| no_row(root))?.to;
        let mut why = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let (tables, begun) = (self.tables(), id.clone());
            let attempt = on_database(move || tables.begin_attempt(&begun, None)).await?;
            if let Some(attempt) = attempt {
                let call = Call::Import(Box::new(ImportCall {
                    move_id: id.clone(),
                    attempt,
                    labels: labels.clone(),
                    is_from_shard: false,
                    export: Blob(export.clone()),
                }));
                let new = match self.caller().call(to, call).await {
                    Ok(Reply::Imported(pids)) => pids,
                    Ok(other) => return Err(unexpected(&other).into()),
                    Err(ClusterError::OutcomeUnknown { why: unknown, .. }) => {
                        why = unknown;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let (tables, committed) = (self.tables(), id.clone());
                let commit = move || tables.commit_move(&committed, attempt, None, &new);
                on_database(commit).await?;
            }
            let (tables, read) = (self.tables(), id.clone());
            let tree_move = on_database(move || tables.tree_move(&read)).await?;
            let tree_move = tree_move.ok_or_else(|| no_row(root))?;
            if matches!(tree_move.state, MoveState::Moved | MoveState::Done) {
                return Ok(tree_move);
            }
        }
        Err(MoveError::Refused { root, why })
    }

    /// Brings all trees of the cluster into a store, whose kernel is `target`: each as a whole,
    /// with its labels, held until it is [resumed](Kernel::resume) there. Returns the pid of each
    /// root in the cluster, and in the store. Called again, it goes on where it was, and brings no
    /// tree twice: what came is not brought up to date.
    ///
    /// The trees in the cluster stay, and go on: stop them first, or no longer run the nodes
    /// afterwards. Trees keep what they keep when they [move](Self::move_tree). Each is as of one
    /// moment, and two of them may be as of different ones. One export is in memory at a time, of
    /// at most 64 MiB.
    ///
    /// # Errors
    /// [`MoveError`]. The trees that came before are in the store.
    pub async fn export_store(&self, target: &Kernel) -> Result<BTreeMap<Pid, Pid>, MoveError> {
        let mut brought = BTreeMap::new();
        for row in roots(target).await? {
            let label = row.labels.iter().find(|it| it.key() == EXPORTED_LABEL);
            if let Some(pid) = label.and_then(|label| label.value().parse().ok()) {
                brought.insert(Pid(pid), row.pid);
            }
        }
        let tables = self.tables();
        let read = move || {
            let (mut gone, mut moves) = (BTreeSet::new(), BTreeMap::new());
            for status in tables.0.shards()? {
                gone.extend(tables.moved_pids(status.shard)?.into_keys());
                moves.extend(tables.moves_to(status.shard)?);
            }
            Ok((gone, moves))
        };
        let (gone, moves) = on_database(read).await?;
        let mut after = None;
        loop {
            let page = self.processes(after, 1000).await?;
            let Some(last) = page.last() else {
                return Ok(brought);
            };
            after = Some(last.row.pid);
            for info in page {
                let pid = info.row.pid;
                let is_here = info.row.parent.is_none() && !gone.contains(&pid);
                let is_tree = is_here && is_tree(&info.row, &moves);
                if !is_tree || brought.contains_key(&pid) {
                    continue;
                }
                let call = Call::Export { pid };
                let export = match self.caller().call(shard_of(pid), call).await? {
                    Reply::Export(export) => export.0,
                    other => return Err(unexpected(&other).into()),
                };
                let exported = Label::new(EXPORTED_LABEL, &pid.to_string());
                let exported = exported.map_err(ClusterError::from)?;
                let mut labels = labels_to_keep(&info.row);
                labels.retain(|label| label.key() != EXPORTED_LABEL);
                labels.push(exported);
                let import = target.import(Cursor::new(export));
                let imported = import.held().as_original().labels(labels).await?;
                brought.insert(pid, imported.process.pid());
            }
        }
    }
}

/// The labels of nodes that the programs of an export need.
async fn needs_of(export: &Bytes) -> Result<BTreeSet<String>, MoveError> {
    let export = export.clone();
    let reading = tokio::task::spawn_blocking(move || read_export(&export[..], &mut ()));
    let manifest = reading.await.map_err(KernelError::from)??;
    let mut needs = BTreeSet::new();
    for bundle in manifest.programs.values() {
        let Ok(bundle) = Bundle::from_bytes(bundle) else {
            continue;
        };
        let names = bundle.names();
        let files = names.filter_map(|name| Some((name.to_owned(), bundle.file(name)?.clone())));
        let program = ProgramFiles::new(bundle.entry(), files.collect());
        needs.extend(program.needs());
    }
    Ok(needs)
}

fn new_root(tree_move: &TreeMove) -> Result<Pid, MoveError> {
    let root = tree_move.pids.first().map(|(_, new)| *new);
    root.ok_or_else(|| no_row(tree_move.root))
}

/// Somebody has changed the table.
fn no_row(root: Pid) -> MoveError {
    MoveError::Refused {
        root,
        why: "the table of moves does not have it".to_owned(),
    }
}
