//! Drops the capabilities of root that bypass the permissions of files and processes. A command
//! that runs as root keeps what it needs for its own files.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// The capabilities that stay: to own, read and write files as root does, to become another user,
/// to listen at a low port.
const RETAINED_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops the other capabilities of the calling thread and of everything that it starts.
pub(super) fn drop_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all()
        .difference(RETAINED_CAPABILITIES)
        .iter()
    {
        // A capability that the system does not know cannot be held.
        if capability_is_in_bounding_set(capability) != Ok(true) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(Errno::INVAL) => {}
            // Dropping one needs CAP_SETPCAP. Without it the bounding set is moot: nothing is
            // inherited, as below.
            Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // Inheritable capabilities bypass the bounding set. Clearing them clears the ambient ones too.
    let CapabilitySets {
        effective,
        permitted,
        inheritable: _,
    } = capabilities(None)?;
    let (effective, permitted) = (
        effective.intersection(RETAINED_CAPABILITIES),
        permitted.intersection(RETAINED_CAPABILITIES),
    );
    set_capabilities(
        None,
        CapabilitySets {
            effective,
            permitted,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
