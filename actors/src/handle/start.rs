//! Starting a process.

use std::future::IntoFuture;
use std::sync::Arc;

use dormouse_kernel::process::{Birth, Preloads, born};
use dormouse_kernel::program::Program;
use dormouse_proto::budget::Budget;
use dormouse_proto::mail::is_process_name;
use dormouse_proto::process::{Origin, Priority};
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::Access;
use dormouse_proto::user_input::UserInput;
use futures_util::future::BoxFuture;

use super::kernel::Kernel;
use super::process::Process;
use crate::clock::now_ms;
use crate::environment;
use crate::error::{KernelError, NameError, StartError};

/// A process about to start: `.await` starts it.
#[derive(Debug)]
#[must_use = "a process starts when this is awaited"]
pub struct Start {
    kernel: Kernel,
    program: Program,
    input: Option<UserInput>,
    lifetime: Lifetime,
    priority: Priority,
    access: Access,
    budget: Budget,
    name: Option<Arc<str>>,
}

impl Start {
    pub(super) fn new(kernel: Kernel, program: Program) -> Self {
        let input = program.user().map(UserInput::from);
        Self {
            kernel,
            program,
            input,
            lifetime: Lifetime::Task,
            priority: Priority::Normal,
            access: Access::Admin,
            budget: Budget::default(),
            name: None,
        }
    }

    /// What is said to it first, in place of the `user` prompt of its program: a text, or several
    /// parts in order.
    pub fn input(mut self, user_input: impl Into<UserInput>) -> Self {
        self.input = Some(user_input.into());
        self
    }

    /// Nothing is said to it first, not even the `user` prompt of its program: it waits.
    pub fn without_input(mut self) -> Self {
        self.input = None;
        self
    }

    /// It waits for further input after each turn, instead of ending with its first.
    pub fn session(mut self) -> Self {
        self.lifetime = Lifetime::Session;
        self
    }

    /// How soon its model calls are made where others wait for the same provider; normal, until
    /// said otherwise. Kept for its life, through restarts, and inherited by all that descends from
    /// it. Which processes are in memory has nothing to do with it: one that waits for a permit
    /// takes messages and signals as any other.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// What it may do; admin, until said otherwise.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// What it and all below it may use: these limits in place of those of its program, which stay
    /// where there is none here.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// The name that other processes, of every tree, can write to it by while it lives. No two
    /// living processes have one name; what is forked, copied or branched from it has none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    async fn run(self) -> Result<Process, KernelError> {
        if let Some(name) = self.name.as_ref().filter(|name| !is_process_name(name)) {
            return Err(NameError::Invalid(name.to_string()).into());
        }
        // Content of any size is indexed here, beside the runtime.
        let host_context = self.kernel.context.host_context.clone();
        let Self {
            kernel,
            program,
            input,
            lifetime,
            priority,
            access,
            budget,
            name,
        } = self;
        if budget.or(program.budget()).cost_nanos.is_some() {
            program.check_prices(&host_context.prices)?;
        }
        let named = program.clone();
        let start_context = environment::gather_start_context(&kernel.context, &program)
            .await
            .map_err(StartError::Unmet)?;
        let image = tokio::task::spawn_blocking(move || {
            let (preloads, input) = (&Preloads::default(), input.as_ref());
            let birth = Birth {
                access,
                depth: 0,
                lifetime,
                priority,
                preloads,
                input,
            };
            let mut image = born(&named, &host_context, birth, now_ms());
            image.budget.limits = budget.or(image.budget.limits);
            start_context
                .apply_to(&mut image, &named, &host_context)
                .map(|()| image)
        });
        let image = image
            .await
            .map_err(|_| KernelError::Closed)?
            .map_err(StartError::Unmet)?;
        kernel
            .create(program, Box::new(image), Origin::Started, name)
            .await
    }
}

impl IntoFuture for Start {
    type Output = Result<Process, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
