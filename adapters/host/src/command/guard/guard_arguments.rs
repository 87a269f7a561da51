//! The command line of a guard: arguments of the form `key=value`, whose bytes are not escaped. The
//! kernel writes them (`launcher.rs`), the guard reads them (`watch.rs`) and passes them on to its
//! copy that executes the command (`exec.rs`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use dormouse_proto::command::CommandLimits;

use super::super::confine::{Confinement, ConfinementSupport, Folder, Writes};
use crate::permissions::Network;
use crate::sealed::Identity;

/// The settings that the kernel passes to a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) struct GuardArguments {
    /// The pid of the kernel. The command is ended when this process ends.
    pub(in crate::command) kernel: u32,
    /// The pid of the guard, which it adds for its copy that executes the command.
    pub(in crate::command) guard: Option<u32>,
    /// The resource limits of the command; none: unlimited.
    pub(in crate::command) limits: Option<CommandLimits>,
    /// The command's temporary folder, which the guard creates and removes.
    pub(in crate::command) temporary: Option<PathBuf>,
    /// What the command may do; none: it runs unconfined.
    pub(in crate::command) confinement: Option<Confinement>,
    /// What the system supports, as the kernel has probed it.
    pub(in crate::command) support: ConfinementSupport,
}

impl GuardArguments {
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![
            pair("kernel", self.kernel.to_string()),
            pair("support", self.support.to_argument()),
        ];
        arguments.extend(self.guard.map(|guard| pair("guard", guard.to_string())));
        if let Some(CommandLimits {
            memory_bytes,
            processes,
            file_bytes,
            open_files,
        }) = self.limits
        {
            arguments.push(pair(
                "limits",
                format!("{memory_bytes},{processes},{file_bytes},{open_files}"),
            ));
        }
        arguments.extend(
            self.temporary
                .iter()
                .map(|folder| pair("temporary", folder)),
        );
        let Some(Confinement {
            writes,
            network,
            sealed,
        }) = &self.confinement
        else {
            return arguments;
        };
        arguments.push(pair("network", network_text(network)));
        if let Writes::Below(folders) = writes {
            arguments.push(pair("writes", ""));
            for Folder {
                path,
                identity: Identity { device, inode },
            } in folders
            {
                let mut folder = OsString::from(format!("{device},{inode},"));
                folder.push(path);
                arguments.push(pair("folder", folder));
            }
        }
        arguments.extend(sealed.iter().map(|path| pair("sealed", path)));
        arguments
    }

    /// Parses the result of [`to_arguments`](Self::to_arguments), up to `--`, and returns the
    /// arguments after it.
    pub(super) fn parse(arguments: Vec<OsString>) -> Option<(Self, Vec<OsString>)> {
        let mut arguments = arguments.into_iter();
        let (mut kernel, mut guard) = (None, None);
        let (mut limits, mut temporary, mut support) = (None, None, None);
        let (mut network, mut folders, mut sealed) = (None, None, Vec::new());
        for argument in arguments.by_ref().take_while(|argument| argument != "--") {
            let (key, value) = split(&argument, b'=')?;
            match key.to_str()? {
                "kernel" => kernel = Some(value.to_str()?.parse().ok()?),
                "guard" => guard = Some(value.to_str()?.parse().ok()?),
                "limits" => limits = Some(read_limits(value.to_str()?)?),
                "support" => support = Some(ConfinementSupport::parse(value.to_str()?)?),
                "temporary" => temporary = Some(PathBuf::from(value)),
                "network" => network = Some(read_network(value.to_str()?)?),
                "writes" => folders = Some(Vec::new()),
                "folder" => folders.as_mut()?.push(read_folder(&value)?),
                "sealed" => sealed.push(PathBuf::from(value)),
                _ => return None,
            }
        }
        let confinement = network.map(|network| Confinement {
            writes: folders.map_or(Writes::Nothing, Writes::Below),
            network,
            sealed,
        });
        let guard_arguments = Self {
            kernel: kernel?,
            guard,
            limits,
            temporary,
            confinement,
            support: support?,
        };
        Some((guard_arguments, arguments.collect()))
    }
}

