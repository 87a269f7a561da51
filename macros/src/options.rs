//! Parses the options of the attribute `#[tool(…)]`.

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::{Ident, LitInt, LitStr, Result};

/// The options as they were given; `None` for an option that was not given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) access: Option<Ident>,
    pub(crate) idempotent: Option<()>,
    pub(crate) deadline_ms: Option<LitInt>,
    pub(crate) output_cap_bytes: Option<LitInt>,
    pub(crate) name: Option<LitStr>,
}

impl Options {
    /// Parses the tokens inside the brackets.
    ///
    /// # Errors
    /// An unknown option, an option that is given twice, or an invalid value; the error points at
    /// it.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let parser = syn::meta::parser(|meta| {
            let key = meta
                .path
                .get_ident()
                .map(Ident::to_string)
                .unwrap_or_default();
            let duplicate = || meta.error(format!("`{key}` is given twice"));
            let is_first = match key.as_str() {
                "access" => options
                    .access
                    .replace(parse_access(&meta.value()?.parse()?)?)
                    .is_none(),
                "idempotent" => options.idempotent.replace(()).is_none(),
                "deadline_ms" => options
                    .deadline_ms
                    .replace(meta.value()?.parse()?)
                    .is_none(),
                "output_cap_bytes" => options
                    .output_cap_bytes
                    .replace(meta.value()?.parse()?)
                    .is_none(),
                "name" => options
                    .name
                    .replace(check_name(meta.value()?.parse()?)?)
                    .is_none(),
                _ => {
                    let valid = "access, idempotent, deadline_ms, output_cap_bytes, name";
                    return Err(meta.error(format!("no such option; valid are {valid}")));
                }
            };
            if is_first { Ok(()) } else { Err(duplicate()) }
        });
        parser.parse2(tokens)?;
        Ok(options)
    }
}

/// The variant of `Access` with this name.
fn parse_access(level: &LitStr) -> Result<Ident> {
    let variant = match level.value().as_str() {
        "read" => "Read",
        "write" => "Write",
        "admin" => "Admin",
        _ => {
            return Err(syn::Error::new(
                level.span(),
                "valid are \"read\", \"write\" and \"admin\"",
            ));
        }
    };
    Ok(Ident::new(variant, level.span()))
}

fn check_name(name: LitStr) -> Result<LitStr> {
    let is_valid = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    match is_valid(&name.value()) {
        true => Ok(name),
        false => Err(syn::Error::new(
            name.span(),
            "valid is a name of 1 to 64 of A-Z, a-z, 0-9, _ and -",
        )),
    }
}
