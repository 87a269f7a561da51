//! Lists the permissions that a program lacks, and checks its models, before it runs.

use dormouse_kernel::program::{Program, Requirement, Resource};
use dormouse_proto::model::ModelError;

use super::kernel::Kernel;
use crate::ports::HostError;

/// A requirement of a program that the host does not fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermission {
    /// The requirement.
    pub requirement: Requirement,
    /// Why the host refuses it, and how to permit it.
    pub why: HostError,
}

impl Kernel {
    /// The [requirements](Program::requirements) of this program that the host does not permit or
    /// does not have. Starts nothing and makes no connection. The list is advice: the program can
    /// run without them, and its calls that need one fail with the reason.
    #[must_use]
    pub fn missing_permissions(&self, program: &Program) -> Vec<MissingPermission> {
        let missing = program.requirements().into_iter().map(|requirement| {
            let why = self.check_resource(&requirement.resource).err()?;
            Some(MissingPermission { requirement, why })
        });
        missing.flatten().collect()
    }

    /// Checks that a model of this program can be called, as far as that can be checked before a
    /// call: its provider is registered and has a key. Makes no connection.
    ///
    /// # Errors
    /// If no model can be called: the error of the first model, which is the one that a process
    /// calls first.
    pub fn check_models(&self, program: &Program) -> Result<(), ModelError> {
        let mut first = None;
        for choice in program.models() {
            match self.context.model(program, choice) {
                Ok(_) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn check_resource(&self, resource: &Resource) -> Result<(), HostError> {
        let host = &self.context.host;
        match resource {
            Resource::Command(argv) => argv
                .first()
                .map_or(Ok(()), |program| host.permits_program(program)),
            Resource::Address {
                endpoint: Some((machine, port)),
                ..
            } => host.connect(machine, *port),
            Resource::Address {
                url,
                endpoint: None,
            } => Err(HostError::Unsupported(format!(
                "{url} is not the address of a machine."
            ))),
            Resource::Variable(name) => host.variable(name).map(drop),
            Resource::Files(file_use) => host.permits_files(*file_use),
            // The host permits these resources without a permission of their own.
            Resource::SetVariable { .. }
            | Resource::Folder(_)
            | Resource::Limits(_)
            | Resource::Authorities(_) => Ok(()),
        }
    }
}
