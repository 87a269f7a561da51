//! Compiled programs. A [`Program`] is a pointer to the shared library that contains it and all
//! programs that it links.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use dormouse_proto::budget::{Budget, Price};
use dormouse_proto::command::Command;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::effect::{EffectPolicy, RepeatRule};
use dormouse_proto::program::{
    BudgetSection, CacheTtl, ContextSection, Demo, DescriptorSection, EnvironmentChoice, Expansion,
    Limits, Provider, Span,
};
use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
use dormouse_proto::server::{CaFile, ServerValue};
use serde_json::{Map, Value};

use super::ask::{AskRule, AskedCall};
use super::bundle::Bundle;
use super::effects::EffectRules;
use super::finding::{Source, named_source};
use super::preload::Preload;
use super::result::ResultChoice;
use super::server_tools;
use super::servers::EnabledServer;
use super::tool_limits::LimitsOfTools;
use super::tools::EnabledTool;

/// The programs of one compilation. Links are positions in the list, which allows cycles.
pub(super) struct Library {
    pub(super) programs: Vec<CheckedProgram>,
    pub(super) bundle: Arc<Bundle>,
}

/// A checked program.
pub(super) struct CheckedProgram {
    pub(super) key: String,
    pub(super) name: String,
    /// The models in the order of fallback; at least one.
    pub(super) models: Vec<ModelChoice>,
    pub(super) system: String,
    pub(super) user: Option<String>,
    pub(super) parameters: Arc<Map<String, Value>>,
    pub(super) tools: Vec<EnabledTool>,
    pub(super) ask_rules: Vec<AskRule>,
    pub(super) ask_expires_ms: Option<u64>,
    pub(super) effects: EffectRules,
    pub(super) tool_limits: LimitsOfTools,
    /// What requests to the provider of the first model say about tools.
    pub(super) provider_tools: Arc<ProviderTools>,
    /// What requests to other providers say.
    pub(super) provider_tools_of_other_makers: Arc<ProviderTools>,
    pub(super) commands: Vec<Command>,
    pub(super) servers: Vec<EnabledServer>,
    /// `None` if the descriptor system is disabled.
    pub(super) descriptors: Option<DescriptorSection>,
    pub(super) preloads: Vec<Preload>,
    pub(super) environment: EnvironmentChoice,
    pub(super) links: Vec<ResolvedLink>,
    pub(super) result: ResultChoice,
    pub(super) limits: Limits,
    pub(super) context: ContextSection,
    pub(super) budget: BudgetSection,
    pub(super) prices: BTreeMap<String, Price>,
    pub(super) demo: Demo,
    /// Data that the processes of the program share, created on first use.
    pub(super) shared: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// A linked program, by its position in the library.
pub(super) struct ResolvedLink {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) position: usize,
}

/// A model and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// The model's name at its provider.
    pub name: String,
    /// The provider that serves it.
    pub provider: Provider,
    /// The number of replies after which a turn ends.
    pub max_iterations: u32,
    /// The script of a scripted model, by its name in the bundle. Every call of a scripted model
    /// without a script fails.
    pub script: Option<String>,
    /// The server that is called instead of the provider's own.
    pub base_url: Option<String>,
    /// The project of a cloud, instead of the one that the environment names.
    pub project_id: Option<String>,
    /// The region of a cloud, instead of the one that the environment names.
    pub region: Option<String>,
    /// The environment variable that holds the key, instead of the provider's own.
    pub api_key_env: Option<String>,
    /// Headers that every request to the server carries.
    pub headers: Vec<(String, ServerValue)>,
    /// The authorities that may have issued the server's certificate, in addition to those that
    /// every client trusts.
    pub ca_file: Option<CaFile>,
    /// The longest time for one reply, in milliseconds; `None` for the kernel's default.
    pub timeout_ms: Option<u64>,
    /// The longest time in which the server sends nothing, in milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// The most tokens in a minute of all calls at this server with this key.
    pub tokens_per_minute: Option<u64>,
    /// The cache lifetime that requests ask the provider for; `None` if they do not ask for
    /// caching.
    pub cache_ttl: Option<CacheTtl>,
    /// The number of successive failures after which the next model is called, if there is one.
    /// `None` for the kernel's maximum number of attempts.
    pub failures: Option<u32>,
}

