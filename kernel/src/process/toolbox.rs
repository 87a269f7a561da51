//! Which tool stands behind a name that a model was given.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::budget::Price;
use dormouse_proto::tool::{Access, OutsideTool, ToolPolicy, ToolSpec};
use serde_json::Value;

use crate::program::{Named, Program, ToolChoice};
use crate::syscall::{self, Tool, fork, spawn};

/// A tool that the host registered with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTool {
    /// What a model is told of it.
    pub spec: ToolSpec,
    /// How it is run.
    pub policy: ToolPolicy,
}

/// What the machine knows of the world around it: given when a process begins to run, never
/// journalled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostContext {
    /// The tools that the host registered, by name.
    pub tools: BTreeMap<Arc<str>, HostTool>,
    /// Facts of the environment that a program may ask for, by name.
    pub environment: BTreeMap<String, String>,
    /// What models cost, by their names, where no program says.
    pub prices: BTreeMap<String, Price>,
}

/// The tool that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A tool of the kernel.
    Kernel(&'static Tool),
    /// A command, a tool of the host or of a server: it runs outside of the machine.
    External(OutsideTool),
}

impl Kind {
    /// Whether it is this tool of the kernel.
    pub(super) fn is(&self, tool: &Tool) -> bool {
        matches!(self, Self::Kernel(own) if *own == tool)
    }

    /// Whether its calls make children.
    pub(super) fn makes_children(&self) -> bool {
        self.is(&fork::TOOL) || self.is(&spawn::TOOL)
    }

    /// The own name of a tool of the kernel.
    fn word(&self) -> Option<&'static str> {
        match self {
            Self::Kernel(tool) => Some(tool.name),
            Self::External(_) => None,
        }
    }
}

/// A tool under the name that the model was given, and what a process needs to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) kind: Kind,
    pub(super) access: Access,
}

impl Binding {
    fn outside(&self) -> Option<&OutsideTool> {
        if let Kind::External(tool) = &self.kind {
            Some(tool)
        } else {
            None
        }
    }
}

/// The tools of one process. Only the names that the model was given lead to a tool: an alias hides
/// the original name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toolbox {
    bindings: BTreeMap<Arc<str>, Binding>,
    specs: Arc<[ToolSpec]>,
    outside: Arc<[OutsideTool]>,
}

/// The tools that a process was given, to look at. Cloning costs two pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    pub(super) toolbox: Arc<Toolbox>,
}

impl Tools {
    /// What its model is told of them, in order. Frozen at its birth.
    #[must_use]
    pub fn specs(&self) -> &[ToolSpec] {
        &self.toolbox.specs
    }

    /// What a process must be allowed to do to call the one of this name: one that needs no more
    /// than to read changes nothing.
    #[must_use]
    pub fn access(&self, name: &str) -> Option<Access> {
        self.toolbox.find(name).map(|binding| binding.access)
    }
}

impl Toolbox {
    /// What a new process of `program` is given, before servers are asked.
    pub(super) fn new(program: &Program, around: &HostContext) -> Self {
        let chosen = program
            .tools()
            .iter()
            .filter_map(|choice| chosen(choice, program, around));
        let (specs, bindings): (Vec<_>, BTreeMap<_, _>) = chosen
            .map(|(spec, binding)| (spec.clone(), (spec.name, binding)))
            .unzip();
        let outside = specs
            .iter()
            .filter_map(|spec| bindings.get(&spec.name)?.outside().cloned())
            .collect();
        Self {
            bindings,
            specs: specs.into(),
            outside,
        }
    }

    /// What a process was given at its birth, whatever has become of it since. Tools of the kernel
    /// are those of `program`.
    pub(super) fn frozen(
        program: &Program,
        specs: Arc<[ToolSpec]>,
        outside: Arc<[OutsideTool]>,
    ) -> Self {
        let own = program.tools().iter().filter_map(|choice| {
            let tool = syscall::tool(&choice.name)?;
            Some((
                choice.called(),
                Binding {
                    kind: Kind::Kernel(tool),
                    access: choice.access.unwrap_or(tool.access),
                },
            ))
        });
        let own: BTreeMap<_, _> = own.collect();
        let binding = |given: &str| match outside.iter().find(|tool| *tool.given == *given) {
            Some(tool) => Some(Binding {
                kind: Kind::External(tool.clone()),
                access: tool.policy.access,
            }),
            None => own.get(given).cloned(),
        };
        let bindings = specs
            .iter()
            .filter_map(|spec| Some((spec.name.clone(), binding(&spec.name)?)))
            .collect();
        Self {
            bindings,
            specs,
            outside,
        }
    }

