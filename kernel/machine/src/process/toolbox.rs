//! The toolbox of a process: maps each tool name to its tool, and holds the tool specifications
//! that are sent to the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::budget::Price;
use dormouse_proto::effect::RepeatRule;
use dormouse_proto::tool::{Access, ExternalTool, ToolPolicy, ToolSpec};
use serde_json::Value;

use crate::tool::{Handler, ProcessHandler, Tool, ToolSet};
use dormouse_program::{EnabledTool, Named, Program, ValueSchema};

/// A tool that the host registers with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTool {
    /// Specification for the model.
    pub spec: ToolSpec,
    /// Access, idempotence and limits of its calls.
    pub policy: ToolPolicy,
}

/// What the host provides to a process: tools, environment and prices. A process gets the host
/// context each time the process is loaded; the context is never journalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostContext {
    /// Tools of the kernel.
    pub kernel_tools: &'static ToolSet,
    /// Registered tools by name.
    pub tools: BTreeMap<Arc<str>, HostTool>,
    /// Values that describe the environment and that a program may request, by name.
    pub environment: BTreeMap<String, String>,
    /// Default prices by model name, for programs that set none.
    pub prices: BTreeMap<String, Price>,
    /// How repeated calls of registered tools are recognised, by name of the tool.
    pub repeat_rules: BTreeMap<Arc<str>, RepeatRule>,
    /// Whether somebody can answer calls that are held.
    pub attendance: Attendance,
}

/// Whether somebody can answer calls that are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attendance {
    /// Somebody can.
    #[default]
    Attended,
    /// Nobody can.
    Unattended,
}

impl HostContext {
    /// A host that provides only the tools of the kernel.
    #[must_use]
    pub fn new(kernel_tools: &'static ToolSet) -> Self {
        Self {
            kernel_tools,
            tools: BTreeMap::new(),
            environment: BTreeMap::new(),
            prices: BTreeMap::new(),
            repeat_rules: BTreeMap::new(),
            attendance: Attendance::Attended,
        }
    }
}

/// The tool that a name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BoundTool {
    /// A tool of the kernel.
    Kernel(&'static Tool),
    /// A command, or a tool of the host or of a server. It runs outside of the machine.
    External(ExternalTool),
}

impl BoundTool {
    /// The handler of a process tool; `None` for any other tool.
    pub(super) fn process_handler(&self) -> Option<ProcessHandler> {
        match self {
            Self::Kernel(tool) => match tool.handler {
                Handler::Process(handler) => Some(handler),
                Handler::Table(_) => None,
            },
            Self::External(_) => None,
        }
    }

    /// Whether a call of this tool creates children.
    pub(super) fn makes_children(&self) -> bool {
        matches!(self, Self::Kernel(tool) if tool.makes_children())
    }

    /// The name by which the program refers to the tool.
    pub(super) fn name_in_program(&self) -> &str {
        match self {
            Self::Kernel(tool) => tool.name,
            Self::External(tool) => tool.name_in_program(),
        }
    }

    /// Whether a call of this tool submits the result of the process.
    fn submits_result(&self) -> bool {
        matches!(self, Self::Kernel(tool) if tool.submits_result())
    }

    /// The name that the kernel gives to its tool, independent of aliases; `None` for other tools.
    fn kernel_name(&self) -> Option<&'static str> {
        match self {
            Self::Kernel(tool) => Some(tool.name),
            Self::External(_) => None,
        }
    }
}

/// A tool and the access level that its calls require.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolBinding {
    pub(super) tool: BoundTool,
    pub(super) access: Access,
}

impl ToolBinding {
    fn external_tool(&self) -> Option<&ExternalTool> {
        if let BoundTool::External(tool) = &self.tool {
            Some(tool)
        } else {
            None
        }
    }
}

/// The tools of one process. Only the names that were sent to the model can be called: an alias
/// hides the original name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toolbox {
    bindings: BTreeMap<Arc<str>, ToolBinding>,
    specs: Arc<[ToolSpec]>,
    /// The tools that run outside of the machine.
    external: Arc<[ExternalTool]>,
    /// The tool that submits the result of the process, if it has to submit one.
    result_tool: Option<ResultTool>,
}

/// The tool that submits the result of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResultTool {
    /// The name that the model sees.
    pub(super) name: Arc<str>,
    /// The schema of the arguments, which contains that of the result.
    pub(super) arguments: ValueSchema,
}

/// Read access to the tools of a process. Cloning costs a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    pub(super) toolbox: Arc<Toolbox>,
}

impl Tools {
    /// Specifications in the order in which they are sent to the model.
    #[must_use]
    pub fn specs(&self) -> &[ToolSpec] {
        &self.toolbox.specs
    }

