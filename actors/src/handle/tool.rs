//! Host tools: an async Rust function with a serde argument type becomes a tool.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proto::tool::{Access, ToolPolicy, ToolSpec};
use futures_util::future::{BoxFuture, FutureExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::ports::{OutputSink, Tool};

/// A tool made of an async function. The JSON schema that a model sees is derived from the argument type, doc comments
/// included.
///
/// ```
/// use dormouse_actors::handle::FnTool;
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     /// The second number.
///     b: i64,
/// }
///
/// let add = FnTool::new("add", "Adds two numbers.", |Add { a, b }: Add| async move {
///     a.checked_add(b).map(|sum| sum.to_string()).ok_or("the sum is too large")
/// })
/// .idempotent();
/// ```
pub struct FnTool<F, A> {
    spec: ToolSpec,
    policy: ToolPolicy,
    function: F,
    /// The argument type is `()`: a model is told of an empty object, and sends one.
    takes_nothing: bool,
    arguments: PhantomData<fn(A)>,
}

impl<F, A: JsonSchema> FnTool<F, A> {
    /// The tool `name`. It needs write access, runs at most two minutes and gives at most 256 MiB, until said otherwise.
    pub fn new<R, T, E>(name: &str, description: &str, function: F) -> Self
    where
        F: Fn(A) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let schema = schemars::schema_for!(A);
        let takes_nothing = schema.get("type").is_some_and(|kind| kind == "null");
        let schema = match takes_nothing {
            true => r#"{"type":"object","properties":{}}"#.to_owned(),
            false => serde_json::to_string(&schema).expect("a JSON schema is JSON"),
        };
        let spec = ToolSpec { name: name.into(), description: description.into(), schema: schema.into() };
        Self { spec, policy: ToolPolicy::default(), function, takes_nothing, arguments: PhantomData }
    }

    /// What a process must be allowed to do to call it.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.policy.access = access;
        self
    }

    /// Says that a call which was in flight when the kernel died may run again.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.policy.idempotent = true;
        self
    }

    /// After so long a call is abandoned and answered with an error.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline_ms = deadline.as_millis() as u64;
        self
    }

    /// Output beyond so many bytes ends the call.
    #[must_use]
    pub fn output_cap(mut self, bytes: u64) -> Self {
        self.policy.output_cap_bytes = bytes;
        self
    }
}

impl<F, A, R, T, E> Tool for FnTool<F, A>
where
    A: DeserializeOwned + 'static,
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send + 'static,
    T: Into<Bytes> + 'static,
    E: Display + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn policy(&self) -> ToolPolicy {
        self.policy
    }

    fn call(&self, args: String, out: OutputSink) -> BoxFuture<'static, Result<(), String>> {
        let args = if self.takes_nothing && matches!(args.trim(), "" | "{}") { "null" } else { &args };
        let running = match serde_json::from_str(args) {
            Ok(arguments) => (self.function)(arguments),
            Err(error) => {
                let text = format!("{} does not take these arguments: {error}", self.spec.name);
                return std::future::ready(Err(text)).boxed();
            }
        };
        async move {
            let output = running.await.map_err(|error| error.to_string())?;
            // What does not fit is reported by the sink itself.
            let _ = out.push(&output.into());
            Ok(())
        }
        .boxed()
    }
}
