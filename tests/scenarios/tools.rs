//! The tools of the host: each call carries a key, and each run is counted by it.

use std::future::pending;
use std::time::Duration;

use dormouse::tool::Access;
use dormouse::{FnTool, KernelBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::person::ASKED;
use crate::tally::Tally;

/// The tools, as a program enables them.
pub(crate) const ENABLED: &str =
    r#""repeatable", "once", "asked", "hangs", "panics", "large", "floods""#;

#[derive(Deserialize, JsonSchema)]
struct Work {
    key: String,
    ms: u64,
}

/// How long a tool that hangs is waited for.
const DEADLINE: Duration = Duration::from_secs(45);

/// Enters the tools. `runs` counts them by their names and keys.
pub(crate) fn enter(builder: KernelBuilder, runs: &Tally) -> KernelBuilder {
    let work = |tool: &'static str, output: fn(String) -> String| {
        let runs = runs.clone();
        FnTool::new(tool, "Works.", move |Work { key, ms }: Work| {
            runs.count(format!("{tool} {key}"));
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok::<_, String>(output(key))
            }
        })
    };
    let counted = runs.clone();
    let hangs = FnTool::new("hangs", "Never ends.", move |Work { key, .. }: Work| {
        counted.count(format!("hangs {key}"));
        pending::<Result<String, String>>()
    });
    builder
        .tool(
            work("repeatable", |key| key)
                .idempotent()
                .access(Access::Read),
        )
        .tool(work("once", |key| key))
        .tool(work(ASKED, |key| key))
        .tool(work("panics", |key| panic!("no luck with {key}")))
        .tool(work("large", |_| {
            (0..400)
                .map(|line| format!("line {line} of many\n"))
                .collect()
        }))
        .tool(work("floods", |_| "flood ".repeat(1_000)).output_cap(300))
        .tool(hangs.deadline(DEADLINE))
}
