//! Other names of a path: a folder can be mounted at several places, and each place is one more
//! name for what lies in it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where the mounts of this process are listed.
const TABLE: &str = "/proc/self/mountinfo";

/// The kinds of file systems that are a view of the system itself: its devices, its processes, its
/// settings.
const OF_THE_SYSTEM: [&[u8]; 18] = [
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

/// Those of them that hold devices.
const OF_DEVICES: [&[u8]; 2] = [b"devpts", b"devtmpfs"];

/// The mounts of this process at one moment.
pub(crate) struct Mounts(Vec<Mount>);

/// A mount: a part of a file system that stands at a place.
struct Mount {
    device: OsString,
    /// The part, as a path within the file system.
    root: PathBuf,
    place: PathBuf,
    /// What kind of file system it is.
    kind: Vec<u8>,
}

impl Mounts {
    /// Those that there are now. Costs a read of some 50 microseconds.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(mounts(&std::fs::read(TABLE)?)))
    }

    /// Every path that leads to one of `paths` or into it, they included.
    pub(crate) fn aliases<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Vec<PathBuf> {
        paths
            .into_iter()
            .flat_map(|path| named(path, &self.0))
            .collect()
    }

    /// Where a view of the system is mounted, at whatever place.
    pub(crate) fn of_the_system(&self) -> impl Iterator<Item = &Path> {
        self.places(&OF_THE_SYSTEM)
    }

    /// Where a file system of devices is mounted.
    pub(crate) fn of_devices(&self) -> impl Iterator<Item = &Path> {
        self.places(&OF_DEVICES)
    }

    fn places(&self, kinds: &'static [&'static [u8]]) -> impl Iterator<Item = &Path> {
        self.0
            .iter()
            .filter(|mount| kinds.contains(&&*mount.kind))
            .map(|mount| &*mount.place)
    }
}

/// The mounts of a list as proc(5) has it: number, parent, device, root, place, options, a dash,
/// kind, and what does not matter here.
fn mounts(table: &[u8]) -> Vec<Mount> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(mount)
        .collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = OsStr::from_bytes(fields.next()?).to_owned();
    let (root, place) = (unescaped(fields.next()?), unescaped(fields.next()?));
    // A dash stands behind fields of which there may be any number.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount {
        device,
        root,
        place,
        kind: kind.to_vec(),
    })
}

/// Blanks, tabs, line ends and backslashes are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
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

fn named(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut names = vec![path.to_owned()];
    // Of mounts at one place the last covers the others.
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.place));
    let Some(own) = holding.max_by_key(|mount| mount.place.as_os_str().len()) else {
        return names;
    };
    let Ok(below) = path.strip_prefix(&own.place) else {
        return names;
    };
    let within = own.root.join(below);
    for mount in mounts.iter().filter(|mount| mount.device == own.device) {
        let name = match (
            within.strip_prefix(&mount.root),
            mount.root.strip_prefix(&within),
        ) {
            (Ok(rest), _) => mount.place.join(rest),
            // A part of it is mounted by itself.
            (_, Ok(_)) => mount.place.clone(),
            _ => continue,
        };
        // Joining nothing ends a path with a slash.
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
    fn each_place_where_a_folder_is_mounted_is_a_name_for_it() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 254:0 /srv/store /mnt/copy rw - ext4 /dev/vda rw\n\
            31 22 254:0 /srv /mnt/srv\\040two rw - ext4 /dev/vda rw\n\
            32 22 254:0 /srv/store/log /mnt/log rw - ext4 /dev/vda rw\n\
            33 22 0:21 / /tmp rw - tmpfs tmpfs rw\n\
            34 22 0:5 / /srv/root/dev rw,nosuid shared:2 master:1 - devtmpfs udev rw\n";
        let mounts = mounts(table);
        let names = |path: &str| {
            let mut names: Vec<_> = named(Path::new(path), &mounts)
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
        let places: Vec<_> = Mounts(mounts).of_the_system().map(Path::to_owned).collect();
        assert_eq!(places, [Path::new("/srv/root/dev")]);
    }
}
