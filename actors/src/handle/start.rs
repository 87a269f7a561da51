//! Starting a process.

use std::future::IntoFuture;

use dormouse_kernel::process::{Birth, Preloads, born, tell_environment};
use dormouse_kernel::program::Program;
use dormouse_proto::budget::Budget;
use dormouse_proto::process::Origin;
use dormouse_proto::record::Lifetime;
use dormouse_proto::spoken::Spoken;
use dormouse_proto::tool::Access;
use futures_util::future::BoxFuture;

use super::kernel::Kernel;
use super::process::Process;
use crate::clock::now_ms;
use crate::environment;
use crate::error::KernelError;

/// A process about to start: `.await` starts it.
#[derive(Debug)]
#[must_use = "a process starts when this is awaited"]
pub struct Start {
    kernel: Kernel,
    program: Program,
    input: Option<Spoken>,
    lifetime: Lifetime,
    access: Access,
    budget: Budget,
}

impl Start {
    pub(super) fn new(kernel: Kernel, program: Program) -> Self {
        let input = program.user().map(Spoken::from);
        Self { kernel, program, input, lifetime: Lifetime::Task, access: Access::Admin, budget: Budget::default() }
    }

    /// What is said to it first, in place of the `user` prompt of its program: a text, or several parts in order.
    pub fn input(mut self, spoken: impl Into<Spoken>) -> Self {
        self.input = Some(spoken.into());
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

    /// What it may do; admin, until said otherwise.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// What it and all below it may use: these limits in place of those of its program, which stay where there is none here.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    async fn run(self) -> Result<Process, KernelError> {
        // Content of any size is indexed here, beside the runtime.
        let around = self.kernel.world.around.clone();
        let Self { kernel, program, input, lifetime, access, budget } = self;
        if budget.or(program.budget()).cost_nanos.is_some() {
            program.check_prices(&around.prices)?;
        }
        let named = program.clone();
        let found = match program.environment().is_gathered() {
            true => Some(environment::gather(&kernel.world, &program).await),
            false => None,
        };
        let image = tokio::task::spawn_blocking(move || {
            let birth = Birth { access, depth: 0, lifetime, preloads: &Preloads::default(), input: input.as_ref() };
            let mut image = born(&named, &around, birth, now_ms());
            image.budget.limits = budget.or(image.budget.limits);
            if let Some(found) = found {
                tell_environment(&mut image, &named, &around, &found, now_ms());
            }
            image
        });
        let image = image.await.map_err(|_| KernelError::Closed)?;
        kernel.seat(program, Box::new(image), Origin::Started).await
    }
}

impl IntoFuture for Start {
    type Output = Result<Process, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
