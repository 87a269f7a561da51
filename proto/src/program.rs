//! Parses program files: TOML, with the span of every value.
//!
//! [`parse`] turns the text of a program file into a [`ProgramFile`] and reports all of its
//! mistakes, not only the first. It checks what the file alone can show: keys, types, ranges. It
//! never reads another file. `kernel/program/`, the compiler, makes all other checks.
//!
//! * A text of more than [`MAX_FILE_BYTES`] or nested deeper than [`MAX_NESTING`] is refused before
//!   it is parsed.
//! * A table is a struct, and its keys are the fields. `#[derive(Section)]` generates the parser,
//!   the defaults, the JSON Schema ([`schema`]) and the reference in `docs/program-reference.md`.
//!   `macros/src/lib.rs` lists the options of `#[section]` and `#[key]`.
//! * A `Reader` reads one table, and reports its mistakes. A type of values implements `Value`,
//!   whose `read` gets the `Reader` of the table, the key, the TOML value with its span (`Node`)
//!   and the options of the key (`Rules`). An enum of words derives `Keyword`.
//! * An unknown key is an error that suggests the nearest known key. A key that only
//!   llmproc knows, whose program files this format extends, is a warning, so that they load.
//!
//! ```
//! use dormouse_proto::program::parse;
//!
//! let parsed = parse("[model]\nprovider = \"scripted\"\n[tools]\nenabled = [\"read_fd\"]\n");
//! assert!(parsed.diagnostics.is_empty());
//! assert_eq!(parsed.file.tools.enabled[0].name.value, "read_fd");
//! ```

mod amount;
mod ask;
mod base_url;
mod budget;
mod builder;
mod command;
mod command_line;
mod context;
mod demo;
mod descriptors;
mod diagnostic;
mod effects;
mod environment;
mod keyword;
mod limits;
mod links;
mod mcp;
mod mcp_file;
mod model;
mod money;
mod nearest;
mod nesting;
mod parameters;
mod placeholder;
mod placement;
mod preload;
mod prompt;
mod reader;
mod result;
mod schema;
mod section;
mod tools;
mod value;

use std::ops::Range;

use serde_json::{Map, Value as Json};
use toml::de::DeTable;

pub(crate) use self::amount::{Duration, MAX_LONG_DURATION_MS, Size};
pub use self::amount::{ParseAmountError, parse_bytes, parse_duration_ms};
pub use self::ask::{AskCondition, AskEntry, ExactValue};
pub use self::base_url::{BaseUrlError, check_base_url};
pub use self::budget::{BudgetSection, RaiseSection};
pub use self::builder::ProgramBuilder;
pub use self::command::CommandSection;
pub(crate) use self::command::{Scalar, Scalars};
pub use self::context::{ContextSection, SummaryMethod};
pub use self::demo::Demo;
pub use self::descriptors::{DescriptorSection, Expansion};
pub use self::diagnostic::{Diagnostic, Diagnostics, Label, Severity};
pub use self::effects::{EffectsSection, ToolEffects};
pub use self::environment::{EnvCommand, EnvVar, EnvironmentChoice, Variable};
pub(crate) use self::keyword::{Keyword, Word};
pub use self::limits::{ForkRelease, Limits};
pub use self::links::Link;
pub use self::mcp::{McpSection, SelectedMcpTools, ServerSelection};
pub use self::mcp_file::{DeclaredServers, ServersFileError, UnsupportedServer, parse_servers};
pub use self::model::{CacheTtl, FallbackSection, ModelEntry, ModelSection, Provider};
pub use self::money::parse_money;
pub(crate) use self::money::{CallPrices, MAX_NANOS, Money};
pub use self::nearest::{advice, nearest, suggestion};
pub use self::placeholder::{Placeholder, is_parameter_name, placeholders};
pub use self::placement::PlacementSection;
pub use self::preload::{LineRange, PreloadFile, PreloadSection, RelativeTo};
pub use self::prompt::PromptSection;
pub(crate) use self::reader::{Node, Reader};
pub use self::result::{ResultSection, SchemaSource};
pub(crate) use self::schema::TableSchema;
pub use self::schema::schema;
pub(crate) use self::section::{Key, Rules, Section};
pub use self::tools::{ServerTool, ToolEntry, ToolLimits, ToolsSection};
pub(crate) use self::value::Value;
use crate::budget::Price;
pub use crate::text::{listed, shorten};

/// The largest program file, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// The maximum nesting of arrays and inline tables.
pub const MAX_NESTING: usize = 32;

/// The most models that one program may price.
const MAX_PRICES: usize = 256;

/// A range of bytes in a text.
pub type Span = Range<usize>;

/// A value of a program file with its span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithSpan<T> {
    /// The value.
    pub value: T,
    /// The span.
    pub span: Span,
}

impl<T> WithSpan<T> {
    /// An error with this span.
    #[must_use]
    pub fn error(&self, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.span.clone(), message, label)
    }
}

/// An entry of a table whose keys are names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named<T> {
    /// The key.
    pub name: WithSpan<String>,
    /// Its value.
    pub value: T,
}