impl ModelChoice {
    /// Whether this model and `other` are called at the same server with the same key.
    #[must_use]
    pub fn is_at_the_server_of(&self, other: &Self) -> bool {
        let Self {
            provider,
            base_url,
            api_key_env,
            ..
        } = self;
        (provider, base_url, api_key_env) == (&other.provider, &other.base_url, &other.api_key_env)
    }
}

/// The script of a scripted model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The name of its file in the bundle.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// A compiled program: immutable, checked, cheap to clone. Two are equal if they are the same
/// program of the same compilation.
#[derive(Clone)]
pub struct Program {
    library: Arc<Library>,
    position: usize,
}

impl Program {
    pub(super) fn entry_of(library: Library) -> Self {
        Self {
            library: Arc::new(library),
            position: 0,
        }
    }

    fn checked_program(&self) -> &CheckedProgram {
        &self.library.programs[self.position]
    }

    /// A value that all processes of the program share. `make` creates the value on the first call.
    /// A program caches only one value. If the cached value has another type than `T`, each call
    /// returns a new value.
    pub fn shared<T: Any + Send + Sync>(&self, make: impl Fn() -> Arc<T>) -> Arc<T> {
        let cached = self.checked_program().shared.get_or_init(|| make()).clone();
        cached.downcast().unwrap_or_else(|_| make())
    }

    fn program_at(&self, position: usize) -> Self {
        Self {
            library: Arc::clone(&self.library),
            position,
        }
    }

