//! Models: request in, stream of deltas and a reply out.

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
