//! Processes that make processes.

use dormouse::host::{LocalHost, Permissions};
use dormouse::model::{Reply, Request};
use dormouse::{Kernel, KernelError};

use super::{Count, End, Size, end, with_bystander};
use crate::{FnModel, asks, program, results, says};

/// What a process does that has spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Waits for its children.
    Waits,
    /// Goes on without them.
    GoesOn,
}

/// Counts what a process was refused, and ends its turn.
fn give_up(answers: &[(String, bool)], refused: &Count) -> Reply {
    refused.add(answers.iter().filter(|(_, is_error)| *is_error).count());
    says("no more")
}

/// Each process forks twice in one reply: once as wide as it may, and once more.
pub(super) async fn fork(size: Size) -> Result<End, KernelError> {
    let (refused, asked) = (Count::default(), Count::default());
    let (count, forks) = (refused.clone(), asked.clone());
    let prompts = format!(
        "{{\"prompts\": [{}]}}",
        vec!["\"again\""; size.width as usize].join(", ")
    );
    let model = FnModel(move |request: Request| {
        let answers = results(&request, 0);
        // A child's own history ends with what its parent's forks are answered in it.
        let is_newborn = answers
            .first()
            .is_none_or(|(text, _)| text.starts_with("You are child"));
        let reply = if is_newborn {
            forks.add(2);
            asks(&[("fork", &prompts), ("fork", &prompts)])
        } else {
            give_up(&answers, &count)
        };
        async move { Ok(reply) }
    });
    let kernel = with_bystander(Kernel::builder())
        .model("m", model)
        .build()
        .await?;
    let rest = format!(
        "[tools]\nenabled = [{{ name = \"fork\", access = \"write\" }}]\n{}",
        size.bounds()
    );
    let root = kernel.start(program(&kernel, &rest)).input("go").await?;
    root.wait().await?;
    end(&kernel, &root, asked.get(), refused.get()).await
}

/// Each process spawns its own program once more than it may.
pub(super) async fn spawn(size: Size, then: Then) -> Result<End, KernelError> {
    let (refused, asked) = (Count::default(), Count::default());
    let (count, spawns) = (refused.clone(), asked.clone());
    let waits = then == Then::Waits;
    let args = format!("{{\"program_name\": \"again\", \"query\": \"go\", \"wait\": {waits}}}");
    let model = FnModel(move |request: Request| {
        let reply = if request.messages.len() == 1 {
            spawns.add(size.width as usize + 1);
            asks(&vec![("spawn", &*args); size.width as usize + 1])
        } else {
            give_up(&results(&request, 0), &count)
        };
        async move { Ok(reply) }
    });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("bomb.toml");
    let text = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"spawn\"]\n\
         [linked_programs]\nagain = \"bomb.toml\"\n{}",
        size.bounds()
    );
    std::fs::write(&file, text).expect("the folder can be written");
    let host = LocalHost::new(Permissions::none(), folder.path()).expect("the folder is there");
    let kernel = with_bystander(Kernel::builder())
        .host(host)
        .model("m", model)
        .build()
        .await?;
    let bomb = kernel
        .load(&file)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .program;
    let root = kernel.start(bomb).input("go").await?;
    root.wait().await?;
    end(&kernel, &root, asked.get(), refused.get()).await
}
