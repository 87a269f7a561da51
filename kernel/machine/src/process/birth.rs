//! Builds the initial image (the stored state) of a new process. The system prompt and the tools
//! are composed here once; after the first request, neither changes (HIST-1).
//!
//! `program_cache.rs` keeps what all processes of a program share, `preload.rs` decides how a
//! preloaded file is shown, and `mcp_tools.rs` adds the tools of tool servers later.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_proto::budget::{Budget, Ledger, Pausing};
use dormouse_proto::id::FdId;
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::process::Priority;
use dormouse_proto::record::{
    Control, EffectLog, Entry, Lifetime, OutputTotals, Phase, ResultProgress, Speculation,
};
use dormouse_proto::tool::Access;
use dormouse_proto::user_input::UserInput;
use imbl::Vector;

use super::environment::{GatheredEnvironment, add_environment};
use super::preload::LimitedFile;
use super::program_cache::ProgramCache;
use super::toolbox::{HostContext, Toolbox};
use super::{Image, Preloads};
use crate::budget::DEFAULT_PROCESSES;
use crate::table::Table;
use crate::table::placement::{Placement, Placer};
use dormouse_program::Program;

/// Budget of a root process (one without a parent) for the amounts that its program does not limit.
const DEFAULT_ROOT_BUDGET: Budget = Budget {
    input_tokens: None,
    output_tokens: None,
    cost_nanos: None,
    wall_time_ms: None,
    processes: Some(DEFAULT_PROCESSES),
    depth: None,
    resident_bytes: None,
};

/// The parameters of a new process in addition to its program.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    /// Access level of the process.
    pub access: Access,
    /// Number of ancestors; 0 for a root.
    pub depth: u32,
    /// Whether the process ends with its turn or waits for more input.
    pub lifetime: Lifetime,
    /// Priority of its model calls.
    pub priority: Priority,
    /// Preloads in addition to those of the program.
    pub preloads: &'a Preloads,
    /// Initial input. An input without parts counts as none.
    pub input: Option<&'a UserInput>,
}

/// Builds the image of a new process. O(preloads + input). The budget of the image is the budget of
/// the program, as for a root process; a parent replaces it by a share of its own budget.
///
/// If [`EnvironmentChoice::needs_gathering`](dormouse_program::EnvironmentChoice::needs_gathering),
/// the image is incomplete until [`add_environment`] adds the gathered values.
#[must_use]
pub fn initial_image(
    program: &Program,
    host: &HostContext,
    birth: Birth<'_>,
    now_ms: u64,
) -> Image {
    let cache = ProgramCache::for_program(program, host);
    let mut table = Table::default();
    // A program without descriptors has no tool that could read a preloaded descriptor.
    for (id, entry) in birth
        .preloads
        .descriptors
        .iter()
        .filter(|_| program.descriptors().is_some())
    {
        table.insert(id.clone(), entry.clone());
    }
    let mut held_bytes = birth.preloads.new_bytes;
    // The files of the program follow what a parent gives under ids of its own.
    let program_preloads = cache.preloads(program).iter().map(|file| {
        let descriptor = file.entry(now_ms).map(|entry| (table.next_id(), entry));
        if let Some((id, entry)) = &descriptor {
            held_bytes += entry.content.len_bytes();
            table.insert(id.clone(), entry.clone());
        }
        (file, descriptor)
    });
    let program_preloads: Vec<_> = program_preloads.collect();
    let input = birth
        .input
        .filter(|user_input| !user_input.parts.is_empty());
    let mailbox = input.map(|user_input| {
        let parts = Placer::unlimited(program.descriptors(), now_ms).user_input(user_input);
        let blocks = parts.into_iter().map(|part| match part {
            Placement::Context { answer, .. } => Block::text(answer.text),
            Placement::Descriptor(new) => {
                let id = table.next_id();
                let answer = new.answer(&id);
                held_bytes += new.entry.content.len_bytes();
                table.insert(id, new.entry);
                Block::text(answer.text)
            }
        });
        Mail {
            from: Sender::Host,
            message: Arc::new(Message {
                role: Role::User,
                blocks: blocks.collect(),
            }),
        }
    });
    let mut image = Image {
        bundle: cache.bundle.clone(),
        program: program.key().into(),
        system: cache.system_prompt(birth.preloads, || {
            let preloads = preload_elements(&program_preloads, birth.preloads);
            system_prompt(program, host, &cache.toolbox, &preloads)
        }),
        tools: cache.toolbox.specs(),
        external: cache.toolbox.external_tools(),
        access: birth.access,
        depth: birth.depth,
        lifetime: birth.lifetime,
        priority: birth.priority,
        messages: Vector::new(),
        forked_at: Vec::new(),
        mailbox: mailbox.into_iter().collect(),
        receipts: Vec::new(),
        background: Vec::new(),
        reopenings: 0,
        reopened_children: Vec::new(),
        next_fd: table.next_fd(),
        last_history: table.last_history(),
        table: table.entries(),
        epoch: 0,
        next_seq: 0,
        model: 0,
        iterations: 0,
        phase: Phase::Idle,
        control: Control::Running,
        usage: Usage::default(),
        budget: Ledger {
            limits: program.budget().or(DEFAULT_ROOT_BUDGET),
            began_ms: now_ms,
            held_bytes,
            ..Ledger::default()
        },
        output_totals: OutputTotals::default(),
        restores: 0,
        compacted: Vector::new(),
        request_tokens: 0,
        result: ResultProgress::default(),
        alarms: Vec::new(),
        alarms_set: 0,
        effects: EffectLog::new(),
        pausing: Pausing::default(),
        speculation: Speculation::None,
        limited_calls: Vec::new(),
    };
    if !program.environment().needs_gathering() {
        add_environment(
            &mut image,
            program,
            host,
            &GatheredEnvironment::default(),
            now_ms,
        );
    }
    image
}

/// The system prompt: the text of the program, the preloads, then the instructions on descriptors.
fn system_prompt(
    program: &Program,
    host: &HostContext,
    toolbox: &Toolbox,
    preloads: &[String],
) -> String {
    let mut parts = vec![program.system().to_owned()];
    if !preloads.is_empty() {
        parts.push(format!("<preload>\n{}\n</preload>", preloads.join("\n")));
    }
    if program.descriptors().is_some() {
        let instructions = host.kernel_tools.instructions;
        let (tools, aliases) = (toolbox.kernel_tool_names(), toolbox.aliases());
        parts.push(instructions(program, &tools, &aliases));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// A file of the program, and the descriptor of the process that holds it, if only a preview is
/// shown.
type ProgramPreload<'a> = (&'a LimitedFile, Option<(FdId, Entry<Content>)>);

/// Each preload as an XML element: those of the program, then those of this process.
fn preload_elements(
    program_preloads: &[ProgramPreload<'_>],
    own_preloads: &Preloads,
) -> Vec<String> {
    let program_preloads = program_preloads.iter().map(|(file, descriptor)| {
        let shown = file.show(descriptor.as_ref());
        shown.expect("a content in memory can be read")
    });
    program_preloads
        .chain(own_preloads.shown.iter().cloned())
        .map(|preload| preload.xml().to_owned())
        .collect()
}
