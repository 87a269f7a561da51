//! Host tools: an async Rust function with a serde argument type becomes a tool.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proto::effect::RepeatRule;
use dormouse_proto::tool::{Access, ToolPolicy, ToolSpec};
use futures_util::future::{BoxFuture, FutureExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ports::{OutputSink, Tool, ToolError};

/// A tool made of an async function. The JSON schema that a model sees is derived from the argument
/// type, doc comments included.
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
    repeat: RepeatRule,
    function: F,
    /// The argument type is `()`: the schema is an empty object, and so are the arguments that a
    /// model sends.
    has_no_arguments: bool,
    arguments: PhantomData<fn(A)>,
}

/// A function that pushes its output into a sink while it runs.
pub struct Streaming<F>(F);

impl<F, A: JsonSchema> FnTool<F, A> {
    /// The tool `name`. By default it needs write access, runs at most two minutes, and returns at
    /// most 256 MiB.
    pub fn new<R, T, E>(name: &str, description: &str, function: F) -> Self
    where
        F: Fn(A) -> R,
        R: Future<Output = Result<T, E>>,
    {
        Self::from_function(name, description, function)
    }

    fn from_function(name: &str, description: &str, function: F) -> Self {
        let schema = schemars::schema_for!(A);
        let has_no_arguments = schema.get("type").is_some_and(|kind| kind == "null");
        let schema = match has_no_arguments {
            true => r#"{"type":"object","properties":{}}"#.to_owned(),
            false => serde_json::to_string(&schema).expect("a JSON schema is JSON"),
        };
        let spec = ToolSpec {
            name: name.into(),
            description: description.into(),
            schema: schema.into(),
        };
        Self {
            spec,
            policy: ToolPolicy::default(),
            repeat: RepeatRule::default(),
            function,
            has_no_arguments,
            arguments: PhantomData,
        }
    }
}

impl<F, A: JsonSchema> FnTool<Streaming<F>, A> {
    /// The tool `name`, whose function pushes its output into a sink as it arrives. That output is
    /// kept even if the function fails, panics, exceeds its deadline or its output cap.
    pub fn streaming<R, E>(name: &str, description: &str, function: F) -> Self
    where
        F: Fn(A, OutputSink) -> R,
        R: Future<Output = Result<(), E>>,
    {
        Self::from_function(name, description, Streaming(function))
    }
}

impl<F, A> FnTool<F, A> {
    /// The access that a process needs to call the tool.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.policy.access = access;
        self
    }

    /// Permits repeating a call that was in flight when the kernel stopped.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.policy.idempotent = true;
        self
    }

    /// How repeated calls are recognised after the process went back to an earlier point, and what
    /// happens to them.
    #[must_use]
    pub fn repeat_rule(mut self, rule: RepeatRule) -> Self {
        self.repeat = rule;
        self
    }

    /// Sets the deadline. A call that runs longer is abandoned and answered with an error.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline_ms = deadline.as_millis() as u64;
        self
    }

    /// Sets the output cap. A call with more output is ended.
    #[must_use]
    pub fn output_cap(mut self, bytes: u64) -> Self {
        self.policy.output_cap_bytes = bytes;
        self
    }
}

/// Decodes the arguments. Some models send a number as a string: if the arguments do not decode,
/// decimal strings are converted to integers in fields that the schema declares as integers.
fn decode<A: DeserializeOwned>(args: &str, schema: &str) -> Result<A, serde_json::Error> {
    serde_json::from_str(args).or_else(|error| {
        let parsed = serde_json::from_str::<Value>(args)
            .and_then(|value| Ok((value, serde_json::from_str::<Value>(schema)?)));
        let Ok((mut value, schema)) = parsed else {
            return Err(error);
        };
        let fields = value.as_object_mut().into_iter().flatten();
        for (name, field) in fields {
            let field_type = &schema["properties"][name]["type"];
            // An optional integer has the type `["integer", "null"]`.
            let is_integer = field_type == "integer"
                || field_type
                    .as_array()
                    .is_some_and(|types| types.iter().any(|name| name == "integer"));
            if let Some(number) = field
                .as_str()
                .filter(|_| is_integer)
                .and_then(|text| text.parse::<i64>().ok())
            {
                *field = number.into();
            }
        }
        serde_json::from_value(value).map_err(|_| error)
    })
}

/// Calls a function, and sends its output to the sink.
trait Function<A>: Send + Sync + 'static {
    fn call(&self, arguments: A, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>>;
}

impl<F, A, R, T, E> Function<A> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send + 'static,
    T: Into<Bytes> + 'static,
    E: Display + 'static,
{
    fn call(&self, arguments: A, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let running = self(arguments);
        async move {
            let output = running.await.map_err(|error| error.to_string())?;
            // The sink itself reports output that does not fit.
            let _ = out.push(&output.into());
            Ok(())
        }
        .boxed()
    }
}

impl<F, A, R, E> Function<A> for Streaming<F>
where
    F: Fn(A, OutputSink) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + 'static,
{
    fn call(&self, arguments: A, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let running = (self.0)(arguments, out);
        async move { running.await.map_err(|error| error.to_string().into()) }.boxed()
    }
}

impl<F: Function<A>, A: DeserializeOwned + 'static> Tool for FnTool<F, A> {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn policy(&self) -> ToolPolicy {
        self.policy
    }

    fn repeat_rule(&self) -> RepeatRule {
        self.repeat.clone()
    }

    fn call(&self, args: String, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let args = if self.has_no_arguments && matches!(args.trim(), "" | "{}") {
            "null"
        } else {
            &args
        };
        match decode(args, &self.spec.schema) {
            Ok(arguments) => self.function.call(arguments, out),
            Err(error) => {
                let text = format!("{} does not take these arguments: {error}", self.spec.name);
                std::future::ready(Err(text.into())).boxed()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    struct Count {
        number: u32,
        text: String,
    }

    #[test]
    fn a_string_is_accepted_only_for_an_integer() {
        let schema = serde_json::to_string(&schemars::schema_for!(Count)).unwrap();
        let decode = |args: &str| decode::<Count>(args, &schema);
        let count = Count {
            number: 13,
            text: "13".into(),
        };
        assert_eq!(decode(r#"{"number": 13, "text": "13"}"#).unwrap(), count);
        assert_eq!(decode(r#"{"number": "13", "text": "13"}"#).unwrap(), count);
        for args in [
            r#"{"number": "x", "text": "13"}"#,
            r#"{"number": "-1", "text": "13"}"#,
            r#"{"number": 13, "text": 13}"#,
            "[",
            "13",
        ] {
            assert!(decode(args).is_err(), "{args}");
        }
    }
}