    /// The tools that run outside of the machine: commands, and tools of the host and of servers.
    #[must_use]
    pub fn external(&self) -> &[ExternalTool] {
        &self.toolbox.external
    }

    /// Access level that a call of this tool requires; `None` if there is no such tool. A tool that
    /// requires only read access changes nothing.
    #[must_use]
    pub fn access(&self, name: &str) -> Option<Access> {
        self.toolbox.find(name).map(|binding| binding.access)
    }
}

impl Toolbox {
    /// Tools of a new process of `program`, before tools of tool servers are added.
    pub(super) fn new(program: &Program, host: &HostContext) -> Self {
        let submits_result = |enabled: &EnabledTool| {
            let tool = host.kernel_tools.find(&enabled.name);
            tool.is_some_and(Tool::submits_result)
        };
        let bound_tools = program
            .tools()
            .iter()
            .filter(|enabled| !submits_result(enabled))
            .filter_map(|enabled| bind_tool(enabled, program, host));
        let (specs, bindings): (Vec<_>, BTreeMap<_, _>) = bound_tools
            .map(|(spec, binding)| (spec.clone(), (spec.name, binding)))
            .unzip();
        let external: Arc<[_]> = specs
            .iter()
            .filter_map(|spec| bindings.get(&spec.name)?.external_tool().cloned())
            .collect();
        match &program.result().schema {
            Some(schema) => {
                let specs = with_result_tool(&specs, program, host.kernel_tools, schema);
                Self::from_stored(program, host.kernel_tools, specs, external)
            }
            None => Self {
                bindings,
                specs: specs.into(),
                external,
                result_tool: None,
            },
        }
    }

    /// Tools of a process that exists already, from the specifications that were stored when it was
    /// created. Later changes of the host or of a server have no effect. Access levels and aliases
    /// of kernel tools are read from `program`.
    pub(super) fn from_stored(
        program: &Program,
        kernel_tools: &ToolSet,
        specs: Arc<[ToolSpec]>,
        external: Arc<[ExternalTool]>,
    ) -> Self {
        let result_tool = find_result_tool(program, kernel_tools);
        let enabled_tools = program.tools().iter().chain(result_tool.as_ref());
        let kernel_bindings = enabled_tools.filter_map(|enabled| {
            let tool = kernel_tools.find(&enabled.name)?;
            Some((
                enabled.called(),
                ToolBinding {
                    tool: BoundTool::Kernel(tool),
                    access: enabled.access.unwrap_or(tool.access),
                },
            ))
        });
        let kernel_bindings: BTreeMap<_, _> = kernel_bindings.collect();
        let find_binding = |name: &str| {
            let mut external = external.iter();
            match external.find(|tool| *tool.name_for_model == *name) {
                Some(tool) => Some(ToolBinding {
                    tool: BoundTool::External(tool.clone()),
                    access: tool.policy.access,
                }),
                None => kernel_bindings.get(name).cloned(),
            }
        };
        let bindings: BTreeMap<_, _> = specs
            .iter()
            .filter_map(|spec| Some((spec.name.clone(), find_binding(&spec.name)?)))
            .collect();
        let result_tool = specs.iter().find_map(|spec| {
            let binding = bindings.get(&spec.name)?;
            binding.tool.submits_result().then_some(())?;
            let arguments = serde_json::from_str(&spec.schema).ok()?;
            Some(ResultTool {
                name: spec.name.clone(),
                arguments: ValueSchema::parse_arguments(arguments).ok()?,
            })
        });
        Self {
            bindings,
            specs,
            external,
            result_tool,
        }
    }

    /// The tool that submits the result of the process; `None` if it has to submit none.
    pub(super) fn result_tool(&self) -> Option<&ResultTool> {
        self.result_tool.as_ref()
    }

    /// Whether the toolbox has exactly these tools.
    pub(super) fn has_exactly(
        &self,
        specs: &Arc<[ToolSpec]>,
        external: &Arc<[ExternalTool]>,
    ) -> bool {
        self.specs == *specs && self.external == *external
    }

    pub(super) fn find(&self, name: &str) -> Option<&ToolBinding> {
        self.bindings.get(name)
    }

