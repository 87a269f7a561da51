//! Parameters of tools, the one place where a tool says what it takes: its JSON schema and the
//! check of a call come from them.

use serde_json::{Map, Value, json};

use super::handed;
use crate::program::Program;

/// A parameter of a tool of the kernel.
///
/// # Examples
///
/// `Parameter::integer("page", "A page, counted from 1").at_least(1)` is
/// `{"type": "integer", "minimum": 1, "description": "A page, counted from 1"}` in the schema. What
/// a call gives for it must be an integer, and the tool itself checks the bound, so that it can say
/// what is valid.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    description: &'static str,
    choices: &'static [&'static str],
    /// The least and the most: of a number, or of the characters of a text.
    bounds: (Option<u64>, Option<u64>),
    is_required: bool,
    is_alias: bool,
    needs: Needs,
}

/// Types of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A text, or a number that is one.
    Word,
    Integer,
    Flag,
    List(Items),
}

/// What a list holds. The tool itself checks its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    Texts,
    Integers,
    /// Descriptors, whole or in part.
    Descriptors,
}

/// What a program must have for its processes to be told of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Descriptors,
    TempFiles,
}

/// Which parameters a process has, by its program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    descriptors: bool,
    temp_files: bool,
}

impl Offered {
    pub(super) const ALL: Self = Self {
        descriptors: true,
        temp_files: true,
    };

    pub(super) fn by(program: &Program) -> Self {
        let shares_files = program
            .tools()
            .iter()
            .any(|tool| super::is_of(super::Group::TempFiles, &tool.name));
        Self {
            descriptors: program.descriptors().is_some(),
            temp_files: shares_files,
        }
    }
}

impl Kind {
    /// What is accepted, for an error.
    pub(super) fn accepted(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Word => "a string or a number",
            Self::Integer => "an integer",
            Self::Flag => "true or false",
            Self::List(_) => "a list",
        }
    }

    fn word(self) -> &'static str {
        match self {
            // A number in place of a word is accepted and never asked for.
            Self::Text | Self::Word => "string",
            Self::Integer => "integer",
            Self::Flag => "boolean",
            Self::List(_) => "array",
        }
    }
}

impl Items {
    fn schema(self) -> Value {
        match self {
            Self::Texts => json!({ "type": "string" }),
            Self::Integers => json!({ "type": "integer" }),
            Self::Descriptors => handed::item_schema(),
        }
    }
}

impl Parameter {
    const fn new(kind: Kind, name: &'static str, description: &'static str) -> Self {
        let (choices, bounds) = (&[] as &[&str], (None, None));
        Self {
            name,
            kind,
            description,
            choices,
            bounds,
            is_required: false,
            is_alias: false,
            needs: Needs::Nothing,
        }
    }

    pub(super) const fn text(name: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Text, name, description)
    }

    /// A text. A model that writes a number means that.
    pub(super) const fn word(name: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Word, name, description)
    }

    pub(super) const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Integer, name, description)
    }

    pub(super) const fn flag(name: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Flag, name, description)
    }

    pub(super) const fn list(items: Items, name: &'static str, description: &'static str) -> Self {
        Self::new(Kind::List(items), name, description)
    }

    /// Must be given. The tool itself checks it, so that it can say what to give.
    pub(super) const fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    pub(super) const fn one_of(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }

    /// Of a number: no less. Of a text: no fewer characters.
    pub(super) const fn at_least(self, least: u64) -> Self {
        Self {
            bounds: (Some(least), self.bounds.1),
            ..self
        }
    }

    /// Of a number: no more. Of a text: no more characters.
    pub(super) const fn at_most(self, most: u64) -> Self {
        Self {
            bounds: (self.bounds.0, Some(most)),
            ..self
        }
    }

    /// Another name of a parameter, which models use of their own accord: accepted, and told to
    /// nobody.
    pub(super) const fn alias(name: &'static str) -> Self {
        Self {
            is_alias: true,
            ..Self::text(name, "")
        }
    }

    /// Only where processes have descriptors.
    pub(super) const fn with_descriptors(self) -> Self {
        Self {
            needs: Needs::Descriptors,
            ..self
        }
    }

    /// Only where processes know of temporary files.
    pub(super) const fn with_temp_files(self) -> Self {
        Self {
            needs: Needs::TempFiles,
            ..self
        }
    }

    pub(super) fn is_offered(&self, offered: Offered) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Descriptors => offered.descriptors,
            Needs::TempFiles => offered.temp_files,
        }
    }

    fn schema(&self) -> Value {
        let mut schema = Map::new();
        schema.insert("type".into(), self.kind.word().into());
        if let Kind::List(items) = self.kind {
            schema.insert("items".into(), items.schema());
            schema.insert("maxItems".into(), handed::MAX_ITEMS.into());
        }
        if !self.choices.is_empty() {
            schema.insert("enum".into(), self.choices.into());
        }
        let (least, most) = match self.kind {
            Kind::Integer => ("minimum", "maximum"),
            _ => ("minLength", "maxLength"),
        };
        for (key, bound) in [(least, self.bounds.0), (most, self.bounds.1)] {
            bound.map(|bound| schema.insert(key.into(), bound.into()));
        }
        schema.insert("description".into(), self.description.into());
        schema.into()
    }
}

/// The names of those that a model is told of.
pub(super) fn names(
    parameters: &[Parameter],
    offered: Offered,
) -> impl Iterator<Item = &'static str> {
    parameters
        .iter()
        .filter(move |parameter| parameter.is_offered(offered) && !parameter.is_alias)
        .map(|parameter| parameter.name)
}

/// The JSON schema of the arguments.
pub(super) fn schema(parameters: &[Parameter], offered: Offered) -> Value {
    let told = parameters
        .iter()
        .filter(|parameter| parameter.is_offered(offered) && !parameter.is_alias);
    let properties: Map<_, _> = told
        .clone()
        .map(|parameter| (parameter.name.into(), parameter.schema()))
        .collect();
    let required: Vec<_> = told
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
    fn a_schema_says_what_the_parameters_say() {
        const PARAMETERS: [Parameter; 7] = [
            Parameter::text("fd", "The descriptor").required(),
            Parameter::integer("page", "A page").at_least(1).at_most(9),
            Parameter::text("mode", "How").one_of(&["page", "line"]),
            Parameter::text("name", "A name").at_least(1).at_most(64),
            Parameter::alias("fd_id"),
            Parameter::list(Items::Integers, "pids", "Which"),
            Parameter::flag("all", "Everything").with_temp_files(),
        ];
        let offered = Offered {
            temp_files: false,
            ..Offered::ALL
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
        assert!(schema(&PARAMETERS, Offered::ALL)["properties"]["all"].is_object());
        assert_eq!(names(&PARAMETERS, Offered::ALL).count(), 6);
    }
}
