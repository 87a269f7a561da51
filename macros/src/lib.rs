//! Procedural macros: the attribute `#[tool]`, which turns an async function into a tool, and the
//! derives [`Section`] and [`Keyword`], which generate the parsers of program files.
//!
//! `#[tool]` generates code that could be written by hand with `dormouse::FnTool`: a type for the
//! arguments with a derived schema, and the call. Programs use it as `#[dormouse::tool]`; its
//! examples and tests are in the crate `dormouse`. Only `dormouse-proto` uses [`Section`] and
//! [`Keyword`].

mod expand;
mod keyword;
mod options;
mod section;

use proc_macro::TokenStream;

/// Turns an async function into a tool. After expansion, the function of this name takes no
/// arguments and returns the tool.
///
/// The model reads the doc comment of the function as the description of the tool, and the doc
/// comment of each parameter as the description of that argument. An argument of type `Option` may
/// be left out. The function returns a `Result` with an output that is `Into<Bytes>` and an error
/// that is `Display`. A parameter of type `OutputSink` is not an argument: bytes that are pushed
/// into it are the output of the tool, and the function then returns `Result<(), _>`.
///
/// The options, each at most once: `access = "read"` (or `"write"`, the default, or `"admin"`),
/// `idempotent`, `deadline_ms = 30_000`, `output_cap_bytes = 1_000_000`, `name = "another-name"`.
///
/// ```ignore
/// /// Counts the words of a text.
/// #[dormouse::tool(access = "read", idempotent)]
/// async fn count_words(
///     /// The text.
///     text: String,
/// ) -> Result<String, String> {
///     Ok(text.split_whitespace().count().to_string())
/// }
///
/// let kernel = Kernel::builder().tool(count_words());
/// ```
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = options::Options::parse(options.into())
        .and_then(|options| expand::expand(&options, syn::parse2(function.into())?));
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Implements `Section` for a struct, which parses a table of a program file and describes it in
/// the JSON Schema, and `Default`, the value of an empty table. Each field is a key of the table.
/// Its doc comment is the description in the JSON Schema and in `docs/program-reference.md`.
///
/// Options of a field, `#[key(…)]`:
///
/// * `name = "…"`: the key, if it is not the name of the field. `alias = "…"`: a second name.
/// * `default = …`: the value if the key is not given.
/// * `range = 1..=10`: the valid numbers, sizes, durations or amounts of money, in the unit in
///   which they are stored. A size or a duration is at least 1, whatever the range.
/// * `max_items = 16`: the maximum number of entries of a list or table.
/// * `required`, or `required = "the hint in the error"`: the key must be given.
/// * `with = Type`: parses the value as `Type`, a tuple struct around the type of the field, or
///   around what its `Option` holds.
/// * `flatten`: the keys of another section are keys of this table.
/// * `last`: the key is parsed and listed after the others.
/// * `span`: the span of the table. `span = "key"`: the span of the value of that key.
/// * `other_keys = function`: the function parses all other keys.
/// * `skip`: the field is not a key.
///
/// Options of the struct, `#[section(…)]`:
///
/// * `expected = "…"` and `list = "…"`: the phrases for the table and for a list of such tables in
///   errors.
/// * `shorthand = field`: the file may have the value of that field in place of the table.
/// * `check = function`: checks keys against each other. The table is dropped if the function
///   returns `None`.
/// * `ignored = ["key"]`: keys of the reference implementation, which have no effect.
#[proc_macro_derive(Section, attributes(section, key))]
pub fn section(input: TokenStream) -> TokenStream {
    derive(input, section::expand)
}

/// Implements `Keyword` and `Value` for an enum, so that each variant is a word in a program file.
/// The word is the variant's name in snake case. `#[word("…", "…")]` sets other words: all of them
/// are accepted, and the first one is shown.
#[proc_macro_derive(Keyword, attributes(word))]
pub fn keyword(input: TokenStream) -> TokenStream {
    derive(input, keyword::expand)
}

fn derive(
    input: TokenStream,
    expand: fn(&syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand(&input));
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
