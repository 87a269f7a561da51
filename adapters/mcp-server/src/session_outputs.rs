//! The kept outputs of one session. A kept output is the content of a descriptor as a file that
//! outlives the session, under a name such as `kept-…` (`kept_outputs.rs`). Here the new
//! descriptors of a session are kept, and outputs of earlier sessions that a call names are opened
//! as descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::handle::Process;
use dormouse_actors::{KernelError, ProcessView};
use dormouse_proto::id::FdId;
use dormouse_proto::tool::Answer;
use serde_json::{Map, Value};

use crate::kept_outputs::{KeptOutput, KeptOutputs, LoadError, OutputName};
use crate::session_process::current_view;

/// What a session knows of kept outputs.
#[derive(Debug)]
pub(crate) struct SessionOutputs {
    kept: KeptOutputs,
    known: Mutex<KnownOutputs>,
    /// Held while an output is opened, so that concurrent calls do not open it twice.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownOutputs {
    by_name: BTreeMap<OutputName, FdId>,
    /// Descriptors that are kept, or were opened from what is kept.
    descriptors: BTreeSet<FdId>,
}

/// Why a kept output cannot be used in a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl SessionOutputs {
    pub(crate) fn new(kept: KeptOutputs) -> Self {
        Self {
            kept,
            known: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownOutputs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the names of kept outputs in the arguments of a call by descriptors of the process,
    /// which are opened if they are those of an earlier session. A name is a whole string, or
    /// stands in a handle (`{{name}}`).
    ///
    /// # Errors
    /// [`OutputError`]: the answer to the call.
    pub(crate) async fn resolve_arguments(
        &self,
        process: &Process,
        arguments: &mut Map<String, Value>,
    ) -> Result<(), OutputError> {
        let mut names = BTreeSet::new();
        arguments
            .values_mut()
            .for_each(|value| visit_strings(value, &mut |text| names.extend(name_in(text))));
        let mut descriptors = BTreeMap::new();
        for name in names {
            let id = self.descriptor(process, &name).await?;
            descriptors.insert(name, id);
        }
        let mut replace = |text: &mut String| {
            if let Some((name, id)) =
                name_in(text).and_then(|name| descriptors.get_key_value(&name))
            {
                *text = text.replacen(name.as_str(), &id.to_string(), 1);
            }
        };
        arguments
            .values_mut()
            .for_each(|value| visit_strings(value, &mut replace));
        Ok(())
    }

    /// The descriptor of a kept output in this session.
    ///
    /// # Errors
    /// [`OutputError`].
    pub(crate) async fn descriptor(
        &self,
        process: &Process,
        name: &OutputName,
    ) -> Result<FdId, OutputError> {
        let _opening = self.opening.lock().await;
        if let Some(id) = self.known().by_name.get(name) {
            return Ok(id.clone());
        }
        let (kept, requested) = (self.kept.clone(), name.clone());
        let loaded = tokio::task::spawn_blocking(move || kept.load(&requested)).await;
        let output = loaded.map_err(KernelError::from)??;
        // The source tells the descriptor from those that other calls open meanwhile.
        let source = format!("{} ({})", output.source, name.as_str());
        process.open(&*source, output.bytes, None).await?;
        let view = current_view(process).await?;
        let descriptors = view.list_descriptors().into_iter().rev();
        let opened = descriptors
            .map(|descriptor| (descriptor.source, descriptor.id))
            .find(|(opened, _)| **opened == *source);
        let (_, id) = opened.ok_or(KernelError::Closed)?;
        let mut known = self.known();
        known.descriptors.insert(id.clone());
        known.by_name.insert(name.clone(), id.clone());
        Ok(id)
    }

    /// Keeps the descriptors that an answer opened, and returns the notice that tells their names.
    /// `None` if the answer opened none, or none could be kept.
    pub(crate) async fn keep_opened(&self, process: &Process, answer: &Answer) -> Option<String> {
        let view = current_view(process).await.ok()?;
        let mut names = Vec::new();
        for (id, source) in self.claim_opened(&view, answer) {
            let content = view.content(&id)?;
            let kept = self.kept.clone();
            let added = tokio::task::spawn_blocking(move || {
                let bytes: Bytes = content
                    .unlimited_reader()
                    .bytes()
                    .map_err(|error| std::io::Error::other(error.to_string()))?;
                kept.add(&KeptOutput { source, bytes })
            });
            match added.await {
                Ok(Ok(Some(name))) => {
                    names.push(format!("{id} is {}", name.as_str()));
                    self.known().by_name.insert(name, id);
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::warn!("an output cannot be kept: {error}"),
                Err(error) => tracing::warn!("an output cannot be kept: {error}"),
            }
        }
        let minutes = self.kept.limits().age.as_secs().div_ceil(60);
        (!names.is_empty()).then(|| {
            format!(
                "In other sessions {}, for {minutes} minutes.",
                names.join(", ")
            )
        })
    }

    /// The descriptors that an answer shows and that no earlier answer opened.
    fn claim_opened(&self, view: &ProcessView, answer: &Answer) -> Vec<(FdId, String)> {
        let mut known = self.known();
        let mut is_opened = |id: &FdId| {
            let is_shown = answer.text.contains(&format!("fd=\"{id}\""))
                || answer.media.iter().any(|media| media.fd == *id);
            is_shown && known.descriptors.insert(id.clone())
        };
        view.list_descriptors()
            .into_iter()
            .filter(|descriptor| is_opened(&descriptor.id))
            .map(|descriptor| (descriptor.id, descriptor.source.to_string()))
            .collect()
    }
}

/// The notice after the answer to a call that names a descriptor which this session does not have.
pub(crate) async fn explain_unknown(
    process: &Process,
    arguments: &Map<String, Value>,
) -> Option<String> {
    let named = arguments.get("fd")?.as_str()?;
    let id: FdId = named.parse().ok()?;
    let view = current_view(process).await.ok()?;
    view.content(&id).is_none().then(|| {
        format!(
            "{named} is not of this session. An output of an earlier session has a name that begins \
             with kept-, at the end of the answer that returned it: use that name. If there is none, \
             call the tool again that returned the output."
        )
    })
}

fn visit_strings(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| visit_strings(value, visit)),
        Value::Object(values) => values
            .values_mut()
            .for_each(|value| visit_strings(value, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name that a string is, or that a handle begins with.
fn name_in(text: &str) -> Option<OutputName> {
    let inside = text.strip_prefix("{{").map(str::trim_start);
    let word = inside.map_or(text, |inside| {
        let end = inside
            .find(|c: char| c.is_whitespace() || c == '}')
            .unwrap_or(inside.len());
        &inside[..end]
    });
    OutputName::parse(word)
}
