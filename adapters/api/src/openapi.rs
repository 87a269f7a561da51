//! The OpenAPI document, made from the handlers: their parameters, bodies and answers are those of
//! the types in their signatures.

use aide::openapi::{Info, OpenApi, SecurityScheme};
use serde_json::Value;

use crate::routes;

/// The name of the one way to say who one is.
pub(crate) const SECURITY_SCHEME: &str = "token";

/// The OpenAPI document of the control API, version 3.1. Costs some milliseconds.
#[must_use]
pub fn openapi() -> Value {
    serde_json::to_value(routes::router().1).expect("an OpenAPI document is JSON")
}

/// The document without routes.
pub(crate) fn head() -> OpenApi {
    let mut document = OpenApi {
        info: Info {
            title: "Dormouse control API".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: Some(
                "What can be done to a running kernel, and seen of a store at rest. Each operation \
                 needs a token of the scope that its security requirement names; each scope \
                 includes those before it: look, speak, control."
                    .to_owned(),
            ),
            ..Info::default()
        },
        ..OpenApi::default()
    };
    let components = document.components.get_or_insert_default();
    components.security_schemes.insert(
        SECURITY_SCHEME.to_owned(),
        aide::openapi::ReferenceOr::Item(SecurityScheme::Http {
            scheme: "bearer".to_owned(),
            bearer_format: None,
            description: Some("Authorization: Bearer TOKEN".to_owned()),
            extensions: Default::default(),
        }),
    );
    document
}
