//! Parameters of tools. A tool's JSON schema and the check of the names and types in its calls are
//! both derived from its list of [`Parameter`]s. Each tool checks the rest itself: which parameters
//! must be there, their bounds, and the items of lists.

use serde_json::{Map, Value, json};

/// Maximum number of items in a list argument.
pub const MAX_ITEMS: usize = 64;

/// A parameter of a kernel tool.
///
/// # Examples
///
/// `Parameter::integer("page", "A page, counted from 1").at_least(1)` becomes `{"type": "integer",
/// "minimum": 1, "description": "A page, counted from 1"}` in the schema. The type is checked when
/// a call is parsed. The tool itself checks the bound, so that its error can state the valid
/// values.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ParameterKind,
    description: &'static str,
    choices: &'static [&'static str],
    /// Minimum and maximum of a number, or of the length of a text.
    bounds: (Option<u64>, Option<u64>),
    is_required: bool,
    is_hidden: bool,
    /// Names that models use for the parameter on their own: accepted, but not in the schema.
    other_names: &'static [&'static str],
    /// Names that mean something else: a call that uses one is refused, and the error suggests this
    /// parameter.
    near_names: &'static [&'static str],
    /// What an error about a value of a wrong type adds.
    type_hint: &'static str,
    required_feature: RequiredFeature,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A text.
    Text,
    /// A text that may be written as a number.
    Word,
    /// An integer.
    Integer,
    /// `true` or `false`.
    Flag,
    /// A list.
    List(ItemType),
    /// A range: `"10-40"`, `"10-"` or `[10, 40]`.
    Range,
    /// An object.
    Object,
    /// Any JSON value.
    Any,
}

/// The item type of a list. The tool itself checks the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemType {
    /// Texts.
    Texts,
    /// Integers.
    Integers,
    /// Descriptors or parts of them.
    Descriptors,
}

/// The feature that a program must enable for a parameter to be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequiredFeature {
    None,
    Descriptors,
    TempFiles,
}

/// Which conditional parameters a program offers.
#[derive(Clone, Copy, Debug)]
pub struct OfferedParameters {
    pub(super) descriptors: bool,
    pub(super) temp_files: bool,
}

impl OfferedParameters {
    /// Offers all parameters.
    pub const ALL: Self = Self {
        descriptors: true,
        temp_files: true,
    };
}

impl ParameterKind {
    /// The accepted values, as an error states them.
    #[must_use]
    pub fn accepted(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Word => "a string or a number",
            Self::Integer => "an integer",
            Self::Flag => "true or false",
            Self::List(_) => "a list",
            Self::Range => "a range, such as \"10-40\"",
            Self::Object => "an object",
            Self::Any => "any JSON value",
        }
    }

    /// The name of the type in a JSON schema; `None` for any type.
    fn schema_type(self) -> Option<&'static str> {
        match self {
            // A number in place of a text is accepted but not advertised.
            Self::Text | Self::Word | Self::Range => Some("string"),
            Self::Integer => Some("integer"),
            Self::Flag => Some("boolean"),
            Self::List(_) => Some("array"),
            Self::Object => Some("object"),
            Self::Any => None,
        }
    }
}

impl ItemType {
    fn schema(self) -> Value {
        match self {
            Self::Texts => json!({ "type": "string" }),
            Self::Integers => json!({ "type": "integer" }),
            Self::Descriptors => json!({ "anyOf": [{ "type": "string" }, part_schema()] }),
        }
    }
}

/// The schema of a part of a descriptor as an object.
fn part_schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "properties": {
            "fd": text("The descriptor, such as fd:1"),
            "lines": text("Only these lines, such as 10-40"),
            "pages": text("Only these pages, such as 2-3"),
            "chars": text("Only these characters, such as 0-99"),
            "section": text("Only this marked section")
        },
        "required": ["fd"],
        "additionalProperties": false
    })
}

impl Parameter {
    const fn new(kind: ParameterKind, name: &'static str, description: &'static str) -> Self {
        let choices = &[] as &[&str];
        let bounds = (None, None);
        Self {
            name,
            kind,
            description,
            choices,
            bounds,
            is_required: false,
            is_hidden: false,
            other_names: &[],
            near_names: &[],
            type_hint: "",
            required_feature: RequiredFeature::None,
        }
    }

