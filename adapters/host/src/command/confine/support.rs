//! Probes which parts of the confinement the operating system supports. Each command is confined by
//! its guard, a process between the kernel and the command.

use std::io;

#[cfg(target_os = "linux")]
use landlock::ABI;

/// The confinement that this system supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) struct ConfinementSupport {
    #[cfg(target_os = "linux")]
    landlock: ABI,
    has_seccomp: bool,
}

impl ConfinementSupport {
    /// The confinement that this system supports. The kernel probes the system once and passes the
    /// result to its guards. A guard never probes, since it could not handle a failed probe.
    ///
    /// # Errors
    /// No thread can be started to probe the system.
    #[cfg(target_os = "linux")]
    pub(in crate::command) fn of_this_system() -> io::Result<Self> {
        use std::sync::OnceLock;

        static PROBED: OnceLock<ConfinementSupport> = OnceLock::new();
        if let Some(probed) = PROBED.get() {
            return Ok(*probed);
        }
        let landlock = super::run_on_new_thread(|| {
            Ok(super::landlock_rules::version().unwrap_or(ABI::Unsupported))
        })?;
        let has_seccomp = super::run_on_new_thread(|| Ok(super::seccomp_filter::probe().is_ok()))?;
        Ok(*PROBED.get_or_init(|| Self {
            landlock,
            has_seccomp,
        }))
    }

    /// The support of this system, which confines nothing.
    #[cfg(not(target_os = "linux"))]
    pub(in crate::command) fn of_this_system() -> io::Result<Self> {
        Ok(Self { has_seccomp: false })
    }

    /// The support as an argument for a guard: the version of Landlock, and whether seccomp works.
    #[cfg(target_os = "linux")]
    pub(in crate::command) fn to_argument(self) -> String {
        format!("{},{}", self.landlock as i32, self.has_seccomp)
    }

    #[cfg(not(target_os = "linux"))]
    pub(in crate::command) fn to_argument(self) -> String {
        format!("0,{}", self.has_seccomp)
    }

    /// Parses the result of [`to_argument`](Self::to_argument).
    pub(in crate::command) fn parse(text: &str) -> Option<Self> {
        let (landlock, has_seccomp) = text.split_once(',')?;
        let landlock: i32 = landlock.parse().ok()?;
        let has_seccomp = has_seccomp.parse().ok()?;
        #[cfg(target_os = "linux")]
        return Some(Self {
            landlock: ABI::from(landlock),
            has_seccomp,
        });
        #[cfg(not(target_os = "linux"))]
        return (landlock == 0).then_some(Self { has_seccomp });
    }

    /// Support with this version of Landlock, or with that of the system if it is older.
    #[cfg(all(test, target_os = "linux"))]
    pub(in crate::command) fn with_version(landlock: ABI) -> Self {
        let probed = Self::of_this_system().expect("a test can make a thread");
        Self {
            landlock: landlock.min(probed.landlock),
            ..probed
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn abi(self) -> ABI {
        self.landlock
    }

    /// Restricts the signals of the calling thread to itself and to the processes that it starts.
    /// The calling thread has to be the only one of its process.
    ///
    /// # Errors
    /// This system does not support the restriction.
    #[cfg(target_os = "linux")]
    pub(in crate::command) fn scope_signals(self) -> io::Result<()> {
        match self.landlock >= ABI::V6 {
            true => super::landlock_rules::scope_signals(),
            false => Err(io::Error::other("this system cannot scope signals")),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(in crate::command) fn scope_signals(self) -> io::Result<()> {
        Err(io::Error::other("this system cannot scope signals"))
    }

    /// Whether the system has Landlock, in any version.
    #[cfg(target_os = "linux")]
    pub(super) fn has_landlock(self) -> bool {
        self.landlock != ABI::Unsupported
    }

    #[cfg(not(target_os = "linux"))]
    fn has_landlock(self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    pub(super) fn has_seccomp(self) -> bool {
        self.has_seccomp
    }

    /// Whether the whole confinement is supported.
    pub(in crate::command) fn is_complete(self) -> bool {
        self.has_landlock() && self.has_seccomp
    }

    /// A sentence for the user about what is not supported. None if everything is.
    pub(in crate::command) fn missing_support(self) -> Option<String> {
        if !cfg!(target_os = "linux") {
            return Some(
                "this system cannot confine commands and tool servers: only Linux can.".to_owned(),
            );
        }
        if !self.has_landlock() {
            let why = "this system has no Landlock (Linux 5.13 or newer, not switched off at boot \
                 or by a container)";
            return Some(format!(
                "{why}: commands and tool servers cannot be confined."
            ));
        }
        if !self.has_seccomp {
            return Some(
                "this system lets no seccomp filter be set: commands and tool servers cannot be \
                 confined."
                    .to_owned(),
            );
        }
        self.missing_in_old_landlock()
    }

    #[cfg(target_os = "linux")]
    fn missing_in_old_landlock(self) -> Option<String> {
        let missing = match self.landlock {
            ABI::V1 | ABI::V2 | ABI::V3 => {
                "commands that may use the network reach every port, and may send signals to their \
                 own process group only"
            }
            ABI::V4 | ABI::V5 => "commands may send signals to their own process group only",
            _ => return None,
        };
        Some(format!(
            "this system's Landlock is version {} (6 is complete, Linux 6.12): {missing}.",
            self.landlock
        ))
    }

    #[cfg(not(target_os = "linux"))]
    fn missing_in_old_landlock(self) -> Option<String> {
        None
    }
}