fn pair(key: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut pair = OsString::from(key);
    pair.push("=");
    pair.push(value);
    pair
}

fn split(text: &OsStr, at: u8) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let separator = bytes.iter().position(|byte| *byte == at)?;
    Some((
        OsString::from_vec(bytes[..separator].to_vec()),
        OsString::from_vec(bytes[separator + 1..].to_vec()),
    ))
}

fn network_text(network: &Network) -> String {
    match network {
        Network::None => "none".to_owned(),
        Network::Ports(ports) => format!(
            "ports:{}",
            ports
                .iter()
                .map(u16::to_string)
                .collect::<Vec<_>>()
                .join(",")
        ),
        Network::Machines => "machines".to_owned(),
        Network::Any => "any".to_owned(),
    }
}

fn read_network(text: &str) -> Option<Network> {
    match text {
        "none" => Some(Network::None),
        "machines" => Some(Network::Machines),
        "any" => Some(Network::Any),
        _ => {
            let ports = text.strip_prefix("ports:")?;
            ports
                .split(',')
                .map(|port| port.parse().ok())
                .collect::<Option<_>>()
                .map(Network::Ports)
        }
    }
}

fn read_limits(text: &str) -> Option<CommandLimits> {
    let numbers: Vec<u64> = text
        .split(',')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let [memory_bytes, processes, file_bytes, open_files] = numbers[..] else {
        return None;
    };
    let (processes, open_files) = (
        u32::try_from(processes).ok()?,
        u32::try_from(open_files).ok()?,
    );
    Some(CommandLimits {
        memory_bytes,
        processes,
        file_bytes,
        open_files,
    })
}

fn read_folder(text: &OsStr) -> Option<Folder> {
    let (device, rest) = split(text, b',')?;
    let (inode, path) = split(&rest, b',')?;
    let identity = Identity {
        device: device.to_str()?.parse().ok()?,
        inode: inode.to_str()?.parse().ok()?,
    };
    Some(Folder {
        path: PathBuf::from(path),
        identity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_arguments_round_trip() {
        let strange = PathBuf::from(OsString::from_vec(b"/a=b,c\xff --".to_vec()));
        let folder = Folder {
            path: strange.clone(),
            identity: Identity {
                device: 7,
                inode: u64::MAX,
            },
        };
        let confinement = |writes, network| Confinement {
            writes,
            network,
            sealed: vec![strange.clone(), "/x".into()],
        };
        let cases = [
            None,
            Some(confinement(Writes::Nothing, Network::None)),
            Some(confinement(
                Writes::Below(Vec::new()),
                Network::Ports(vec![1, 65535]),
            )),
            Some(confinement(Writes::Below(vec![folder]), Network::Machines)),
            Some(confinement(Writes::Nothing, Network::Any)),
        ];
        for confinement in cases {
            for temporary in [None, Some(strange.clone())] {
                let limits = temporary.is_some().then(|| CommandLimits {
                    processes: 3,
                    ..CommandLimits::default()
                });
                let support = ConfinementSupport::of_this_system().unwrap();
                let guard_arguments = GuardArguments {
                    kernel: 42,
                    guard: temporary.is_some().then_some(43),
                    limits,
                    temporary,
                    confinement: confinement.clone(),
                    support,
                };
                let command: Vec<_> = ["--", "sealed=y"].map(OsString::from).into();
                let arguments = [
                    guard_arguments.to_arguments(),
                    vec!["--".into()],
                    command.clone(),
                ]
                .concat();
                assert_eq!(
                    GuardArguments::parse(arguments),
                    Some((guard_arguments, command))
                );
            }
        }
        assert_eq!(
            GuardArguments::parse(vec!["kernel=1".into(), "nonsense=2".into()]),
            None
        );
    }
}
