//! `[parameters]` of a program, on their way to a provider.

use dormouse_proto::model::{ModelError, Request};
use serde_json::Value;

use super::excerpt::invalid;

/// The parameters in the order of their names: the order in a program file is no reason for other
/// bytes.
///
/// # Errors
/// Where one of `reserved` is among them, which the request itself says.
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
