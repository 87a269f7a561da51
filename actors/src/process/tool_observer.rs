//! The observer of one tool call: publishes progress as an event, and passes everything on to the
//! host if the host made the call.

use std::sync::Arc;

use dormouse_proto::id::Pid;
use dormouse_proto::tool::Progress;
use serde_json::{Map, Value};

use crate::context::KernelContext;
use crate::event::Event;
use crate::ports::{CallObserver, SharedObserver};

/// Observes a call of the tool `tool` of a process.
pub(super) struct ToolObserver {
    /// The host's observer, if the host made the call.
    pub(super) host: Option<SharedObserver>,
    pub(super) context: Arc<KernelContext>,
    pub(super) pid: Pid,
    pub(super) tool: Arc<str>,
}

impl CallObserver for ToolObserver {
    fn progress(&self, progress: Progress) {
        if let Some(host) = &self.host {
            host.progress(progress.clone());
        }
        self.context.publish(Event::ToolProgress {
            pid: self.pid,
            tool: self.tool.clone(),
            progress,
        });
    }

    fn server_result(&self, result: Value) {
        if let Some(host) = &self.host {
            host.server_result(result);
        }
    }

    fn wants_server_result(&self) -> bool {
        self.host
            .as_ref()
            .is_some_and(|host| host.wants_server_result())
    }

    fn request_meta(&self) -> Option<Map<String, Value>> {
        self.host.as_ref().and_then(|host| host.request_meta())
    }
}
