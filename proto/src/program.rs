//! Programs as they are written: TOML, read with the place of every value.
//!
//! [`parse`] turns the text of a program file into a [`ProgramFile`] and says everything that is
//! wrong with the text: not the first thing only. It checks what can be seen in the file alone:
//! keys, types, ranges. It never reads another file and knows no tools but the built-in ones; that
//! is left to `dormouse_kernel::program`, which compiles.
//!
//! * A text of more than [`MAX_FILE_BYTES`] or nested deeper than [`MAX_NESTING`] is refused before
//!   it is parsed.
//! * A key that means nothing is an error, with the nearest one that does. What the reference
//!   implementation knows and this version does not is a warning, so that its programs load.
//!
//! ```
//! use dormouse_proto::program::parse;
//!
//! let parsed = parse("[model]\nname = \"m\"\nprovider = \"scripted\"\n\n[tools]\nenabled = [\"read_fd\"]\n");
//! assert!(parsed.remarks.is_empty());
//! assert_eq!(parsed.file.tools[0].name.value, "read_fd");
//! ```

mod amount;
mod budget;
mod builder;
mod command;
mod descriptors;
mod environment;
mod mcp;
mod mcp_file;
mod model;
mod nesting;
mod parameters;
mod placeholder;
mod prompt;
mod reader;
mod remark;
mod surroundings;
mod tools;
mod words;

use std::ops::Range;

use toml::de::DeTable;

pub use self::amount::{ParseAmountError, parse_bytes, parse_duration_ms};
pub use self::budget::{BudgetSection, PriceEntry};
pub use self::builder::ProgramBuilder;
pub use self::command::{CommandSection, ParameterSection};
pub use self::descriptors::{DescriptorSection, Expansion};
pub use self::environment::{EnvCommand, EnvVar, EnvironmentChoice, Variable};
pub use self::mcp::{McpSection, ServerSelection, ServerTools};
pub use self::mcp_file::parse_servers;
pub use self::model::{FallbackSection, ModelEntry, ModelSection, Provider};
pub use self::placeholder::{Placeholder, is_parameter_name, placeholders};
pub use self::prompt::PromptSection;
use self::reader::Reader;
pub use self::reader::advice;
pub use self::remark::{Label, Remark, Remarks, Severity, nearest, shorten};
pub use self::surroundings::{
    DemoSection, ForkRelease, LimitsSection, Link, PreloadSection, RelativeTo,
};
use self::tools::ToolsSection;
pub use self::tools::{DescribedParameter, ToolEntry};

/// The largest program file, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// How deep arrays and inline tables may stand in each other.
pub const MAX_NESTING: usize = 32;

/// A place in a text: bytes from, up to.
pub type Span = Range<usize>;

/// A value and the place where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

/// A program file as it is written, aliases resolved and defaults filled in.
#[derive(Clone, Debug, Default)]
pub struct ProgramFile {
    /// `[model]`.
    pub model: ModelSection,
    /// `[prompt]`.
    pub prompt: PromptSection,
    /// `[parameters]`, for the model's provider: whatever it holds.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// `[tools] enabled`, in the order written.
    pub tools: Vec<ToolEntry>,
    /// `[[tools.command]]`, in the order written.
    pub commands: Vec<CommandSection>,
    /// `[tools.mcp]`, in the order written.
    pub served: Vec<ServerTools>,
    /// `[mcp]`.
    pub mcp: McpSection,
    /// `[file_descriptor]`, if it is there.
    pub file_descriptor: Option<DescriptorSection>,
    /// `[preload]`.
    pub preload: PreloadSection,
    /// `[env_info]`.
    pub environment: EnvironmentChoice,
    /// `[linked_programs]`, in the order written.
    pub linked: Vec<Link>,
    /// `[demo]`.
    pub demo: DemoSection,
    /// `[limits]`.
    pub limits: LimitsSection,
    /// `[budget]`.
    pub budget: BudgetSection,
    /// `[prices]`, in the order written.
    pub prices: Vec<PriceEntry>,
}

/// What came of reading a program file. The file is only good if no remark is an error; otherwise
/// it holds what could be read, so that further checks can add their remarks.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The file.
    pub file: ProgramFile,
    /// What is wrong or odd.
    pub remarks: Remarks,
    /// Whether the text is TOML at all. If not, the file is empty, and further checks would only
    /// confuse.
    pub is_toml: bool,
}

/// Reads a program file. Costs one pass over the text; a text that is too large is not looked at.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    let mut remarks = Remarks::default();
    let file = read_document(text, &mut remarks, read);
    Parsed {
        is_toml: file.is_some(),
        file: file.unwrap_or_default(),
        remarks,
    }
}

/// Reads a table of prices: a file that holds `[prices]`, as a program may, and nothing else. Costs
/// one pass over the text.
///
/// # Errors
/// What is wrong with it.
pub fn parse_prices(text: &str) -> Result<Vec<PriceEntry>, Remarks> {
    let mut remarks = Remarks::default();
    let prices = read_document(text, &mut remarks, |mut root| {
        let prices = budget::read_prices(&mut root);
        root.finish();
        prices
    });
    match prices {
        Some(prices) if !remarks.has_errors() => Ok(prices),
        _ => Err(remarks),
    }
}

/// What `read` makes of a text that is TOML, none where it is not.
fn read_document<T>(
    text: &str,
    remarks: &mut Remarks,
    read: impl FnOnce(Reader<'_>) -> T,
) -> Option<T> {
    if let Some(remark) = too_large(text.len()).or_else(|| nesting::too_deep(text)) {
        remarks.push(remark);
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        remarks.push(Remark::error(
            span,
            format!("not valid TOML: {}", error.message()),
            "here",
        ));
    }
    errors
        .is_empty()
        .then(|| read(Reader::root(document.get_ref(), document.span(), remarks)))
}

/// The remark about a file of so many bytes, if it is too large: for callers that hold bytes rather
/// than text.
#[must_use]
pub fn too_large(len_bytes: usize) -> Option<Remark> {
    (len_bytes > MAX_FILE_BYTES).then(|| {
        Remark::general(format!(
            "the program file holds {len_bytes} bytes; a program may hold {MAX_FILE_BYTES}"
        ))
        .help("move long texts into files of their own: system_prompt_file, [preload] files")
    })
}

fn read(mut root: Reader<'_>) -> ProgramFile {
    let ToolsSection {
        enabled: tools,
        commands,
        served,
    } = tools::read(&mut root);
    let file = ProgramFile {
        model: model::read(&mut root),
        prompt: prompt::read(&mut root),
        parameters: parameters::read(&mut root),
        tools,
        commands,
        served,
        mcp: mcp::read(&mut root),
        file_descriptor: descriptors::read(&mut root),
        preload: surroundings::read_preload(&mut root),
        environment: environment::read(&mut root),
        linked: surroundings::read_links(&mut root),
        demo: surroundings::read_demo(&mut root),
        limits: surroundings::read_limits(&mut root),
        budget: budget::read_budget(&mut root),
        prices: budget::read_prices(&mut root),
    };
    root.finish();
    file
}
