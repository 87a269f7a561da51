//! Expands the attribute `#[tool]`: turns an async function into a function that returns a tool.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, Meta, Pat, PatType, Result, Token,
    Type,
};

use crate::options::Options;

/// A parameter that is an argument of the tool.
struct Argument {
    docs: Vec<Attribute>,
    name: Ident,
    argument_type: Box<Type>,
}

impl Argument {
    /// The variable that holds the argument of this index. It is hygienic: the code of the
    /// function cannot refer to it.
    fn binding(index: usize) -> Ident {
        format_ident!("argument_{index}", span = Span::mixed_site())
    }
}

/// The function that returns the tool, with the original function inside.
///
/// # Errors
/// If the function cannot be a tool; the error points at the reason.
pub(crate) fn expand(options: &Options, mut function: ItemFn) -> Result<TokenStream> {
    check_signature(&function)?;
    let (visibility, name) = (function.vis.clone(), function.sig.ident.clone());
    let (docs, other_attributes): (Vec<_>, Vec<_>) = std::mem::take(&mut function.attrs)
        .into_iter()
        .partition(is_doc);
    let description = doc_text(&docs);
    if description.is_empty() {
        return Err(Error::new(
            name.span(),
            "a tool needs a doc comment: a model chooses it by what that says",
        ));
    }
    function.attrs = other_attributes;
    function.vis = syn::Visibility::Inherited;
    let sink = Ident::new("out", Span::mixed_site());
    let mut arguments = Vec::new();
    let mut call_arguments: Punctuated<TokenStream, Token![,]> = Punctuated::new();
    let mut has_sink = false;
    for input in &mut function.sig.inputs {
        let FnArg::Typed(parameter) = input else {
            return Err(Error::new_spanned(
                input,
                "a tool is a function of its own, without `self`",
            ));
        };
        if is_sink(&parameter.ty) {
            call_arguments.push(quote!(#sink));
            if std::mem::replace(&mut has_sink, true) {
                return Err(Error::new_spanned(parameter, "one OutputSink is enough"));
            }
        } else {
            let binding = Argument::binding(arguments.len());
            call_arguments.push(quote!(#binding));
            arguments.push(extract_argument(parameter)?);
        }
    }
    let tool_name = options
        .name
        .as_ref()
        .map_or_else(|| name.to_string(), syn::LitStr::value);
    let fields = arguments.iter().map(
        |Argument {
             docs,
             name,
             argument_type,
         }| quote!(#(#docs)* #name: #argument_type),
    );
    let bindings = arguments
        .iter()
        .enumerate()
        .map(|(index, Argument { name, .. })| {
            let binding = Argument::binding(index);
            quote!(#name: #binding)
        });
    let pattern = if arguments.is_empty() {
        quote!((): ())
    } else {
        quote!(Arguments { #(#bindings),* }: Arguments)
    };
    let arguments = (!arguments.is_empty()).then(|| {
        quote! {
            #[derive(::dormouse::derive::serde::Deserialize, ::dormouse::derive::schemars::JsonSchema)]
            #[serde(crate = "::dormouse::derive::serde", deny_unknown_fields)]
            #[schemars(crate = "::dormouse::derive::schemars")]
            struct Arguments { #(#fields),* }
        }
    });
    let constructor = match has_sink {
        true => {
            quote!(::dormouse::FnTool::streaming(#tool_name, #description, |#pattern, #sink| #name(#call_arguments)))
        }
        false => {
            quote!(::dormouse::FnTool::new(#tool_name, #description, |#pattern| #name(#call_arguments)))
        }
    };
    let policy = policy_calls(options);
    Ok(quote! {
        #(#docs)*
        #[must_use]
        #visibility fn #name() -> impl ::dormouse::ports::Tool {
            #arguments
            #function
            #constructor #policy
        }
    })
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(
            signature.fn_token,
            "a tool is an `async fn`",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a tool has no generic parameters",
        ));
    }
    Ok(())
}

fn policy_calls(options: &Options) -> TokenStream {
    let access = options
        .access
        .as_ref()
        .map(|access| quote!(.access(::dormouse::tool::Access::#access)));
    let idempotent = options.idempotent.map(|()| quote!(.idempotent()));
    let deadline = options
        .deadline_ms
        .as_ref()
        .map(|ms| quote!(.deadline(::core::time::Duration::from_millis(#ms))));
    let cap = options
        .output_cap_bytes
        .as_ref()
        .map(|bytes| quote!(.output_cap(#bytes)));
    quote!(#access #idempotent #deadline #cap)
}

/// Reads the argument and removes its doc comment, which Rust does not allow on a parameter.
fn extract_argument(parameter: &mut PatType) -> Result<Argument> {
    let (docs, other_attributes) = std::mem::take(&mut parameter.attrs)
        .into_iter()
        .partition(is_doc);
    parameter.attrs = other_attributes;
    match &*parameter.pat {
        Pat::Ident(name) => {
            let (name, argument_type) = (name.ident.clone(), parameter.ty.clone());
            Ok(Argument {
                docs,
                name,
                argument_type,
            })
        }
        other => Err(Error::new_spanned(
            other,
            "a parameter of a tool is a plain name: a model calls it by that",
        )),
    }
}

fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc")
}

/// The text of a doc comment.
pub(crate) fn doc_text(docs: &[Attribute]) -> String {
    let lines = docs.iter().filter_map(|doc| match &doc.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(line),
                ..
            }) => Some(line.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<_> = lines
        .map(|line| {
            line.strip_prefix(' ')
                .unwrap_or(&line)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("\n").trim().to_owned()
}

fn is_sink(parameter_type: &Type) -> bool {
    let Type::Path(path) = parameter_type else {
        return false;
    };
    path.path
        .segments
        .last()
        .is_some_and(|last| last.ident == "OutputSink")
}
