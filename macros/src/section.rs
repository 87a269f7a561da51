//! Expands `#[derive(Section)]`: the fields of a struct become the keys of a table in a program
//! file.
//!
//! The generated code refers to items of `dormouse-proto` as `crate::program`, since only that
//! crate derives `Section`. This crate does not depend on `dormouse-proto`. The trait is in
//! `proto/src/program/section.rs`; `lib.rs` says what each option means.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Field, Ident, Result, Token, Type};

use crate::expand::doc_text;

const SECTION_OPTIONS: [&str; 5] = ["check", "expected", "ignored", "list", "shorthand"];
const KEY_OPTIONS: [&str; 12] = [
    "alias",
    "default",
    "flatten",
    "last",
    "max_items",
    "name",
    "other_keys",
    "range",
    "required",
    "skip",
    "span",
    "with",
];

/// The options of an attribute: the name of each, and the tokens after its `=`.
struct AttributeOptions(BTreeMap<String, TokenStream>);

/// The generated code of a field: the expression that parses it, its value in an empty table, and
/// the statement that adds it to the JSON Schema.
struct FieldCode {
    name: Ident,
    field_type: Type,
    options: AttributeOptions,
    read: TokenStream,
    default: TokenStream,
    describe: TokenStream,
}

/// Generates `Section`, and `Default`: the value of an empty table.
///
/// # Errors
/// An unknown option, one that is given twice, or a key without a description.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "the keys of a table are the fields of a struct";
        return Err(Error::new_spanned(input, message));
    };
    let options = AttributeOptions::parse(&input.attrs, "section", &SECTION_OPTIONS)?;
    let mut keys = Vec::new();
    let members = data
        .fields
        .iter()
        .map(|field| expand_field(field, &mut keys));
    let mut members = members.collect::<Result<Vec<_>>>()?;
    members.sort_by_key(|member| member.options.has("last"));
    let names: Vec<_> = members.iter().map(|member| &member.name).collect();
    let reads = members.iter().map(|member| &member.read);
    let defaults = members.iter().map(|member| &member.default);
    let describe = members.iter().map(|member| &member.describe);
    let struct_name = &input.ident;
    let ignored = options.get_or("ignored", &quote!([]));
    let expected = options.get("expected");
    let expected = expected.map(|text| quote!(const EXPECTED: &'static str = #text;));
    let list = options.get("list");
    let list = list.map(|text| quote!(const LIST: &'static str = #text;));
    let shorthand = options
        .get("shorthand")
        .map(|field| expand_shorthand(field, &members))
        .transpose()?;
    let checked = match options.get("check") {
        Some(check) => quote!(#check(section, table)),
        None => quote!(Some(section)),
    };
    Ok(quote! {
        impl ::core::default::Default for #struct_name {
            fn default() -> Self {
                Self { #(#names: #defaults),* }
            }
        }
        impl crate::program::Section for #struct_name {
            const KEYS: &'static [crate::program::Key] = &[#(#keys),*];
            #expected
            #list
            fn read(table: &mut crate::program::Reader<'_>) -> Option<Self> {
                table.warn_ignored(&#ignored);
                let section = Self { #(#names: #reads),* };
                #checked
            }
            fn describe(schema: &mut crate::program::TableSchema) {
                #(#describe)*
                schema.ignore(&#ignored);
            }
            #shorthand
        }
    })
}

/// Parses a field. If it is a key, adds the constant that describes it to `keys`.
fn expand_field(field: &Field, keys: &mut Vec<TokenStream>) -> Result<FieldCode> {
    let name = field.ident.clone();
    let name = name.ok_or_else(|| Error::new_spanned(field, "a key is a field with a name"))?;
    let options = AttributeOptions::parse(&field.attrs, "key", &KEY_OPTIONS)?;
    let field_type = field.ty.clone();
    let doc = doc_text(&field.attrs).replace('\n', " ");
    let default = options.get_or("default", &quote!(::core::default::Default::default()));
    let (read, describe) = if options.has("flatten") {
        (
            quote!(<#field_type as crate::program::Section>::read(table).unwrap_or_default()),
            quote!(<#field_type as crate::program::Section>::describe(schema);),
        )
    } else if let Some(key) = options.get("span") {
        match key.is_empty() {
            true => (quote!(table.span()), quote!()),
            false => (quote!(table.span_of(#key)), quote!()),
        }
    } else if options.has("skip") {
        (default.clone(), quote!())
    } else if doc.is_empty() {
        let message = "a key needs a doc comment: it is the description in the reference";
        return Err(Error::new_spanned(field, message));
    } else if let Some(read_others) = options.get("other_keys") {
        (
            quote!(table.other_keys(#read_others)),
            quote!(schema.other_keys(#doc);),
        )
    } else {
        let index = keys.len();
        keys.push(options.expand_key(&name.to_string(), &doc));
        let key = quote!(&<Self as crate::program::Section>::KEYS[#index]);
        options.expand_value(&field_type, &default, &key)
    };
    Ok(FieldCode {
        name,
        field_type,
        options,
        read,
        default,
        describe,
    })
}

/// Generates the function that parses a shorthand: the value of this field in place of the whole
/// table.
fn expand_shorthand(field: &TokenStream, members: &[FieldCode]) -> Result<TokenStream> {
    let found = members
        .iter()
        .find(|member| member.name == field.to_string());
    let Some(FieldCode {
        name, field_type, ..
    }) = found
    else {
        return Err(Error::new_spanned(field, "no field of this name"));
    };
    let spans = members.iter().filter(|member| member.options.has("span"));
    let spans = spans.map(|member| &member.name);
    Ok(quote! {
        fn read_shorthand(
            table: &mut crate::program::Reader<'_>,
            key: &str,
            node: crate::program::Node<'_>,
        ) -> Option<Self> {
            let rules = crate::program::Rules {
                expected: Some(<Self as crate::program::Section>::EXPECTED),
                ..crate::program::Rules::ANY
            };
            Some(Self {
                #name: crate::program::Value::read(table, key, node, &rules)?,
                #(#spans: node.span(),)*
                ..Self::default()
            })
        }
        fn shorthand_schema() -> Option<::serde_json::Value> {
            Some(<#field_type as crate::program::Value>::schema(&crate::program::Rules::ANY))
        }
    })
}

impl AttributeOptions {
    fn parse(attributes: &[Attribute], attribute_name: &str, known: &[&str]) -> Result<Self> {
        let mut options = BTreeMap::new();
        for attribute in attributes
            .iter()
            .filter(|attribute| attribute.path().is_ident(attribute_name))
        {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.require_ident()?.to_string();
                if !known.contains(&name.as_str()) {
                    let valid = known.join(", ");
                    return Err(meta.error(format!("no such option; valid are {valid}")));
                }
                let mut value = TokenStream::new();
                let input = if meta.input.peek(Token![=]) {
                    meta.value()?
                } else {
                    meta.input
                };
                while !input.is_empty() && !input.peek(Token![,]) {
                    value.extend([input.parse::<TokenTree>()?]);
                }
                match options.insert(name.clone(), value) {
                    None => Ok(()),
                    Some(_) => Err(meta.error(format!("`{name}` is given twice"))),
                }
            })?;
        }
        Ok(Self(options))
    }

    fn get(&self, name: &str) -> Option<&TokenStream> {
        self.0.get(name)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn get_or(&self, name: &str, other: &TokenStream) -> TokenStream {
        self.get(name).unwrap_or(other).clone()
    }

    /// The constant that describes a key.
    fn expand_key(&self, field: &str, doc: &str) -> TokenStream {
        let name = self.get_or("name", &quote!(#field));
        let some = |value: &TokenStream| {
            if value.is_empty() {
                quote!(None)
            } else {
                quote!(Some(#value))
            }
        };
        let [alias, help, max_items] =
            ["alias", "required", "max_items"].map(|name| some(&self.get_or(name, &quote!())));
        let is_required = self.has("required");
        let range = self.get_or("range", &quote!(0..=u64::MAX));
        quote! {
            crate::program::Key {
                name: #name,
                alias: #alias,
                doc: #doc,
                help: #help,
                rules: crate::program::Rules {
                    is_required: #is_required,
                    range: #range,
                    max_items: #max_items,
                    expected: None,
                },
            }
        }
    }

    /// The expression that parses the value of a key, and the statement that describes the key.
    /// The option `with` names the type as which the value is parsed, a tuple struct around the
    /// type of the field.
    fn expand_value(
        &self,
        field_type: &Type,
        default: &TokenStream,
        key: &TokenStream,
    ) -> (TokenStream, TokenStream) {
        let (read_as, shown, unwrap) = match self.get("with") {
            Some(with) => {
                let shown = self
                    .get("default")
                    .map(|default| quote!(Some(#with(#default))));
                let value = if is_option(field_type) {
                    quote!(Some(value))
                } else {
                    quote!(value)
                };
                (with.clone(), shown, quote!(.map(|#with(value)| #value)))
            }
            None => (quote!(#field_type), Some(quote!(Some(#default))), quote!()),
        };
        let shown = shown
            .filter(|_| !self.has("required"))
            .unwrap_or_else(|| quote!(None));
        (
            quote!(table.key::<#read_as>(#key)#unwrap.unwrap_or_else(|| #default)),
            quote!(schema.key::<#read_as>(#key, #shown);),
        )
    }
}

fn is_option(field_type: &Type) -> bool {
    let Type::Path(path) = field_type else {
        return false;
    };
    path.path
        .segments
        .last()
        .is_some_and(|last| last.ident == "Option")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_given_once() {
        let expanded = |options: &str| {
            let text = format!("struct Table {{ /// A key.\n {options} key: u32 }}");
            let input = syn::parse_str(&text).expect("it is a struct");
            expand(&input).map(drop).map_err(|error| error.to_string())
        };
        let twice = Err("`default` is given twice".to_owned());
        assert_eq!(expanded("#[key(default = 1, range = 1..=9)]"), Ok(()));
        assert_eq!(expanded("#[key(default = 1, default = 2)]"), twice);
        assert_eq!(expanded("#[key(default = 1)] #[key(default = 2)]"), twice);
    }
}
