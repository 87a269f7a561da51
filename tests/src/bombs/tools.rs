//! Tools that misbehave, and a model that calls one for ever.

use dormouse::host::{LocalHost, Permissions};
use dormouse::model::Request;
use dormouse::ports::{OutputSink, Tool, ToolError};
use dormouse::tool::{ToolPolicy, ToolSpec};
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError};
use futures_util::future::BoxFuture;

use super::{Count, End, Size, end, with_bystander};
use crate::{FnModel, asks, program, results, says};

const TOOL: &str = "[tools]\nenabled = [\"tool\"]\n";

/// A process calls `tool` once and says what it was answered, as far as that is short.
async fn call(builder: KernelBuilder, rest: &str) -> Result<End, KernelError> {
    let model = FnModel(|request: Request| async move {
        Ok(match results(&request, 0).first() {
            None => asks(&[("tool", "{}")]),
            Some((text, is_error)) => {
                // Of what became a descriptor, the line that says what happened to it.
                let why = text
                    .lines()
                    .find(|line| line.contains("bytes"))
                    .unwrap_or(text);
                let kept: String = why.trim().chars().take(200).collect();
                says(&format!("error={is_error}: {kept}"))
            }
        })
    });
    let kernel = with_bystander(builder).model("m", model).build().await?;
    let root = kernel.start(program(&kernel, rest)).input("go").await?;
    root.wait().await?;
    end(&kernel, &root, 1, 0).await
}

pub(super) async fn command(size: Size) -> Result<End, KernelError> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let permissions = Permissions::none().allow_run("yes");
    let host = LocalHost::new(permissions, folder.path()).expect("the folder is there");
    let rest = format!(
        "[tools]\nenabled = [\"read_fd\"]\n[[tools.command]]\nname = \"tool\"\ndescription = \
         \"Says y.\"\nargv = [\"yes\"]\noutput_cap = \"{}B\"\n",
        size.output_cap
    );
    call(Kernel::builder().host(host), &rest).await
}

/// Writes for ever, whatever the sink says.
struct Endless {
    output_cap_bytes: u64,
}

impl Tool for Endless {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "tool".into(),
            description: "Endless.".into(),
            schema: "{\"type\":\"object\"}".into(),
        }
    }

    fn policy(&self) -> ToolPolicy {
        ToolPolicy {
            output_cap_bytes: self.output_cap_bytes,
            ..ToolPolicy::default()
        }
    }

    fn call(&self, _args: String, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        Box::pin(async move {
            loop {
                let _full = out.push("again and again\n".repeat(256).as_bytes());
                tokio::task::yield_now().await;
            }
        })
    }
}

pub(super) async fn prints(size: Size) -> Result<End, KernelError> {
    let rest = "[tools]\nenabled = [\"tool\", \"read_fd\"]\n";
    call(
        Kernel::builder().tool(Endless {
            output_cap_bytes: size.output_cap,
        }),
        rest,
    )
    .await
}

/// Arguments that say nothing.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

pub(super) async fn hangs(size: Size) -> Result<End, KernelError> {
    let tool = FnTool::new("tool", "Hangs.", |Nothing {}| {
        std::future::pending::<Result<String, String>>()
    });
    call(Kernel::builder().tool(tool.deadline(size.deadline)), TOOL).await
}

pub(super) async fn blocks(size: Size) -> Result<End, KernelError> {
    let tool = FnTool::new("tool", "Holds its thread.", |Nothing {}| async {
        loop {
            std::thread::park();
        }
        #[expect(unreachable_code, reason = "the type of what never comes")]
        Ok::<String, String>(String::new())
    });
    call(Kernel::builder().tool(tool.deadline(size.deadline)), TOOL).await
}

pub(super) async fn panics(_size: Size) -> Result<End, KernelError> {
    let tool = FnTool::new("tool", "Panics.", |Nothing {}| async {
        let read: Result<String, _> =
            std::fs::read_to_string("").map_err(|_| panic!("what is not there"));
        read.map_err(|(): ()| String::new())
    });
    call(Kernel::builder().tool(tool), TOOL).await
}

/// Ends at `max_iterations`.
pub(super) async fn loops(size: Size) -> Result<End, KernelError> {
    let calls = Count::default();
    let count = calls.clone();
    let tool = FnTool::new("tool", "Says y.", |Nothing {}| async {
        Ok::<_, String>("y".to_owned())
    });
    let model = FnModel(move |_: Request| {
        count.add(1);
        async { Ok(asks(&[("tool", "{}")])) }
    });
    let kernel = with_bystander(Kernel::builder())
        .tool(tool)
        .model("m", model)
        .build()
        .await?;
    let rest = format!("max_iterations = {}\n{TOOL}", size.model_calls);
    let root = kernel.start(program(&kernel, &rest)).input("go").await?;
    root.wait().await?;
    end(&kernel, &root, calls.get(), 0).await
}
