//! The builder that starts a process: its input, priority, access, budget and name.

use std::future::IntoFuture;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use dormouse_kernel::process::{Birth, Preloads, initial_image};
use dormouse_kernel::program::Program;
use dormouse_proto::alarm::MissedPolicy;
use dormouse_proto::budget::Budget;
use dormouse_proto::label::{Label, labels_of_tree};
use dormouse_proto::mail::is_process_name;
use dormouse_proto::process::{Origin, Priority};
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::Access;
use dormouse_proto::user_input::UserInput;
use futures_util::future::BoxFuture;

use super::alarms::FirstAlarm;
use super::kernel::Kernel;
use super::process::Process;
use crate::clock::now_ms;
use crate::environment;
use crate::error::{KernelError, NameError, StartError};
use crate::ports::{OffersTo, ServerClient};
use crate::supervisor::NewRoot;

/// The MCP client that a process serves. Its tool servers learn its capabilities, and may send it
/// requests.
struct DownstreamClient(Weak<dyn ServerClient>);

impl std::fmt::Debug for DownstreamClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DownstreamClient")
    }
}

/// A process to be started: `.await` starts it.
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
    labels: Vec<(String, String)>,
    client: Option<DownstreamClient>,
    alarm: Option<FirstAlarm>,
    missed: MissedPolicy,
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
            labels: Vec::new(),
            client: None,
            alarm: None,
            missed: MissedPolicy::default(),
        }
    }

    /// The first input, in place of the `user` prompt of the program: a text, or several parts in
    /// order.
    pub fn input(mut self, user_input: impl Into<UserInput>) -> Self {
        self.input = Some(user_input.into());
        self
    }

    /// No first input, not even the `user` prompt of the program: the process waits.
    pub fn without_input(mut self) -> Self {
        self.input = None;
        self
    }

    /// The process waits for further input after each turn, instead of ending with its first turn.
    pub fn session(mut self) -> Self {
        self.lifetime = Lifetime::Session;
        self
    }

    /// The process is created asleep, and gets its input at this time: as the note of an alarm, at
    /// most 8,000 characters. A time that is over is due at once. Until then the process takes no
    /// memory but a row in the process table.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.alarm = Some(FirstAlarm::At(time));
        self
    }

    /// The process is a [session](Self::session) that is created asleep, and gets its input at each
    /// time of a cron expression of five fields, until the alarm is cancelled; as with
    /// [`at`](Self::at). `zone` is an IANA name, such as `Europe/Berlin` or `UTC`.
    pub fn every(mut self, cron: impl Into<String>, zone: impl Into<String>) -> Self {
        self.alarm = Some(FirstAlarm::Every(cron.into(), zone.into()));
        self.session()
    }

    /// What happens to times of [`at`](Self::at) and [`every`](Self::every) that pass while nothing
    /// can run: by default one message reports them.
    pub fn missed(mut self, missed: MissedPolicy) -> Self {
        self.missed = missed;
        self
    }

    /// The priority of its model calls among those that wait for the same provider; normal by
    /// default. It is kept for the life of the process, across restarts, and inherited by its
    /// descendants. It does not affect which processes are loaded, and a process that waits for a
    /// permit receives messages and signals as usual.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The access of the process, which decides which tools it may call; admin by default.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Limits for the process and its descendants. They override those of the program; limits that
    /// are not set here stay as the program says.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// The name by which processes of every tree can write to this one while it lives. No two
    /// living processes have the same name; forks, copies and branches have none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A label of the tree, such as `user` and `anna`; may be given several times, with different
    /// keys. All trees with a label share its budget
    /// ([`Kernel::set_label_budget`](super::Kernel::set_label_budget)). Children, copies and branches
    /// have the labels of their tree; an import has none.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// The client that the process serves, as the tool servers of its program see it: they learn
    /// its capabilities, and send it requests and notifications while it exists.
    pub fn serve_client(mut self, client: Weak<dyn ServerClient>) -> Self {
        self.client = Some(DownstreamClient(client));
        self
    }

    async fn run(self) -> Result<Process, KernelError> {
        if let Some(name) = self.name.as_ref().filter(|name| !is_process_name(name)) {
            return Err(NameError::Invalid(name.to_string()).into());
        }
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| Label::new(key, value));
        let labels = labels_of_tree(labels.collect::<Result<_, _>>()?)?;
        // Contents of any size are indexed here, so this runs on a blocking thread.
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
            labels: _,
            client,
            alarm,
            missed,
        } = self;
        if budget.or(program.budget()).cost_nanos.is_some() {
            program.check_prices(&host_context.prices)?;
        }
        // Commands and servers are asked now.
        kernel.context.check_may_act()?;
        let image_program = program.clone();
        let offers_to = client.as_ref().map_or(OffersTo::AnyTree, |client| {
            OffersTo::NewTree(client.0.clone())
        });
        let start_context = environment::gather_start_context(&kernel.context, &program, offers_to)
            .await
            .map_err(StartError::from)?;
        let image = tokio::task::spawn_blocking(move || {
            let preloads = &Preloads::default();
            let input = input.as_ref();
            let first_input = input.filter(|_| alarm.is_none());
            let birth = Birth {
                access,
                depth: 0,
                lifetime,
                priority,
                preloads,
                input: first_input,
            };
            let mut image = initial_image(&image_program, &host_context, birth, now_ms());
            image.budget.limits = budget.or(image.budget.limits);
            if let Some(alarm) = alarm {
                alarm.set_in(&mut image, input, missed)?;
            }
            start_context
                .apply_to(&mut image, &image_program, &host_context)
                .map_err(StartError::from)
                .map(|()| image)
        });
        let image = image.await??;
        let root = NewRoot {
            program,
            image: Box::new(image),
            origin: Origin::Started,
            name,
            labels,
            client: client.map(|DownstreamClient(client)| client),
        };
        kernel.create(root).await
    }
}

impl IntoFuture for Start {
    type Output = Result<Process, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
