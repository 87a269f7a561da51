//! The `--allow` flags, and the host permissions that they grant.

use std::path::PathBuf;

use clap::Args;
use dormouse::host;

/// What programs may do to this machine. Without these flags: nothing.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Permissions {
    /// Permit running these programs.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) allow_run: Vec<String>,
    /// Pass these environment variables to the programs that ask for them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) allow_env: Vec<String>,
    /// Permit connecting to these machines when a program names one by its address: 127.0.0.1:8082,
    /// models.example. Names restrict the kernel itself only: commands and servers may then connect
    /// to any machine by IP, and to these ports only if every name has one. Without names: permit
    /// everything, sockets of this machine included.
    #[arg(long, value_name = "MACHINE,…", value_delimiter = ',', num_args = 0.., require_equals = true)]
    pub(crate) allow_net: Option<Vec<String>>,
    /// Permit reading files below these folders.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Permit writing files below these folders; absent folders are created.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub(crate) allow_write: Vec<PathBuf>,
    /// Permit these programs to run unconfined, as commands or tool servers: they can do all that
    /// you can. Without names: permit commands and servers to run even if this system cannot
    /// confine them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., require_equals = true)]
    pub(crate) allow_unconfined: Option<Vec<String>>,
}

impl Permissions {
    /// Whether no flag was given.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what the flags permit to `implied`.
    pub(crate) fn added_to(&self, implied: host::Permissions) -> host::Permissions {
        let Self {
            allow_run,
            allow_env,
            allow_net,
            allow_read,
            allow_write,
            allow_unconfined,
        } = self;
        let mut permissions = implied;
        for name in allow_run {
            permissions = permissions.allow_run(name);
        }
        match allow_unconfined.as_deref() {
            None => {}
            Some([]) => permissions = permissions.allow_without_confinement(),
            Some(names) => {
                for name in names {
                    permissions = permissions.allow_unconfined(name);
                }
            }
        }
        for name in allow_env {
            permissions = permissions.allow_env(name);
        }
        match allow_net.as_deref() {
            None => {}
            Some([]) => permissions = permissions.allow_any_net(),
            Some(machines) => {
                for machine in machines {
                    permissions = permissions.allow_net(machine);
                }
            }
        }
        for root in allow_read {
            permissions = permissions.allow_read(root);
        }
        for root in allow_write {
            permissions = permissions.allow_write(root);
        }
        permissions
    }
}