    /// A text.
    #[must_use]
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Text, name, description)
    }

    /// A text that may be written as a number.
    #[must_use]
    pub const fn word(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Word, name, description)
    }

    /// An integer.
    #[must_use]
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Integer, name, description)
    }

    /// `true` or `false`.
    #[must_use]
    pub const fn flag(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Flag, name, description)
    }

    /// A list of at most [`MAX_ITEMS`] items.
    #[must_use]
    pub const fn list(items: ItemType, name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::List(items), name, description)
    }

    /// Makes the parameter required. The tool itself checks its presence, so that the error can
    /// state what to provide.
    #[must_use]
    pub const fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    /// Limits the values to these texts.
    #[must_use]
    pub const fn one_of(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }

    /// Sets the minimum of a number, or the minimum length of a text.
    #[must_use]
    pub const fn at_least(self, minimum: u64) -> Self {
        Self {
            bounds: (Some(minimum), self.bounds.1),
            ..self
        }
    }

    /// Sets the maximum of a number, or the maximum length of a text.
    #[must_use]
    pub const fn at_most(self, maximum: u64) -> Self {
        Self {
            bounds: (self.bounds.0, Some(maximum)),
            ..self
        }
    }

    /// A range.
    #[must_use]
    pub const fn range(name: &'static str) -> Self {
        Self::new(ParameterKind::Range, name, "")
    }

    /// An object.
    #[must_use]
    pub const fn object(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Object, name, description)
    }

    /// Any JSON value.
    #[must_use]
    pub const fn any(name: &'static str, description: &'static str) -> Self {
        Self::new(ParameterKind::Any, name, description)
    }

    /// Accepts the parameter without mentioning it in the schema, since models use it on their own.
    #[must_use]
    pub const fn hidden(self) -> Self {
        Self {
            is_hidden: true,
            ..self
        }
    }

    /// Accepts the parameter under further names, which the schema does not mention.
    #[must_use]
    pub const fn also(self, other_names: &'static [&'static str]) -> Self {
        Self {
            other_names,
            ..self
        }
    }

    /// Suggests this parameter to a call that uses one of these names.
    #[must_use]
    pub const fn suggested_for(self, near_names: &'static [&'static str]) -> Self {
        Self { near_names, ..self }
    }

    /// What an error about a value of a wrong type adds.
    #[must_use]
    pub const fn hinting(self, type_hint: &'static str) -> Self {
        Self { type_hint, ..self }
    }

    /// What an error about a value of a wrong type adds; may be empty.
    #[must_use]
    pub fn type_hint(&self) -> &'static str {
        self.type_hint
    }

    /// Whether the parameter is also accepted under this name.
    #[must_use]
    pub fn is_also(&self, name: &str) -> bool {
        self.other_names.contains(&name)
    }

    /// Whether the parameter is suggested to a call that uses this name.
    #[must_use]
    pub fn is_suggested_for(&self, name: &str) -> bool {
        self.near_names.contains(&name)
    }

    /// Offers the parameter only if the program has descriptors.
    #[must_use]
    pub const fn with_descriptors(self) -> Self {
        Self {
            required_feature: RequiredFeature::Descriptors,
            ..self
        }
    }

    /// Offers the parameter only if the program has tools for temporary files.
    #[must_use]
    pub const fn with_temp_files(self) -> Self {
        Self {
            required_feature: RequiredFeature::TempFiles,
            ..self
        }
    }

    /// Whether the parameter is offered to a program.
    #[must_use]
    pub fn is_offered(&self, offered: OfferedParameters) -> bool {
        match self.required_feature {
            RequiredFeature::None => true,
            RequiredFeature::Descriptors => offered.descriptors,
            RequiredFeature::TempFiles => offered.temp_files,
        }
    }

    fn schema(&self) -> Value {
        let mut schema = Map::new();
        let schema_type = self.kind.schema_type();
        schema.extend(schema_type.map(|name| ("type".to_owned(), name.into())));
        if let ParameterKind::List(items) = self.kind {
            schema.insert("items".into(), items.schema());
            schema.insert("maxItems".into(), MAX_ITEMS.into());
        }
        if !self.choices.is_empty() {
            schema.insert("enum".into(), self.choices.into());
        }
        let (minimum, maximum) = match self.kind {
            ParameterKind::Integer => ("minimum", "maximum"),
            _ => ("minLength", "maxLength"),
        };
        for (key, bound) in [(minimum, self.bounds.0), (maximum, self.bounds.1)] {
            bound.map(|bound| schema.insert(key.into(), bound.into()));
        }
        schema.insert("description".into(), self.description.into());
        schema.into()
    }
}

