//! Starts processes somewhere in a cluster.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;

use bytes::Bytes;
use dormouse::user_input::UserInput;
use dormouse_postgres::ShardId;
use dormouse_proto::program;
use futures_util::future::BoxFuture;

use crate::call::{Blob, Call, FirstInput, Reply, StartCall, parts_of};
use crate::caller::Caller;
use crate::database::on_database;
use crate::error::ClusterError;
use crate::placement::{Labels, shard_of_request};
use crate::process::{ClusterProcess, unexpected};
use crate::random;

/// The files of a program, as they are sent to the node that starts it.
#[derive(Clone, Debug)]
pub struct ProgramFiles {
    entry: String,
    files: BTreeMap<String, Bytes>,
}

impl ProgramFiles {
    /// A program of several files, by name, such as linked programs and prompts. `entry` is the
    /// name of the main file.
    #[must_use]
    pub fn new(entry: impl Into<String>, files: BTreeMap<String, Bytes>) -> Self {
        let entry = entry.into();
        Self { entry, files }
    }

    /// The labels that `[placement]` of the main file names.
    pub(crate) fn needs(&self) -> Vec<String> {
        let entry = self.files.get(&self.entry);
        let text = entry.and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.map(|text| program::parse(text).file.placement.needs)
            .unwrap_or_default()
    }
}

impl From<&str> for ProgramFiles {
    /// A program of one file.
    fn from(toml: &str) -> Self {
        toml.to_owned().into()
    }
}

impl From<String> for ProgramFiles {
    /// A program of one file.
    fn from(toml: String) -> Self {
        const NAME: &str = "program.toml";
        Self::new(NAME, [(NAME.to_owned(), Bytes::from(toml))].into())
    }
}

/// A process to be started somewhere: `.await` starts it.
#[must_use = "a process starts when this is awaited"]
pub struct ClusterStart {
    caller: Arc<Caller>,
    program: ProgramFiles,
    needs: Labels,
    request: Option<Arc<str>>,
    input: FirstInput,
    is_session: bool,
    name: Option<Arc<str>>,
    labels: Vec<(String, String)>,
}

impl ClusterStart {
    pub(crate) fn new(caller: Arc<Caller>, program: ProgramFiles) -> Self {
        Self {
            caller,
            needs: program.needs().into_iter().collect(),
            program,
            request: None,
            input: FirstInput::OfProgram,
            is_session: false,
            name: None,
            labels: Vec::new(),
        }
    }

    /// The first input, in place of the `user` prompt of the program.
    pub fn input(mut self, input: impl Into<UserInput>) -> Self {
        self.input = FirstInput::Parts(parts_of(input.into()));
        self
    }

    /// No first input: the process waits.
    pub fn without_input(mut self) -> Self {
        self.input = FirstInput::Nothing;
        self
    }

    /// The process waits for further input after each turn.
    pub fn session(mut self) -> Self {
        self.is_session = true;
        self
    }

    /// A label of nodes that the process needs, in addition to those that `[placement]` of its
    /// program names.
    pub fn need(mut self, label: impl Into<String>) -> Self {
        self.needs.insert(label.into());
        self
    }

    /// The name of the process among the living ones of its shard.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A label of the tree; at most 15, since the id of the request is one too.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// An id of the caller's own, at most 256 bytes: of all starts with one id one makes a process,
    /// and all return it, also after the program of the caller was started again. It is the label
    /// `dormouse.request` of the tree. Costs a pass over the process table of the shard.
    pub fn request_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.request = Some(id.into());
        self
    }

    async fn run(self) -> Result<ClusterProcess, ClusterError> {
        let may_have_begun = self.request.is_some();
        let request = match self.request {
            Some(request) => request,
            None => random::id()?.into(),
        };
        let shard = choose_shard(&self.caller, self.needs, &request).await?;
        let files = self.program.files.into_iter();
        let call = Call::Start(Box::new(StartCall {
            request,
            may_have_begun,
            entry: self.program.entry,
            files: files.map(|(name, bytes)| (name, Blob(bytes))).collect(),
            input: self.input,
            is_session: self.is_session,
            name: self.name,
            labels: self.labels,
        }));
        match self.caller.call(shard, call).await? {
            Reply::Process(pid) => Ok(ClusterProcess::new(self.caller, pid)),
            other => Err(unexpected(&other)),
        }
    }
}

impl IntoFuture for ClusterStart {
    type Output = Result<ClusterProcess, ClusterError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The shard for a process with these needs. Needs that no shard has yet get shards of their own.
pub(crate) async fn choose_shard(
    caller: &Caller,
    needs: Labels,
    request: &str,
) -> Result<ShardId, ClusterError> {
    let tables = caller.tables.clone();
    let wanted = needs.clone();
    let found = on_database(move || {
        let nodes = match wanted.is_empty() {
            true => Vec::new(),
            false => tables.live_nodes()?,
        };
        let has_node = wanted.is_empty()
            || nodes
                .iter()
                .any(|node| wanted.is_subset(&node.candidate.labels));
        let shards = match has_node {
            true => tables.shards_with_needs(&wanted)?,
            false => Vec::new(),
        };
        Ok((nodes, has_node, shards))
    });
    let (nodes, has_node, shards) = found.await?;
    if !has_node {
        let shown = nodes.iter().map(|node| {
            let labels: Vec<_> = node.candidate.labels.iter().cloned().collect();
            format!("{} [{}]", node.candidate.name, labels.join(", "))
        });
        return Err(ClusterError::NoNodeWithLabels {
            needs: needs.into_iter().collect(),
            nodes: shown.collect(),
        });
    }
    shard_of_request(request, shards).ok_or_else(|| {
        ClusterError::Options(
            "there is no shard for the process: the database has none, or no room for shards with \
             other needs"
                .to_owned(),
        )
    })
}