    /// The name in listings: its `display_name`, or the file name without extension.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.checked_program().name
    }

    /// The name of its file in the bundle, which identifies the program in [`Program::by_key`].
    #[must_use]
    pub fn key(&self) -> &str {
        &self.checked_program().key
    }

    /// The program with this key in the same compilation. Costs a pass over the programs of the
    /// library.
    #[must_use]
    pub fn by_key(&self, key: &str) -> Option<Self> {
        self.library
            .programs
            .iter()
            .position(|program| program.key == key)
            .map(|position| self.program_at(position))
    }

    /// The text of its file.
    pub(super) fn source(&self) -> Source {
        let file = self.library.bundle.file(self.key());
        let text = file.and_then(|bytes| str::from_utf8(bytes).ok());
        named_source(self.key(), text.unwrap_or_default())
    }

    /// Every program of the compilation.
    pub(super) fn all_programs(&self) -> impl Iterator<Item = Self> {
        (0..self.library.programs.len()).map(|position| self.program_at(position))
    }

    /// The primary model.
    #[must_use]
    pub fn model(&self) -> &ModelChoice {
        &self.models()[0]
    }

    /// The primary model and its fallbacks, in order. At least one.
    #[must_use]
    pub fn models(&self) -> &[ModelChoice] {
        &self.checked_program().models
    }

    /// The script of a scripted model that this program chose, if it has one.
    #[must_use]
    pub fn script<'a>(&'a self, model: &'a ModelChoice) -> Option<Script<'a>> {
        let name = model.script.as_deref()?;
        let text = str::from_utf8(self.library.bundle.file(name)?).ok()?;
        Some(Script { name, text })
    }

    /// The system prompt as written, with the text of `system_prompt_file` after it; may be empty.
    #[must_use]
    pub fn system(&self) -> &str {
        &self.checked_program().system
    }

    /// The first input, if the caller gives none.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.checked_program().user.as_deref()
    }

    /// `[parameters]` for the model's provider.
    #[must_use]
    pub fn parameters(&self) -> Arc<Map<String, Value>> {
        Arc::clone(&self.checked_program().parameters)
    }

    /// The tools, in the order written, each once; declared commands that are not listed come last.
    #[must_use]
    pub fn tools(&self) -> &[EnabledTool] {
        &self.checked_program().tools
    }

    /// The first rule of `tools.ask` that matches a call of the model; `None` if nobody is asked.
    #[must_use]
    pub fn ask_rule(&self, call: &AskedCall<'_>) -> Option<&AskRule> {
        let mut rules = self.checked_program().ask_rules.iter();
        rules.find(|rule| rule.matches(call))
    }

    /// The policy for calls that repeat an effect, for tools without a rule of their own.
    #[must_use]
    pub fn effect_policy(&self) -> Option<EffectPolicy> {
        self.checked_program().effects.policy
    }

    /// The most calls of a tool that the model of one process may make (`tools.limits`), by the name
    /// by which the model calls it (`called`), or the name by which the program refers to it. `None`
    /// if they are not limited.
    #[must_use]
    pub fn max_calls(&self, called: &str, name: &str) -> Option<u32> {
        self.checked_program().tool_limits.max_calls(called, name)
    }

    /// The rule of `tools.effects` for a tool: by the name by which the model calls it (`called`),
    /// or by which the program refers to it (`name`).
    #[must_use]
    pub fn repeat_rule(&self, called: &str, name: &str) -> Option<&RepeatRule> {
        self.checked_program().effects.rule(called, name)
    }

    /// The time after which a held call is refused, in milliseconds; `None` if it waits without
    /// limit.
    #[must_use]
    pub fn ask_expires_ms(&self) -> Option<u64> {
        self.checked_program().ask_expires_ms
    }

    /// What requests to this model say about tools in the syntax of its provider.
    #[must_use]
    pub fn provider_tools(&self, model: &ModelChoice) -> Arc<ProviderTools> {
        let program = self.checked_program();
        Arc::clone(
            match model.provider.maker() == self.model().provider.maker() {
                true => &program.provider_tools,
                false => &program.provider_tools_of_other_makers,
            },
        )
    }

    /// The form in which requests to this model present a tool of a tool server; `None` if it has
    /// the default form. `tool` is the name at the server, since the name for the model depends on
    /// what the servers offer.
    #[must_use]
    pub fn served_form(&self, model: &ModelChoice, server: &str, tool: &str) -> Option<ToolForm> {
        let mut servers = self.servers().iter();
        let enabled = servers.find(|enabled| *enabled.server.name == *server)?;
        let mut named = enabled.served.named().iter();
        let form = &named.find(|enabled| enabled.name == tool)?.form;
        match model.provider.maker() == self.model().provider.maker() {
            true => Some(form.clone()).filter(|form| *form != ToolForm::default()),
            false => server_tools::strict_only(form),
        }
    }

    /// The names of the tools that the provider of the first model runs. No other tool may have
    /// one.
    pub fn provider_tool_names(&self) -> impl Iterator<Item = &str> {
        let tables = self.checked_program().provider_tools.server.iter();
        tables.filter_map(server_tools::provider_tool_name)
    }

    /// The declared commands, in the order written.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        &self.checked_program().commands
    }

    /// The tool servers that are used, with the selected tools, in the order written.
    #[must_use]
    pub fn servers(&self) -> &[EnabledServer] {
        &self.checked_program().servers
    }

    /// The settings of the descriptor system; `None` if it is disabled.
    #[must_use]
    pub fn descriptors(&self) -> Option<&DescriptorSettings> {
        self.descriptor_section().map(|section| &section.settings)
    }

    /// Whether the program asks for references (`enable_references`).
    #[must_use]
    pub fn references(&self) -> bool {
        self.descriptor_section()
            .is_some_and(|section| section.references)
    }

    /// What happens when a conversation fills the context of the model.
    #[must_use]
    pub fn context(&self) -> ContextSection {
        self.checked_program().context
    }

    /// Whether every message is a descriptor (`reference_messages`).
    #[must_use]
    pub fn message_references(&self) -> bool {
        self.descriptor_section()
            .is_some_and(|section| section.message_references)
    }

    /// Whether messages carry a number (`[msg:3]`): if messages are descriptors, or if `goto` is
    /// enabled.
    #[must_use]
    pub fn numbers_messages(&self) -> bool {
        self.message_references() || self.tools().iter().any(|tool| tool.name == "goto")
    }

    /// Whether a handle such as `{{fd:3}}` in the arguments of this tool is replaced by its content
    /// (`expand_fds`).
    #[must_use]
    pub fn expands(&self, tool: &str) -> bool {
        match self.expansion() {
            Expansion::Off => false,
            Expansion::All => true,
            Expansion::Tools(names) => names.iter().any(|name| name.value == tool),
        }
    }

    /// Whether handles are expanded in the arguments of any tool.
    #[must_use]
    pub fn expands_any(&self) -> bool {
        *self.expansion() != Expansion::Off
    }

    fn expansion(&self) -> &Expansion {
        let section = self.descriptor_section();
        section.map_or(&Expansion::Off, |section| &section.expansion)
    }

    fn descriptor_section(&self) -> Option<&DescriptorSection> {
        self.checked_program().descriptors.as_ref()
    }

    /// The model that summarizes descriptors and compacted messages: by default the primary model;
    /// a program can name another one of the same provider.
    #[must_use]
    pub fn summary_model(&self) -> &str {
        self.descriptor_section()
            .and_then(|section| section.summary_model.as_deref())
            .unwrap_or(&self.model().name)
    }

    /// The preloaded files, in the order written.
    #[must_use]
    pub fn preloads(&self) -> &[Preload] {
        &self.checked_program().preloads
    }

    /// The facts about the host's environment (`[env_info]`) that a process gets at its start.
    #[must_use]
    pub fn environment(&self) -> &EnvironmentChoice {
        &self.checked_program().environment
    }

    /// The linked programs in the order written: name, description, program.
    pub fn linked(&self) -> impl Iterator<Item = (&str, &str, Self)> {
        self.checked_program().links.iter().map(|link| {
            (
                &*link.name,
                &*link.description,
                self.program_at(link.position),
            )
        })
    }

    /// The linked program with this name.
    #[must_use]
    pub fn linked_program(&self, name: &str) -> Option<Self> {
        self.checked_program()
            .links
            .iter()
            .find(|link| link.name == name)
            .map(|link| self.program_at(link.position))
    }

    /// The typed result that the program asks for.
    #[must_use]
    pub fn result(&self) -> &ResultChoice {
        &self.checked_program().result
    }

    /// The limits on child processes and commands.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.checked_program().limits
    }

    /// The limits of `[budget]`, for a process and all processes below it.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.checked_program().budget.limits
    }

    /// `[budget]`: the limits, and what happens when one is reached.
    #[must_use]
    pub fn budget_section(&self) -> &BudgetSection {
        &self.checked_program().budget
    }

    /// The location of the cost limit in the program file, if there is one.
    pub(super) fn cost_at(&self) -> Option<Span> {
        self.checked_program().budget.cost_at.clone()
    }

    /// The prices in `[prices]`.
    pub(super) fn prices(&self) -> &BTreeMap<String, Price> {
        &self.checked_program().prices
    }

    /// The entry of the compilation, from which the others were linked.
    pub(super) fn entry(&self) -> Self {
        self.program_at(0)
    }

    /// The inputs of `[demo]`.
    #[must_use]
    pub fn demo(&self) -> &Demo {
        &self.checked_program().demo
    }

    /// Every file of the compilation.
    #[must_use]
    pub fn bundle(&self) -> Arc<Bundle> {
        Arc::clone(&self.library.bundle)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.library, &other.library) && self.position == other.position
    }
}

impl Eq for Program {}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name())
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