/// A program file as it is written, aliases resolved and defaults filled in.
#[derive(Clone, Debug, Section)]
#[section(check = ProgramFile::check_model)]
pub struct ProgramFile {
    /// The tools that the model may call.
    pub tools: ToolsSection,
    /// The model that answers. Every program has this table.
    pub model: ModelSection,
    /// The texts that a model is given first.
    pub prompt: PromptSection,
    /// Parameters of the model's provider, such as `max_tokens` or `temperature`: whatever the
    /// table holds is passed on as JSON.
    pub parameters: Map<String, Json>,
    /// Tool servers of the Model Context Protocol. `[tools.mcp]` says which of their tools are
    /// used.
    pub mcp: McpSection,
    /// How large content is kept away from the model's context. The descriptor system is on where
    /// `[tools]` enables a descriptor tool, such as `read_fd`.
    pub file_descriptor: Option<DescriptorSection>,
    /// What happens when the conversation fills the context of the model: its older messages move
    /// into a descriptor, and a summary takes their place.
    pub context: ContextSection,
    /// Files that the model is given from the start.
    pub preload: PreloadSection,
    /// What a process is told about the machine, once, when it starts.
    #[key(name = "env_info")]
    pub environment: EnvironmentChoice,
    /// The programs that the tool `spawn` may start, by name. Each is a path, or a table.
    #[key(name = "linked_programs", max_items = 256)]
    pub linked: Vec<Named<Link>>,
    /// The typed result with which a process ends. Without a schema it ends with a text.
    pub result: ResultSection,
    /// The inputs that a demonstration of the program sends.
    pub demo: Demo,
    /// How many children a process may have, and what its commands may use of the machine.
    pub limits: Limits,
    /// What a process and all processes below it may use. A key that is not given sets no limit.
    pub budget: BudgetSection,
    /// What models cost, by the name of the model at its provider.
    #[key(max_items = MAX_PRICES)]
    pub prices: Vec<Named<Price>>,
    /// Which nodes may run the process.
    pub placement: PlacementSection,
}

/// The result of parsing a program file. The file is valid only if no diagnostic is an error;
/// otherwise it contains what could be parsed, so that later checks can add their diagnostics.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The file.
    pub file: ProgramFile,
    /// The errors and warnings.
    pub diagnostics: Diagnostics,
    /// Whether the text is TOML. If not, the file is empty, and later checks would only report
    /// consequences.
    pub is_toml: bool,
}

/// Parses a program file. Costs one pass over the text; a text that is too large is not parsed.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    let mut diagnostics = Diagnostics::default();
    let file = parse_section::<ProgramFile>(text, &mut diagnostics);
    Parsed {
        is_toml: file.is_some(),
        file: file.unwrap_or_default(),
        diagnostics,
    }
}

/// Parses a price file, which contains the table `[prices]` of a program file and nothing else.
/// Costs one pass over the text.
///
/// # Errors
/// All mistakes in it.
pub fn parse_prices(text: &str) -> Result<Vec<Named<Price>>, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    match parse_section::<PriceFile>(text, &mut diagnostics) {
        Some(file) if !diagnostics.has_errors() => Ok(file.prices),
        _ => Err(diagnostics),
    }
}

/// The file that contains only prices.
#[derive(Section)]
struct PriceFile {
    /// What models cost, by the name of the model at its provider.
    #[key(max_items = MAX_PRICES)]
    prices: Vec<Named<Price>>,
}

/// Reads a text as the section `S`; `None` if it is not TOML.
fn parse_section<S: Section>(text: &str, diagnostics: &mut Diagnostics) -> Option<S> {
    if let Some(refused) = too_large(text.len()).or_else(|| nesting::check_nesting(text)) {
        diagnostics.push(refused);
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let message = format!("not valid TOML: {}", error.message());
        diagnostics.push(Diagnostic::error(span, message, "here"));
    }
    if !errors.is_empty() {
        return None;
    }
    let mut root = Reader::root(document.get_ref(), document.span(), diagnostics);
    let read = S::read(&mut root);
    root.finish();
    read
}

/// The diagnostic for a file of `len_bytes` bytes, if that is too large; for callers that hold
/// bytes rather than text.
#[must_use]
pub fn too_large(len_bytes: usize) -> Option<Diagnostic> {
    (len_bytes > MAX_FILE_BYTES).then(|| {
        Diagnostic::general(format!(
            "the program file holds {len_bytes} bytes; a program may hold {MAX_FILE_BYTES}"
        ))
        .help("move long texts into files of their own: system_prompt_file, [preload] files")
    })
}

impl ProgramFile {
    /// Reports a file without `[model]`.
    fn check_model(self, table: &mut Reader<'_>) -> Option<Self> {
        if table.span_of("model").is_none() {
            let start = table.span().start;
            let words: Vec<_> = Provider::words().collect();
            let words = words.join(", ");
            let missing = "`[model]` is missing";
            let missing = Diagnostic::error(start..start, missing, "a program needs a model");
            table.report(missing.help(format!(
                "add [model] with `name` and `provider`; providers: {words}"
            )));
        }
        Some(self)
    }
}
