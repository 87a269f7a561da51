//! What programs will ask of the host, and are not permitted: said before anything runs.

use dormouse_kernel::program::{Program, Requirement, Resource};

use super::kernel::Kernel;

/// Something that a program needs and will not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What it needs.
    pub requirement: Requirement,
    /// Why it will not get that, and what permits it, in the host's words.
    pub why: String,
}

impl Kernel {
    /// What this program and all that it links need ([`Program::requirements`]) and this host does not permit, or does not have.
    /// Nothing is started, and no connection made. It is advice: a program runs without what it is refused, and reads why.
    #[must_use]
    pub fn missing(&self, program: &Program) -> Vec<Missing> {
        let missing = program.requirements().into_iter().map(|requirement| {
            let why = self.permits(&requirement.resource).err()?;
            Some(Missing { requirement, why })
        });
        missing.flatten().collect()
    }

    fn permits(&self, resource: &Resource) -> Result<(), String> {
        let host = &self.world.host;
        match resource {
            Resource::Command(argv) => argv.first().map_or(Ok(()), |program| host.permits_program(program)),
            Resource::Address { endpoint: Some((machine, port)), .. } => host.connect(machine, *port),
            Resource::Address { url, endpoint: None } => Err(format!("{url} is no address of a machine.")),
            Resource::Variable(name) => host.variable(name).map(drop),
            Resource::Files(file_use) => host.permits_files(*file_use),
        }
    }
}
