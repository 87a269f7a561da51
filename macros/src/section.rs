//! `#[derive(Section)]`: the fields of a struct become the keys of a table in a program file.
//!
//! The generated code names paths of `dormouse-proto`, the only crate that derives it. This crate
//! does not depend on that one.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::{Data, DeriveInput, Error, Expr, Field, Ident, LitStr, Path, Result, Token, Type};

use crate::expand::text;

/// `#[section(…)]`: what holds for the whole table.
#[derive(Default)]
struct Table {
    expected: Option<LitStr>,
    list: Option<LitStr>,
    or: Option<Type>,
    check: Option<Path>,
    ignored: Option<Expr>,
}

/// `#[key(…)]`: what holds for one field.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    alias: Option<LitStr>,
    default: Option<Expr>,
    range: Option<Expr>,
    most: Option<Expr>,
    with: Option<Type>,
    help: Option<Expr>,
    rest: Option<Path>,
    place_of: Option<LitStr>,
    is_required: bool,
    is_flat: bool,
    is_place: bool,
    is_last: bool,
    is_skipped: bool,
}

/// A field: how it is read, its value in an empty table, and its part of the description.
struct Member {
    name: Ident,
    read: TokenStream,
    default: TokenStream,
    describe: TokenStream,
    is_last: bool,
}

