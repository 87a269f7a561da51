//! The tools of a request: those of the program, and those that the provider runs.

use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;

use super::json_fields::{Fields, to_raw};

/// All tools of a request: the program's, each encoded by `encode`, then the provider's.
///
/// # Errors
/// Those of `encode`.
pub(crate) fn all(
    request: &Request,
    encode: fn(&ToolSpec, Option<&ToolForm>) -> Result<Fields, ModelError>,
) -> Result<Vec<Fields>, ModelError> {
    let mut tools = own(request, encode)?;
    tools.extend(server(request));
    Ok(tools)
}

/// The tools of the program. Fields that the program gives a tool take precedence.
///
/// # Errors
/// Those of `encode`.
pub(crate) fn own(
    request: &Request,
    encode: fn(&ToolSpec, Option<&ToolForm>) -> Result<Fields, ModelError>,
) -> Result<Vec<Fields>, ModelError> {
    let encode = |spec: &ToolSpec| {
        let form = request.provider_tools.form(&spec.name);
        let mut tool = encode(spec, form)?;
        for (name, value) in form.iter().flat_map(|form| &form.fields) {
            tool.set(name, to_raw(value));
        }
        Ok(tool)
    };
    request.tools.iter().map(encode).collect()
}

/// The tools that the provider runs, as the program writes them.
pub(crate) fn server(request: &Request) -> impl Iterator<Item = Fields> {
    request.provider_tools.server.iter().map(|table| {
        let mut tool = Fields::default();
        for (name, value) in table {
            tool.set(name, to_raw(value));
        }
        tool
    })
}

#[cfg(test)]
mod tests;
