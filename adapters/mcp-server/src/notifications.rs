//! Forwards the notifications of the tool servers to the client of a session. If the tools of a
//! server have changed, the process of the session gets the new ones first.

use std::sync::{Arc, Weak};

use dormouse_actors::handle::Process;
use rmcp::model::ServerNotification;
use rmcp::service::{Peer, RoleServer};
use tokio::sync::mpsc;

use crate::session_client::FromServer;
use crate::session_process::current_view;
use crate::session_tools::SessionTools;

/// Forwards notifications until the session ends.
pub(crate) async fn forward_notifications(
    mut notifications: mpsc::Receiver<FromServer>,
    peer: Peer<RoleServer>,
    process: Process,
    tools: Weak<SessionTools>,
) {
    let has_several_servers = match current_view(&process).await {
        Ok(view) => view.program.servers().len() > 1,
        Err(_) => return,
    };
    while let Some(FromServer {
        server,
        mut notification,
    }) = notifications.recv().await
    {
        match &mut notification {
            ServerNotification::ToolListChangedNotification(_) => {
                update_tools(&process, &tools).await;
            }
            ServerNotification::LoggingMessageNotification(message) if has_several_servers => {
                name_logger(&mut message.params, &server);
            }
            _ => {}
        }
        if peer.send_notification(notification).await.is_err() {
            return;
        }
    }
}

async fn update_tools(process: &Process, tools: &Weak<SessionTools>) {
    if let Some(tools) = tools.upgrade() {
        tools.forget_list();
    }
    if let Err(error) = process.update_mcp_tools().await {
        tracing::warn!("the tools of a server have changed and cannot be listed: {error}");
    }
}

/// Of several servers, the logger of a message is the server that wrote it, unless it names one.
#[expect(
    deprecated,
    reason = "servers and clients of earlier versions log by it"
)]
fn name_logger(message: &mut rmcp::model::LoggingMessageNotificationParam, server: &Arc<str>) {
    message.logger.get_or_insert_with(|| server.to_string());
}
