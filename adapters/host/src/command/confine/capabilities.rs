//! The rights of root that reach around files and processes. A command that runs as root keeps what
//! it needs for files of its own.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// What stays: to own, read and write files as root does, to become another user, to listen at a
/// low port.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Gives up the others, for the calling thread and all that it starts.
pub(super) fn give_up() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // A system that does not know one does not give it either.
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
    // Inheritable capabilities pass the bounding set by. Clearing them clears the ambient ones too.
    let CapabilitySets {
        effective,
        permitted,
        inheritable: _,
    } = capabilities(None)?;
    let (effective, permitted) = (effective.intersection(KEPT), permitted.intersection(KEPT));
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
