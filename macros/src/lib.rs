//! Procedural macros: the attribute `#[tool]`, by which an async function becomes a tool of the
//! host, and the derives that read the tables of a program file.
//!
//! `#[tool]` only writes what could be written by hand with `dormouse::FnTool`: an argument type
//! with derived schema, and the call. It is used through the facade, as `#[dormouse::tool]`, and
//! its examples and tests are there. [`Section`] and [`Keyword`] are for `dormouse-proto` alone.

mod expand;
mod keyword;
mod options;
mod section;

use proc_macro::TokenStream;

/// Makes a tool of an async function: the function of this name then returns it.
///
/// The doc comment is the description that a model reads, that of each parameter its description;
/// the parameters are the arguments, an `Option` one that may be left out. The function returns a
/// `Result`: what is `Into<Bytes>`, or what can be displayed. A parameter of type `OutputSink` is
/// no argument: what is pushed into it streams out, and the function then returns `Result<(), _>`.
///
/// In brackets, each once: `access = "read"` (or `"write"`, the default, or `"admin"`),
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

/// Reads a table of a program file into a struct, and describes the table: implements `Section`,
/// and `Default` with the values of an empty table. A field is a key, and its doc comment the
/// description in the JSON Schema and in `docs/program-reference.md`.
///
/// `#[key(…)]`: `name = "…"` and `alias = "…"` for a key that is not the field's name;
/// `default = …`; `range = 1..=10`, also for sizes, durations and money; `most = 16` entries of a
/// list or table; `required`, or `required = "what to write"`; `with = Type` reads a type that
/// wraps the field's; `flatten` reads the keys of another section in this table; `last` reads and
/// lists the key after the others; `place` and `place = "key"` are where the table and that key's
/// value are written; `rest = function` reads all other keys; `skip` is no key.
///
/// `#[section(…)]`: `expected = "…"` and `list = "…"` name the table and a list of them in errors;
/// `or = field` accepts the value of that field instead of the table; `check = function` checks
/// keys against each other, and drops the table if it returns `None`; `ignored = ["key"]` are keys
/// of the reference implementation that are accepted and have no effect.
#[proc_macro_derive(Section, attributes(section, key))]
pub fn section(input: TokenStream) -> TokenStream {
    derive(input, section::expand)
}

/// Makes an enum of words the value of a key. The word of a variant is its name in snake case, or
/// what `#[word("…", "…")]` says: the first one is shown, the others are accepted.
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
