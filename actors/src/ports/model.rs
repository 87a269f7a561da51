//! Models: request in, stream of deltas and a reply out.

use std::sync::Arc;

use dormouse_kernel::program::Program;
use dormouse_proto::model::{Delta, ModelError, Reply, Request};
use futures_util::future::BoxFuture;

/// Something that answers requests: a provider's API, a script, a recording.
///
/// A call is one attempt: the kernel repeats it where the error says that this makes sense. Dropping the future abandons
/// the call.
pub trait Model: Send + Sync + 'static {
    /// Asks once. `deltas` is told what comes in as it comes; only the returned reply counts.
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// Makes the models of a kind: what stands behind `provider` in a program.
pub trait Provider: Send + Sync + 'static {
    /// The model that `program` asks for.
    ///
    /// # Errors
    /// Where there is none: a script that cannot be read, a model that the provider does not have.
    fn model(&self, program: &Program) -> Result<Arc<dyn Model>, ModelError>;
}

/// A model serves every program that names its provider.
impl<M: Model> Provider for Arc<M> {
    fn model(&self, _program: &Program) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.clone())
    }
}
