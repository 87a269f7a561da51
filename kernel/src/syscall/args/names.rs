//! Finds the parameter that a key of a call means.
//!
//! A key is the name of a parameter, one of the other names that models use for it, or either of
//! them in another spelling, such as `startLine`. Any other key is an error that suggests the
//! nearest parameter.

use std::collections::BTreeMap;

use dormouse_proto::descriptor::FdError;
use serde_json::{Map, Value};

use super::super::parameter::{self, Parameter};
use super::Args;

/// A parameter and its value in a call, by the name of the parameter.
type Named<'a> = BTreeMap<&'static str, (&'static Parameter, &'a Value)>;

/// The least similarity of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.8;

impl Args {
    /// The parameters that a call gives, without those that are null.
    ///
    /// # Errors
    /// `invalid_parameter`: unknown keys, all of which are named, or one parameter under two names
    /// with different values.
    pub(super) fn name_parameters<'a>(
        &self,
        object: &'a Map<String, Value>,
    ) -> Result<Named<'a>, FdError> {
        let mut named = Named::new();
        let mut unknown = Vec::new();
        for (key, value) in object {
            let Some(parameter) = self.find_parameter(key) else {
                unknown.push(self.describe_unknown(key));
                continue;
            };
            if value.is_null() {
                continue;
            }
            let previous = named.insert(parameter.name, (parameter, value));
            if previous.is_some_and(|(_, previous)| previous != value) {
                return Err(self.invalid_error(format!(
                    "Parameter '{}' is given twice, under two names and with different values. \
                     Give it once.",
                    parameter.name
                )));
            }
        }
        if unknown.is_empty() {
            return Ok(named);
        }
        Err(self.invalid_error(format!("{} {}", unknown.join(" "), self.list_accepted())))
    }

    fn find_parameter(&self, key: &str) -> Option<&'static Parameter> {
        parameter::find(self.parameters, self.offered, key)
    }

    fn offered_parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        let offered = self.offered;
        let parameters = self.parameters.iter();
        parameters.filter(move |parameter| parameter.is_offered(offered))
    }

    /// The sentences of an error about an unknown key, with the nearest parameter.
    fn describe_unknown(&self, key: &str) -> String {
        let spelled = parameter::snake_case(key);
        let mut offered = self.offered_parameters();
        let suggested = offered.find(|parameter| {
            parameter.is_suggested_for(key) || parameter.is_suggested_for(&spelled)
        });
        let similar = || {
            parameter::names(self.parameters, self.offered)
                .map(|name| (strsim::jaro(name, &spelled), name))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
                .map(|(_, name)| name)
        };
        match suggested.map(|parameter| parameter.name).or_else(similar) {
            Some(name) => format!("Unknown parameter '{key}'. Did you mean '{name}'?"),
            None => format!("Unknown parameter '{key}'."),
        }
    }
}