/// Generates `Section`, and `Default`: the value of an empty table.
///
/// # Errors
/// At an attribute that is not known, or a key without a description.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "the keys of a table are the fields of a struct";
        return Err(Error::new_spanned(input, message));
    };
    let mut keys = Vec::new();
    let members: Result<Vec<_>> = data
        .fields
        .iter()
        .map(|field| member(field, &mut keys))
        .collect();
    let mut members = members?;
    members.sort_by_key(|member| member.is_last);
    let names: Vec<_> = members.iter().map(|member| &member.name).collect();
    let reads = members.iter().map(|member| &member.read);
    let defaults = members.iter().map(|member| &member.default);
    let describe = members.iter().map(|member| &member.describe);
    let Table {
        expected,
        list,
        or,
        check,
        ignored,
    } = Table::parse(input)?;
    let of = &input.ident;
    let expected = expected.map(|text| quote!(const EXPECTED: &'static str = #text;));
    let list = list.map(|text| quote!(const LIST: &'static str = #text;));
    let ignored = ignored
        .map(|names| quote!(&#names))
        .unwrap_or_else(|| quote!(&[]));
    let or = or.map(|other| {
        quote! {
            fn or(
                table: &mut crate::program::Reader<'_>,
                key: &str,
                node: crate::program::Node<'_>,
            ) -> Option<Self> {
                let rules = crate::program::Rules::expecting(<Self as crate::program::Section>::EXPECTED);
                let other: Option<crate::program::At<#other>> =
                    crate::program::Value::read(table, key, node, &rules);
                other.map(Into::into)
            }
            fn or_schema() -> Option<::serde_json::Value> {
                Some(<#other as crate::program::Value>::schema(&crate::program::Rules::ANY))
            }
        }
    });
    let checked = match check {
        Some(check) => quote!(#check(section, table)),
        None => quote!(Some(section)),
    };
    Ok(quote! {
        impl ::core::default::Default for #of {
            fn default() -> Self {
                Self { #(#names: #defaults),* }
            }
        }
        impl crate::program::Section for #of {
            const KEYS: &'static [crate::program::Key] = &[#(#keys),*];
            #expected
            #list
            fn read(table: &mut crate::program::Reader<'_>) -> Option<Self> {
                table.ignore(#ignored);
                let section = Self { #(#names: #reads),* };
                #checked
            }
            fn describe(schema: &mut crate::program::TableSchema) {
                #(#describe)*
                schema.ignore(#ignored);
            }
            #or
        }
    })
}

/// The code for a field. If the field is a key, its constant is added to `keys`.
fn member(field: &Field, keys: &mut Vec<TokenStream>) -> Result<Member> {
    let name = field.ident.clone();
    let name = name.ok_or_else(|| Error::new_spanned(field, "a key is a field with a name"))?;
    let options = Options::parse(field)?;
    let of = &field.ty;
    let default = match &options.default {
        Some(value) => quote!(#value),
        None => quote!(::core::default::Default::default()),
    };
    let (read, describe) = if options.is_flat {
        (
            quote!(<#of as crate::program::Section>::read(table).unwrap_or_default()),
            quote!(<#of as crate::program::Section>::describe(schema);),
        )
    } else if let Some(key) = &options.place_of {
        (quote!(table.place(#key)), quote!())
    } else if options.is_place {
        (quote!(table.span()), quote!())
    } else if options.is_skipped {
        (default.clone(), quote!())
    } else if let Some(rest) = &options.rest {
        let doc = doc(field)?;
        (quote!(#rest(table)), quote!(schema.rest(#doc);))
    } else {
        let index = keys.len();
        keys.push(options.key(&name, &doc(field)?));
        options.value(
            of,
            &default,
            &quote!(&<Self as crate::program::Section>::KEYS[#index]),
        )
    };
    let is_last = options.is_last;
    Ok(Member {
        name,
        read,
        default,
        describe,
        is_last,
    })
}

fn doc(field: &Field) -> Result<String> {
    let doc = text(&field.attrs).replace('\n', " ");
    if doc.is_empty() {
        let message = "a key needs a doc comment: it is the description in the reference";
        return Err(Error::new_spanned(field, message));
    }
    Ok(doc)
}

impl Options {
    /// The constant that describes the key.
    fn key(&self, field: &Ident, doc: &str) -> TokenStream {
        let name = self
            .name
            .as_ref()
            .map_or_else(|| field.to_string(), LitStr::value);
        let alias = optional(self.alias.as_ref());
        let help = optional(self.help.as_ref());
        let is_required = self.is_required;
        let range = self.range.as_ref().map(|range| quote!(range: #range,));
        let most = self.most.as_ref().map(|most| quote!(most: Some(#most),));
        quote! {
            crate::program::Key {
                name: #name,
                alias: #alias,
                doc: #doc,
                help: #help,
                rules: crate::program::Rules {
                    is_required: #is_required,
                    #range
                    #most
                    ..crate::program::Rules::ANY
                },
            }
        }
    }

    /// How the value of a key is read and described. With `with`, the value is read as that type
    /// and converted.
    fn value(
        &self,
        of: &Type,
        default: &TokenStream,
        key: &TokenStream,
    ) -> (TokenStream, TokenStream) {
        let read_as = self.with.as_ref().unwrap_or(of);
        let shown = match (&self.default, &self.with) {
            _ if self.is_required => quote!(None),
            (None, Some(_)) => quote!(None),
            (Some(_), Some(with)) => quote!(Some(<#with>::from(#default))),
            (_, None) => quote!(Some(#default)),
        };
        let convert = match self.with {
            Some(_) if is_option(of) => quote!(.map(|value| Some(value.into()))),
            Some(_) => quote!(.map(Into::into)),
            None => quote!(),
        };
        (
            quote!(table.key::<#read_as>(#key)#convert.unwrap_or_else(|| #default)),
            quote!(schema.key::<#read_as>(#key, #shown);),
        )
    }

    fn parse(field: &Field) -> Result<Self> {
        let mut options = Self::default();
        for attribute in field
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("key"))
        {
            attribute.parse_nested_meta(|meta| options.option(&meta))?;
        }
        Ok(options)
    }

    fn option(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let has_value = meta.input.peek(Token![=]);
        match meta.path.get_ident().map(Ident::to_string).as_deref() {
            Some("name") => self.name = Some(meta.value()?.parse()?),
            Some("alias") => self.alias = Some(meta.value()?.parse()?),
            Some("default") => self.default = Some(meta.value()?.parse()?),
            Some("range") => self.range = Some(meta.value()?.parse()?),
            Some("most") => self.most = Some(meta.value()?.parse()?),
            Some("with") => self.with = Some(meta.value()?.parse()?),
            Some("rest") => self.rest = Some(meta.value()?.parse()?),
            Some("place") if has_value => self.place_of = Some(meta.value()?.parse()?),
            Some("place") => self.is_place = true,
            Some("flatten") => self.is_flat = true,
            Some("skip") => self.is_skipped = true,
            Some("last") => self.is_last = true,
            Some("required") => {
                self.is_required = true;
                self.help = has_value.then(|| meta.value()?.parse()).transpose()?;
            }
            _ => return Err(meta.error("no such option of a key")),
        }
        Ok(())
    }
}

impl Table {
    fn parse(input: &DeriveInput) -> Result<Self> {
        let mut table = Self::default();
        for attribute in input
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("section"))
        {
            attribute.parse_nested_meta(|meta| {
                match meta.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("expected") => table.expected = Some(meta.value()?.parse()?),
                    Some("list") => table.list = Some(meta.value()?.parse()?),
                    Some("or") => table.or = Some(meta.value()?.parse()?),
                    Some("check") => table.check = Some(meta.value()?.parse()?),
                    Some("ignored") => table.ignored = Some(meta.value()?.parse()?),
                    _ => return Err(meta.error("no such option of a section")),
                }
                Ok(())
            })?;
        }
        Ok(table)
    }
}

fn optional(value: Option<&impl ToTokens>) -> TokenStream {
    value.map_or_else(|| quote!(None), |value| quote!(Some(#value)))
}

fn is_option(of: &Type) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}
