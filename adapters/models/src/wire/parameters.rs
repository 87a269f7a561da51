//! Prepares the `[parameters]` of a program for a request.

use dormouse_proto::model::{ModelError, Request};
use serde_json::Value;

use super::excerpt::invalid;

/// The parameters sorted by name, so that their order in the program file does not change the bytes
/// of a request.
///
/// # Errors
/// One of them is in `reserved`: the request itself sets it.
pub(crate) fn sorted<'a>(
    request: &'a Request,
    reserved: &[&str],
) -> Result<Vec<(&'a str, &'a Value)>, ModelError> {
    if let Some(name) = reserved
        .iter()
        .find(|name| request.parameters.contains_key(**name))
    {
        return Err(invalid(format!(
            "the parameter '{name}' is set by the kernel: remove it from [parameters]"
        )));
    }
    let mut parameters: Vec<_> = request
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    parameters.sort_unstable_by_key(|(name, _)| *name);
    Ok(parameters)
}
