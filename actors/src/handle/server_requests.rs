//! Requests of the host to the tool servers of a process, beyond calls of their tools: prompts,
//! resources, completions. They are no part of the journal.
//!
//! The tools that servers *offer* (list) to a process change only by [`Process::update_mcp_tools`],
//! which is a fact in the journal.

use std::sync::Arc;

use dormouse_kernel::process::{HostRequest, Input, tools_of_new_process};
use dormouse_proto::id::Pid;
use dormouse_proto::server::Server;
use serde_json::Value;

use super::process::Process;
use crate::error::{KernelError, ProcessError};
use crate::ports::{OffersTo, ServerAnswer, ServerRequestError, ToolError, ToolServers};
use crate::servers;

impl Process {
    /// What a server of the process's program says of itself: the result of its handshake, with
    /// `capabilities`, `serverInfo` and `instructions`. Connects if necessary.
    ///
    /// # Errors
    /// The kernel has no such server, or cannot reach it.
    pub async fn server_introduction(&self, server: &Arc<Server>) -> Result<Value, ToolError> {
        let context = &self.kernel.context;
        let (servers, root) = self.tool_servers().await?;
        servers.introduction(&context.host, server, root).await
    }

    /// Sends a request of the servers' protocol to a server of the process's program, and returns
    /// the result. Dropping the future abandons the request.
    ///
    /// # Errors
    /// [`ServerRequestError`].
    pub async fn request_server(
        &self,
        server: &Arc<Server>,
        method: &str,
        params: Value,
    ) -> ServerAnswer {
        let context = &self.kernel.context;
        let servers = self.tool_servers().await;
        let (servers, root) = servers.map_err(ServerRequestError::Failed)?;
        servers
            .request(&context.host, server, root, method, params)
            .await
    }

    /// Sends a notification to all servers that are connected for the tree of the process.
    pub async fn notify_servers(&self, method: &str, params: Value) {
        if let Ok((servers, root)) = self.tool_servers().await {
            servers.notify(root, method, params).await;
        }
    }

    /// Lists anew what the servers of the process offer, and gives the process the tools that a new
    /// one would get, if they differ from those that it has. Fails if they differ and the
    /// conversation has begun, since the tools of a conversation never change (HIST-1).
    ///
    /// # Errors
    /// [`ProcessError::ToolsNotReplaced`]: a server cannot be reached, or lacks a tool that the
    /// program names, or the conversation has begun.
    pub async fn update_mcp_tools(&self) -> Result<(), KernelError> {
        let context = &self.kernel.context;
        let view = self.wait_for(|_| true).await?;
        context.check_may_act()?;
        let program = view.program;
        let root = self.kernel.process_tree(self.pid()).await?.root;
        let offers = servers::list_offers(context, &program, &OffersTo::Tree(root)).await;
        let not_replaced = |reason: String| ProcessError::ToolsNotReplaced {
            pid: self.pid(),
            reason,
        };
        let offers = offers.map_err(|error| not_replaced(error.to_string()))?;
        let tools = tools_of_new_process(&program, &context.host_context, &offers);
        let (tools, external) = tools.map_err(|error| not_replaced(error.to_string()))?;
        if *view.tools.specs() == *tools && *view.tools.external() == *external {
            return Ok(());
        }
        let answer = self
            .request_answer(|request_id| Input::Host {
                request_id,
                request: HostRequest::ReplaceTools { tools, external },
            })
            .await?;
        if answer.is_error {
            return Err(not_replaced(answer.text.to_string()).into());
        }
        Ok(())
    }

    /// The tool servers, and the root of the tree of the process: connections are those of trees.
    async fn tool_servers(&self) -> Result<(&Arc<dyn ToolServers>, Pid), ToolError> {
        let servers = self.kernel.context.servers.as_ref().ok_or_else(|| {
            ToolError::from("this kernel reaches no tool servers: build it with `.tool_servers(…)`")
        })?;
        let tree = self.kernel.process_tree(self.pid()).await;
        let tree = tree.and_then(|tree| self.kernel.context.check_may_act().map(|()| tree));
        let root = tree
            .map_err(|error| ToolError::from(error.to_string()))?
            .root;
        Ok((servers, root))
    }
}
