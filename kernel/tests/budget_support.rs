//! Processes under a budget, and what is around them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{Birth, HostContext, HostTool, Preloads, State, initial_image};
use dormouse_kernel::program::{Program, compile};
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::budget::Price;
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::Pid;
use dormouse_proto::process::Priority;
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::{Access, ToolPolicy, ToolSpec};

/// A program of `me.toml`, which links itself and `small.toml`, with the tools `grep`, fork (for
/// everybody) and spawn.
pub(crate) fn program(budget: &str) -> Program {
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = \
         100000\n[parameters]\nmax_tokens = 50\n";
    let tools = "[tools]\nenabled = [\"grep\", \"summarize_fd\", { name = \"fork\", access = \
         \"write\" }, \"spawn\"]\n[file_descriptor]\nmax_direct_output_chars = \
         20\ndefault_page_size = 10\nmax_input_chars = 2000\n[linked_programs]\nme = \
         \"me.toml\"\nsmall = \"small.toml\"\n[limits]\nmax_depth = 9\nmax_children = 99\n";
    let me = format!("{model}{tools}{budget}");
    let small = format!("{model}[budget]\noutput_tokens = 9\nprocesses = 3\n");
    let mut read = |path: &Path| match path.to_str() {
        Some("me.toml") => Ok(Bytes::from(me.clone())),
        Some("small.toml") => Ok(Bytes::from(small.clone())),
        _ => Err(FileError {
            kind: FileErrorKind::FileNotFound,
            message: path.display().to_string(),
        }),
    };
    compile(Path::new("me.toml"), &mut read, &["grep"])
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}

pub(crate) fn around(price: u64) -> Arc<HostContext> {
    let spec = ToolSpec {
        name: "grep".into(),
        description: "finds".into(),
        schema: "{}".into(),
    };
    let tools = BTreeMap::from([(
        "grep".into(),
        HostTool {
            spec,
            policy: ToolPolicy::default(),
        },
    )]);
    let prices = BTreeMap::from([("m".to_owned(), Price::new(price, price))]);
    Arc::new(HostContext {
        tools,
        prices,
        ..HostContext::new(&TOOL_SET)
    })
}

/// A process that was born at 0, priced at one nano for a token.
pub(crate) fn process(program: Program, lifetime: Lifetime) -> State {
    let (around, said) = (around(1_000_000), "go".into());
    let (access, priority, preloads) = (Access::Admin, Priority::Normal, &Preloads::default());
    let birth = Birth {
        access,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: Some(&said),
    };
    let image = initial_image(&program, &around, birth, 0);
    State::from_image(Pid(1), program, around, image).expect("an image that was just made is valid")
}
