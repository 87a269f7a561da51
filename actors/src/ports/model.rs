//! The port for models: a model answers a request with a stream of deltas and a final reply.

use std::sync::Arc;

use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::model::{Delta, ModelError, Reply, Request, TokenCount};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Host;

/// Answers requests. Implementations call the API of a provider, run a script, or replay a
/// recording.
///
/// A call is one attempt; the kernel repeats it if the error permits that. Dropping the future
/// abandons the call.
pub trait Model: Send + Sync + 'static {
    /// Makes one attempt. `deltas` receives the parts of the reply as they arrive; only the
    /// returned reply is final.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// The number of input tokens of `request`. The default estimates the number.
    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        std::future::ready(Ok(TokenCount::Estimated(request.estimated_tokens()))).boxed()
    }
}

/// The model that a process needs, and the host whose permissions apply.
#[derive(Clone, Copy)]
pub struct ProviderRequest<'a> {
    /// The program of the process.
    pub program: &'a Program,
    /// The model that the program chose. A program may choose several.
    pub model: &'a ModelChoice,
    /// Checks what the user permits the program: to name a server, or a variable with a key.
    pub host: &'a Arc<dyn Host>,
}

/// Provides the models for a `provider` word in programs.
pub trait Provider: Send + Sync + 'static {
    /// The requested model.
    ///
    /// # Errors
    /// The model cannot be provided, for instance because a script cannot be read or the user does
    /// not permit the server.
    fn model(&self, request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError>;
}

impl Provider for Arc<dyn Provider> {
    fn model(&self, request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        (**self).model(request)
    }
}

/// A single model serves every program that names its provider.
impl<M: Model> Provider for Arc<M> {
    fn model(&self, _request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.clone())
    }
}
