//! Finds other names of a path: a folder can be mounted at several places, and each mount point
//! gives its contents another name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The list of the mounts of this process.
const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// File systems that show the operating system itself: its devices, processes and settings.
const SYSTEM_FILE_SYSTEMS: [&[u8]; 18] = [
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"devpts",
    b"devtmpfs",
    b"efivarfs",
    b"fusectl",
    b"mqueue",
    b"nfsd",
    b"proc",
    b"pstore",
    b"rpc_pipefs",
    b"securityfs",
    b"sysfs",
    b"tracefs",
];

/// File systems that hold devices.
const DEVICE_FILE_SYSTEMS: [&[u8]; 2] = [b"devpts", b"devtmpfs"];

/// The mounts of this process at one moment.
pub(crate) struct Mounts(Vec<Mount>);

/// A mount: a part of a file system, and the path at which it is mounted.
struct Mount {
    device: OsString,
    /// The mounted part, as a path within the file system.
    root: PathBuf,
    mount_point: PathBuf,
    /// The type of the file system.
    kind: Vec<u8>,
}

impl Mounts {
    /// Reads the current mounts. Costs some 50 microseconds.
    ///
    /// # Errors
    /// The mounts cannot be listed.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(parse_mounts(&std::fs::read(MOUNT_TABLE)?)))
    }

    /// `paths`, and every other path that leads to one of them or into it.
    pub(crate) fn aliases<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Vec<PathBuf> {
        paths
            .into_iter()
            .flat_map(|path| find_aliases(path, &self.0))
            .collect()
    }

    /// The mount points of file systems that show the system.
    pub(crate) fn system_mount_points(&self) -> impl Iterator<Item = &Path> {
        self.mount_points_of(&SYSTEM_FILE_SYSTEMS)
    }

    /// The mount points of file systems that hold devices.
    pub(crate) fn device_mount_points(&self) -> impl Iterator<Item = &Path> {
        self.mount_points_of(&DEVICE_FILE_SYSTEMS)
    }

    fn mount_points_of(&self, kinds: &'static [&'static [u8]]) -> impl Iterator<Item = &Path> {
        self.0
            .iter()
            .filter(|mount| kinds.contains(&&*mount.kind))
            .map(|mount| &*mount.mount_point)
    }
}

/// Parses a list of mounts in the format of proc(5): number, parent, device, root, mount point,
/// options, a dash, type, and fields that are not used.
fn parse_mounts(table: &[u8]) -> Vec<Mount> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount)
        .collect()
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = OsStr::from_bytes(fields.next()?).to_owned();
    let (root, mount_point) = (unescape(fields.next()?), unescape(fields.next()?));
    // Any number of optional fields comes before the dash.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount {
        device,
        root,
        mount_point,
        kind: kind.to_vec(),
    })
}

/// Decodes escapes: blanks, tabs, line ends and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut bytes, mut at) = (Vec::with_capacity(field.len()), 0);
    while let Some(byte) = field.get(at) {
        let octal = field
            .get(at + 1..at + 4)
            .filter(|digits| *byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0_u8, |value, digit| {
                    value.wrapping_mul(8).wrapping_add(digit - b'0')
                }));
                at += 4;
            }
            None => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn find_aliases(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut names = vec![path.to_owned()];
    // Of several mounts at one path, the last one hides the others.
    let containing = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point));
    let Some(innermost) = containing.max_by_key(|mount| mount.mount_point.as_os_str().len()) else {
        return names;
    };
    let Ok(below) = path.strip_prefix(&innermost.mount_point) else {
        return names;
    };
    let within = innermost.root.join(below);
    for mount in mounts
        .iter()
        .filter(|mount| mount.device == innermost.device)
    {
        let name = match (
            within.strip_prefix(&mount.root),
            mount.root.strip_prefix(&within),
        ) {
            (Ok(rest), _) => mount.mount_point.join(rest),
            // A part of the folder is mounted by itself.
            (_, Ok(_)) => mount.mount_point.clone(),
            _ => continue,
        };
        // Joining an empty path adds a slash at the end, which this removes.
        let name: PathBuf = name.components().collect();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mount_of_a_folder_is_an_alias() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 254:0 /srv/store /mnt/copy rw - ext4 /dev/vda rw\n\
            31 22 254:0 /srv /mnt/srv\\040two rw - ext4 /dev/vda rw\n\
            32 22 254:0 /srv/store/log /mnt/log rw - ext4 /dev/vda rw\n\
            33 22 0:21 / /tmp rw - tmpfs tmpfs rw\n\
            34 22 0:5 / /srv/root/dev rw,nosuid shared:2 master:1 - devtmpfs udev rw\n";
        let mounts = parse_mounts(table);
        let names = |path: &str| {
            let mut names: Vec<_> = find_aliases(Path::new(path), &mounts)
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(
            names("/srv/store"),
            "/mnt/copy /mnt/log /mnt/srv two/store /srv/store"
        );
        assert_eq!(
            names("/mnt/copy"),
            "/mnt/copy /mnt/log /mnt/srv two/store /srv/store"
        );
        assert_eq!(names("/home/u"), "/home/u");
        assert_eq!(names("/tmp/store"), "/tmp/store");
        let places: Vec<_> = Mounts(mounts)
            .system_mount_points()
            .map(Path::to_owned)
            .collect();
        assert_eq!(places, [Path::new("/srv/root/dev")]);
    }
}
