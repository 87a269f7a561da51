//! Models: a request in, a stream of deltas and a reply out.

use std::sync::Arc;

use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::model::{Delta, ModelError, Reply, Request, TokenCount};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Host;

/// Answers requests: the API of a provider, a script, a recording.
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

    /// The number of input tokens of `request`. The default estimates it.
    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        std::future::ready(Ok(TokenCount::Estimated(request.estimated_tokens()))).boxed()
    }
}

/// A model that a process needs, and what may be used to reach it.
#[derive(Clone, Copy)]
pub struct ProviderRequest<'a> {
    /// The program of the process.
    pub program: &'a Program,
    /// The model that the program chose. A program may choose several.
    pub model: &'a ModelChoice,
    /// What the user permits the program: to name a server, or a variable with a key.
    pub host: &'a Arc<dyn Host>,
}

/// Provides the models for a `provider` word in programs.
pub trait Provider: Send + Sync + 'static {
    /// The requested model.
    ///
    /// # Errors
    /// No such model: a script that cannot be read, a server that the user does not permit.
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
