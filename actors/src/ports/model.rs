//! Models: request in, stream of deltas and a reply out.

use std::sync::Arc;

use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::model::{Delta, ModelError, Reply, Request, TokenCount};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Host;

/// Something that answers requests: a provider's API, a script, a recording.
///
/// A call is one attempt: the kernel repeats it where the error says that this makes sense.
/// Dropping the future abandons the call.
pub trait Model: Send + Sync + 'static {
    /// Asks once. `deltas` is told what comes in as it comes; only the returned reply counts.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// How many input tokens `request` has. Nobody counts them, until a model says otherwise.
    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        std::future::ready(Ok(TokenCount::Estimated(request.estimated_tokens()))).boxed()
    }
}

/// Which model is wanted, and what may be used to reach it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The program whose process asks.
    pub program: &'a Program,
    /// The model, as the program chose it. A program may choose several.
    pub model: &'a ModelChoice,
    /// What the user permits a program: to name a server, or a variable that holds a key.
    pub host: &'a Arc<dyn Host>,
}

/// Makes the models of a kind: what stands behind `provider` in a program.
pub trait Provider: Send + Sync + 'static {
    /// The model that is asked for.
    ///
    /// # Errors
    /// Where there is none: a script that cannot be read, a server that the user does not permit.
    fn model(&self, asked: Asked<'_>) -> Result<Arc<dyn Model>, ModelError>;
}

impl Provider for Arc<dyn Provider> {
    fn model(&self, asked: Asked<'_>) -> Result<Arc<dyn Model>, ModelError> {
        (**self).model(asked)
    }
}

/// A model serves every program that names its provider.
impl<M: Model> Provider for Arc<M> {
    fn model(&self, _asked: Asked<'_>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.clone())
    }
}
