//! What a program says about tools in the syntax of its provider: tools that the provider runs
//! itself, and how the program's own tools are presented.
//!
//! None of this is stored with a process: it is read from the program, which never changes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// The tools of requests in the syntax of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProviderTools {
    /// Tools that the provider runs, as they are sent, in the order written (`[[tools.server]]`).
    pub server: Vec<Map<String, Value>>,
    /// How the program's own tools are presented, by the name that the model calls them by. A tool
    /// that is not listed has the default form.
    pub forms: BTreeMap<String, ToolForm>,
}

impl ProviderTools {
    /// The form of the tool with this name.
    #[must_use]
    pub fn form(&self, name: &str) -> Option<&ToolForm> {
        self.forms.get(name)
    }
}

/// How a tool of the program is presented in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolForm {
    /// Whether the provider has to make the arguments valid against the schema.
    pub strict: bool,
    /// As `strict`, if the strict mode of the provider can express the schema; otherwise the tool
    /// is not strict.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_if_expressible: bool,
    /// The format of a tool whose only argument is a text, which the provider then constrains, such
    /// as a grammar; in the provider's syntax. `None` for a tool that takes a JSON object.
    pub input_format: Option<Map<String, Value>>,
    /// Further fields of the tool, as they are sent.
    pub fields: Map<String, Value>,
}

impl ToolForm {
    /// The name of the parameter that takes the text of a tool with an `input_format`.
    pub const INPUT: &'static str = "input";

    /// Whether a schema describes such a tool: an object whose only property is the string
    /// [`INPUT`](Self::INPUT).
    #[must_use]
    pub fn takes_only_input(schema: &Value) -> bool {
        let properties = schema["properties"].as_object();
        properties.is_some_and(|properties| {
            properties.len() == 1
                && properties
                    .get(Self::INPUT)
                    .is_some_and(|input| input["type"] == "string")
        })
    }
}