/// The names of the parameters that the schema contains.
pub fn names(
    parameters: &[Parameter],
    offered: OfferedParameters,
) -> impl Iterator<Item = &'static str> {
    parameters
        .iter()
        .filter(move |parameter| parameter.is_offered(offered) && !parameter.is_hidden)
        .map(|parameter| parameter.name)
}

/// Finds the parameter that a key of a call means: by its name, then by its other names; then by
/// both again with the key in snake case.
#[must_use]
pub fn find<'a>(
    parameters: &'a [Parameter],
    offered: OfferedParameters,
    key: &str,
) -> Option<&'a Parameter> {
    let find_where = |is_meant: &dyn Fn(&Parameter) -> bool| {
        let mut parameters = parameters.iter();
        parameters.find(|parameter| parameter.is_offered(offered) && is_meant(parameter))
    };
    let by_name = |key: &str| find_where(&|parameter: &Parameter| parameter.name == key);
    let by_other_name = |key: &str| find_where(&|parameter: &Parameter| parameter.is_also(key));
    let spelled = snake_case(key);
    by_name(key)
        .or_else(|| by_other_name(key))
        .or_else(|| by_name(&spelled))
        .or_else(|| by_other_name(&spelled))
}

/// The name in the spelling of the schemas: `startLine` and `start-line` become `start_line`.
#[must_use]
pub fn snake_case(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len() + 4);
    let mut previous = None;
    for char in name.chars() {
        if char.is_ascii_uppercase() && previous.is_some_and(|char: char| char.is_ascii_lowercase())
        {
            spelled.push('_');
        }
        spelled.push(match char {
            '-' => '_',
            other => other.to_ascii_lowercase(),
        });
        previous = Some(char);
    }
    spelled
}

/// The JSON schema of the arguments.
pub(super) fn schema(parameters: &[Parameter], offered: OfferedParameters) -> Value {
    let offered_parameters = parameters
        .iter()
        .filter(|parameter| parameter.is_offered(offered) && !parameter.is_hidden);
    let properties: Map<_, _> = offered_parameters
        .clone()
        .map(|parameter| (parameter.name.into(), parameter.schema()))
        .collect();
    let required: Vec<_> = offered_parameters
        .filter(|parameter| parameter.is_required)
        .map(|parameter| parameter.name)
        .collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["additionalProperties"] = false.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_describes_each_parameter() {
        const PARAMETERS: [Parameter; 7] = [
            Parameter::text("fd", "The descriptor").required(),
            Parameter::integer("page", "A page").at_least(1).at_most(9),
            Parameter::text("mode", "How").one_of(&["page", "line"]),
            Parameter::text("name", "A name").at_least(1).at_most(64),
            Parameter::text("fd_id", "").hidden(),
            Parameter::list(ItemType::Integers, "pids", "Which"),
            Parameter::flag("all", "Everything").with_temp_files(),
        ];
        let offered = OfferedParameters {
            temp_files: false,
            ..OfferedParameters::ALL
        };
        let expected = json!({
            "type": "object",
            "properties": {
                "fd": { "type": "string", "description": "The descriptor" },
                "page": { "type": "integer", "minimum": 1, "maximum": 9, "description": "A page" },
                "mode": { "type": "string", "enum": ["page", "line"], "description": "How" },
                "name": { "type": "string", "minLength": 1, "maxLength": 64, "description": "A \
                     name" },
                "pids": { "type": "array", "items": { "type": "integer" }, "maxItems": 64, "description": "Which" },
            },
            "required": ["fd"],
            "additionalProperties": false,
        });
        assert_eq!(
            schema(&PARAMETERS, offered).to_string(),
            expected.to_string(),
            "in this order"
        );
        assert!(schema(&PARAMETERS, OfferedParameters::ALL)["properties"]["all"].is_object());
        assert_eq!(names(&PARAMETERS, OfferedParameters::ALL).count(), 6);
    }
}
