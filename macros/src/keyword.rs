//! `#[derive(Keyword)]`: the variants of an enum become the valid words of a key in a program file.
//! The traits `Keyword` and `Value`, which it implements, are in `proto/src/program/`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, LitStr, Result, Variant};

use crate::expand::doc_text;

/// Generates `Keyword` and `Value`.
///
/// # Errors
/// If the type is not an enum, or a variant has fields.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(
            input,
            "the words are the variants of an enum",
        ));
    };
    let entries: Result<Vec<_>> = data.variants.iter().map(word_entries).collect();
    let (enum_name, entries) = (&input.ident, entries?);
    Ok(quote! {
        impl crate::program::Keyword for #enum_name {
            const WORDS: &'static [crate::program::Word<Self>] = &[#(#entries)*];
        }
        impl crate::program::Value for #enum_name {
            const EXPECTED: &'static str = <String as crate::program::Value>::EXPECTED;
            const LIST: &'static str = <String as crate::program::Value>::LIST;
            fn read(
                table: &mut crate::program::Reader<'_>,
                key: &str,
                node: crate::program::Node<'_>,
                rules: &crate::program::Rules,
            ) -> Option<Self> {
                crate::program::Keyword::read_word(table, key, node, rules)
            }
            fn schema(_rules: &crate::program::Rules) -> ::serde_json::Value {
                <Self as crate::program::Keyword>::schema_of_words()
            }
            fn show(&self) -> Option<::serde_json::Value> {
                Some(crate::program::Keyword::word(*self).into())
            }
        }
    })
}

/// The words of a variant: those of `#[word("…", "…")]`, or its name in snake case.
fn word_entries(variant: &Variant) -> Result<TokenStream> {
    if !variant.fields.is_empty() {
        return Err(Error::new_spanned(variant, "a word has no fields"));
    }
    let (name, doc) = (&variant.ident, doc_text(&variant.attrs).replace('\n', " "));
    let mut words = Vec::new();
    for attribute in variant
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("word"))
    {
        let list = syn::punctuated::Punctuated::<LitStr, syn::Token![,]>::parse_terminated;
        words.extend(attribute.parse_args_with(list)?.iter().map(LitStr::value));
    }
    if words.is_empty() {
        words.push(snake_case(&name.to_string()));
    }
    Ok(quote!(#((#words, Self::#name, #doc),)*))
}

fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