    /// Whether a process that was given this has exactly these tools.
    pub(super) fn is(&self, specs: &Arc<[ToolSpec]>, outside: &Arc<[OutsideTool]>) -> bool {
        self.specs == *specs && self.outside == *outside
    }

    pub(super) fn find(&self, name: &str) -> Option<&Binding> {
        self.bindings.get(name)
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| &*spec.name).collect()
    }

    /// The kernel's own tools among them, by their own names.
    pub(super) fn kernel_tools(&self) -> Vec<&'static str> {
        self.bindings
            .values()
            .filter_map(|binding| binding.kind.word())
            .collect()
    }

    /// Those of them that the model was given under another name: their own name, and that one.
    pub(super) fn aliases(&self) -> Vec<(&'static str, &str)> {
        let names = self
            .bindings
            .iter()
            .filter_map(|(given, binding)| Some((binding.kind.word()?, &**given)));
        names.filter(|(own, given)| own != given).collect()
    }

    pub(super) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    /// Those that run outside of the machine, in the order of [`Toolbox::specs`].
    pub(super) fn outside(&self) -> Arc<[OutsideTool]> {
        self.outside.clone()
    }
}

/// What a model is told of a tool that the program enables, and what stands behind it.
fn chosen(
    choice: &ToolChoice,
    program: &Program,
    around: &HostContext,
) -> Option<(ToolSpec, Binding)> {
    let (mut kind, access, spec) = tool(&choice.name, program, around)?;
    let (spec, access) = (told(spec, choice), choice.access.unwrap_or(access));
    if let Kind::External(tool) = &mut kind {
        tool.given = spec.name.clone();
        tool.policy.access = access;
    }
    Some((spec, Binding { kind, access }))
}

/// What the program says of a tool, in place of what the tool says of itself.
pub(super) fn told(mut spec: ToolSpec, choice: &ToolChoice) -> ToolSpec {
    if let Some(alias) = &choice.alias {
        spec.name = alias.as_str().into();
    }
    if let Some(description) = &choice.description {
        spec.description = description.as_str().into();
    }
    if !choice.parameters.is_empty() {
        spec.schema = described(&spec.schema, &choice.parameters);
    }
    spec
}

/// The schema with other descriptions. A parameter that is not in it stays away: which ones there
/// are, was checked.
fn described(schema: &str, parameters: &[Named<String>]) -> Arc<str> {
    let Ok(mut schema) = serde_json::from_str::<Value>(schema) else {
        return schema.into();
    };
    for Named { name, value } in parameters {
        let parameter = schema
            .get_mut("properties")
            .and_then(|all| all.get_mut(&name.value));
        if let Some(parameter) = parameter.and_then(Value::as_object_mut) {
            parameter.insert("description".to_owned(), value.as_str().into());
        }
    }
    schema.to_string().into()
}

fn tool(name: &str, program: &Program, around: &HostContext) -> Option<(Kind, Access, ToolSpec)> {
    if let Some(tool) = syscall::tool(name) {
        return Some((Kind::Kernel(tool), tool.access, tool.spec(program)));
    }
    let command = program
        .commands()
        .iter()
        .find(|command| command.name == name);
    let (spec, policy) = match command {
        Some(command) => (command.spec(), command.policy),
        None => around
            .tools
            .get(name)
            .map(|tool| (tool.spec.clone(), tool.policy))?,
    };
    let name = spec.name.clone();
    let outside = OutsideTool {
        given: name.clone(),
        server: None,
        name,
        policy,
    };
    Some((Kind::External(outside), policy.access, spec))
}