    /// The tool that starts a process of a linked program, with the name that the model sees; `None`
    /// if the process has no such tool.
    pub(super) fn spawn_tool(&self) -> Option<(&str, &ToolBinding)> {
        let spawns = |binding: &ToolBinding| {
            let handler = binding.tool.process_handler();
            matches!(handler, Some(ProcessHandler::Spawn { .. }))
        };
        let mut bindings = self.bindings.iter();
        let (name, binding) = bindings.find(|(_, binding)| spawns(binding))?;
        Some((&**name, binding))
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| &*spec.name).collect()
    }

    /// The names that the kernel gives to the kernel tools of this toolbox.
    pub(super) fn kernel_tool_names(&self) -> Vec<&'static str> {
        self.bindings
            .values()
            .filter_map(|binding| binding.tool.kernel_name())
            .collect()
    }

    /// The kernel tools that the program renames: the name that the kernel gives to each, and the
    /// name that the model sees.
    pub(super) fn aliases(&self) -> Vec<(&'static str, &str)> {
        let names = self
            .bindings
            .iter()
            .filter_map(|(shown_name, binding)| Some((binding.tool.kernel_name()?, &**shown_name)));
        names
            .filter(|(kernel_name, shown_name)| kernel_name != shown_name)
            .collect()
    }

    pub(super) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    /// Tools that run outside of the machine, in the order of [`Toolbox::specs`].
    pub(super) fn external(&self) -> &[ExternalTool] {
        &self.external
    }

    /// As [`Toolbox::external`], shared.
    pub(super) fn external_tools(&self) -> Arc<[ExternalTool]> {
        self.external.clone()
    }
}

/// The tool that submits a result, as the program enables it, or unchanged. `None` if the kernel has
/// no such tool.
fn find_result_tool(program: &Program, kernel_tools: &ToolSet) -> Option<EnabledTool> {
    let tool = kernel_tools
        .tools
        .iter()
        .find(|tool| tool.submits_result())?;
    let mut enabled = program.tools().iter();
    let enabled = enabled.find(|enabled| enabled.name == tool.name).cloned();
    Some(enabled.unwrap_or_else(|| EnabledTool::plain(tool.name.to_owned())))
}

/// The tools of a process that has to submit a result of this schema.
pub(super) fn with_result_tool(
    specs: &[ToolSpec],
    program: &Program,
    kernel_tools: &ToolSet,
    schema: &ValueSchema,
) -> Arc<[ToolSpec]> {
    let result_tool = find_result_tool(program, kernel_tools).and_then(|enabled| {
        let tool = kernel_tools.find(&enabled.name)?;
        let spec = ToolSpec {
            schema: schema.to_parameters().to_string().into(),
            ..tool.spec(program, kernel_tools)
        };
        Some(apply_overrides(spec, &enabled))
    });
    let name = result_tool.as_ref().map(|tool| tool.name.clone());
    let others = specs
        .iter()
        .filter(|spec| Some(&spec.name) != name.as_ref());
    others.cloned().chain(result_tool).collect()
}

/// Finds a tool that the program enables, and applies the settings of the program to it. `None` if
/// neither the kernel nor the host has the tool.
fn bind_tool(
    enabled: &EnabledTool,
    program: &Program,
    host: &HostContext,
) -> Option<(ToolSpec, ToolBinding)> {
    let (mut tool, default_access, spec) = find_tool(&enabled.name, program, host)?;
    let spec = apply_overrides(spec, enabled);
    let access = enabled.access.unwrap_or(default_access);
    if let BoundTool::External(external) = &mut tool {
        external.name_for_model = spec.name.clone();
        external.policy.access = access;
    }
    Some((spec, ToolBinding { tool, access }))
}

/// Applies the name and the descriptions that the program gives to a tool.
pub(super) fn apply_overrides(mut spec: ToolSpec, enabled: &EnabledTool) -> ToolSpec {
    if let Some(alias) = &enabled.alias {
        spec.name = alias.as_str().into();
    }
    if let Some(description) = &enabled.description {
        spec.description = description.as_str().into();
    }
    if !enabled.parameters.is_empty() {
        spec.schema = with_descriptions(&spec.schema, &enabled.parameters);
    }
    spec
}

/// Replaces the descriptions of parameters in a schema. Unknown parameters are ignored, since the
/// program was checked against the tools when it was loaded.
fn with_descriptions(schema: &str, parameters: &[Named<String>]) -> Arc<str> {
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

/// Finds a tool by name among the tools of the kernel, the commands of the program and the tools of
/// the host, in that order.
fn find_tool(
    name: &str,
    program: &Program,
    host: &HostContext,
) -> Option<(BoundTool, Access, ToolSpec)> {
    if let Some(tool) = host.kernel_tools.find(name) {
        let spec = tool.spec(program, host.kernel_tools);
        return Some((BoundTool::Kernel(tool), tool.access, spec));
    }
    let command = program
        .commands()
        .iter()
        .find(|command| command.name == name);
    let (spec, policy) = match command {
        Some(command) => (command.spec(), command.policy),
        None => host
            .tools
            .get(name)
            .map(|tool| (tool.spec.clone(), tool.policy))?,
    };
    let repeat = host.repeat_rules.get(name).filter(|_| command.is_none());
    let name = spec.name.clone();
    let external = ExternalTool {
        name_for_model: name.clone(),
        server: None,
        name,
        policy,
        repeat: repeat.cloned().unwrap_or_default(),
    };
    Some((BoundTool::External(external), policy.access, spec))
}
