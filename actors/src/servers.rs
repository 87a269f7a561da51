//! Queries the tool servers of a program for a process that is about to be created.

use std::panic::AssertUnwindSafe;

use dormouse_kernel::program::{EnabledServer, Program, ServedTools};
use dormouse_proto::server::OfferedTool;
use futures_util::future::{FutureExt, join_all};

use crate::context::KernelContext;
use crate::environment::StartContextError;
use crate::ports::{OffersTo, ToolError};

/// Lists the tools that the servers of the program offer. The servers are queried concurrently. An
/// optional server that cannot be reached offers nothing.
///
/// # Errors
/// [`StartContextError::Server`].
pub(crate) async fn list_offers(
    context: &KernelContext,
    program: &Program,
    to: &OffersTo,
) -> Result<Vec<OfferedTool>, StartContextError> {
    let queries = program.servers().iter().map(|enabled| async move {
        match query_server(context, enabled, to.clone()).await {
            Err(why) if enabled.server.optional => {
                tracing::warn!(
                    program = program.name(),
                    server = &*enabled.server.name,
                    "not reached: {why}"
                );
                Ok(Vec::new())
            }
            Err(error) => Err(StartContextError::Server {
                name: enabled.server.name.clone(),
                error,
            }),
            Ok(offers) => Ok(offers),
        }
    });
    let offers: Result<Vec<_>, StartContextError> = join_all(queries).await.into_iter().collect();
    Ok(offers?.into_iter().flatten().collect())
}

async fn query_server(
    context: &KernelContext,
    enabled: &EnabledServer,
    to: OffersTo,
) -> Result<Vec<OfferedTool>, ToolError> {
    let Some(servers) = &context.servers else {
        return Err("this kernel reaches no tool servers: build it with `.tool_servers(…)`".into());
    };
    let server = &enabled.server;
    // A panic in the adapter counts as a server that cannot be reached.
    let query = AssertUnwindSafe(async {
        let offers = servers.offers(&context.host, server, to.clone()).await?;
        if has_all(enabled, &offers) || !servers.forget_offers(server, to.clone()) {
            return Ok(offers);
        }
        let newer = servers.offers(&context.host, server, to).await;
        // The earlier list is better than none.
        Ok(newer.unwrap_or(offers))
    });
    query
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err("the adapter failed internally".into()))
}

/// Whether the offers have all tools that the program names.
fn has_all(enabled: &EnabledServer, offers: &[OfferedTool]) -> bool {
    let is_offered = |name: &str| offers.iter().any(|offer| *offer.name == *name);
    match &enabled.served {
        ServedTools::All => true,
        ServedTools::Named(tools) => tools.iter().all(|tool| is_offered(&tool.name)),
    }
}
