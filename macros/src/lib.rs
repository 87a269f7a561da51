//! The attribute `#[tool]`: an async function becomes a tool of the host.
//!
//! It only writes what could be written by hand with `dormouse::FnTool`: an argument type with
//! derived schema, and the call. It is used through the facade, as `#[dormouse::tool]`, and its
//! examples and tests stand there.

mod expand;
mod options;

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
