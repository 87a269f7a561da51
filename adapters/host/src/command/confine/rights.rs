//! The rights of root that reach around files and processes. A command that runs as root keeps what it needs for files of its own.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set};

/// What stays: to own, read and write files as root does, to become another user, to listen at a low port.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Gives up the others for what this thread starts. Who is not root has none.
pub(super) fn give_up() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // A system that does not know one does not give it either.
        if capability_is_in_bounding_set(capability) != Ok(true) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(Errno::INVAL) => {}
            // Only who may set capabilities can drop one from the set; who may not gains none by starting a program.
            Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
