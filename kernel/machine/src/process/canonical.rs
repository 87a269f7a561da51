//! The canonical form of the arguments of a call: as the tool takes them.
//!
//! Tools accept more than their schemas say: a tool of the kernel takes other names of a parameter,
//! and numbers, booleans and lists as strings; a command has defaults. What judges calls by their
//! arguments (the rules of `tools.ask`, and the fence, which finds calls that repeat an effect)
//! looks at this form, so that no spelling passes it by. How other tools take their arguments is
//! not known: theirs are as they are written.

use std::borrow::Cow;

use serde_json::Value;

use super::State;
use super::toolbox::BoundTool;

impl State {
    /// The canonical form of the arguments of a call. What is no object stays as it is. O(n).
    pub(super) fn canonical_arguments(&self, tool: &BoundTool, args: Value) -> Value {
        let Value::Object(object) = args else {
            return args;
        };
        Value::Object(match tool {
            BoundTool::Kernel(tool) => tool.canonical_arguments(&object),
            BoundTool::External(tool) => {
                let mut commands = self.program.commands().iter();
                let command = commands.find(|command| *command.name == *tool.name);
                match command.filter(|_| tool.server.is_none()) {
                    Some(command) => command.canonical_arguments(&object),
                    None => object,
                }
            }
        })
    }
}

impl BoundTool {
    /// The name of an argument in the canonical form of a call. Of a JSON pointer, the first part
    /// is the name.
    pub(super) fn canonical_argument<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let Self::Kernel(tool) = self else {
            return name.into();
        };
        let Some(pointer) = name.strip_prefix('/') else {
            return tool.canonical_name(name).into();
        };
        let (first, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
        format!("/{}{rest}", tool.canonical_name(first)).into()
    }
}
