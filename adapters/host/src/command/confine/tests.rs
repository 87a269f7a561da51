//! Attacks on the confinement, one file each, under the versions of Landlock that differ in what
//! they restrict, as far as this system has them (`tests/attacks` says how they are written). The
//! kernel that they attack is this test.

#![cfg(target_os = "linux")]

#[path = "../../../../../tests/attacks/target.rs"]
mod target;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use landlock::ABI;
use tokio::signal::unix::{SignalKind, signal};

use self::target::{Attack, REFUSED, Target, attacks};
use super::super::confining::system_confines;
use super::super::skip::skip;
use super::{Confinement, ConfinementSupport, Folder, Writes, run_confined};
use crate::permissions::Network;

/// Later versions restrict nothing further that the confinement uses.
const VERSIONS: [ABI; 6] = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];

/// A target with a store.
fn target() -> Target {
    let target = Target::new();
    fs::create_dir(target.base.join("inside/store")).unwrap();
    fs::write(target.base.join("inside/store/HEAD"), "as it was").unwrap();
    target
}

impl Target {
    /// A confinement that permits nothing that the attacks try.
    fn confinement(&self, access: &str) -> Confinement {
        let writes = match access {
            "read" => Writes::Nothing,
            _ => Writes::Below(vec![Folder::find(&self.base.join("inside")).unwrap()]),
        };
        Confinement {
            writes,
            network: Network::None,
            sealed: vec![self.base.join("inside/store")],
        }
    }

    fn run(
        &self,
        attack: &Path,
        confinement: &Confinement,
        support: ConfinementSupport,
        inside: &str,
    ) -> Output {
        run_confined(confinement, support, || {
            let mut command = Command::new("python3");
            command
                .arg("-B")
                .arg(attack)
                .arg(self.argument(std::process::id(), inside));
            command
                .env_clear()
                .env("PATH", std::env::var("PATH").unwrap())
                .process_group(0)
                .output()
        })
        .unwrap()
    }

    fn assert_store_is_whole(&self, after: &str) {
        let store = self.base.join("inside/store");
        assert_eq!(
            fs::read(store.join("HEAD")).unwrap(),
            b"as it was",
            "{after}"
        );
        assert_eq!(fs::read_dir(store).unwrap().count(), 1, "{after}");
    }
}

/// Runs a shell script in `folder`.
fn run_script(confinement: &Confinement, folder: &Path, script: &str) -> Output {
    let support = ConfinementSupport::of_this_system().unwrap();
    run_confined(confinement, support, || {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(folder).output()
    })
    .unwrap()
}

/// The attacks that this test has the rights for.
fn possible_attacks() -> Vec<Attack> {
    let (possible, others): (Vec<_>, Vec<_>) = attacks()
        .into_iter()
        .partition(|attack| !attack.needs_root || rustix::process::geteuid().is_root());
    if !others.is_empty() {
        skip("root", "some attacks are those of root");
    }
    possible
}

#[tokio::test]
async fn every_attack_is_refused_under_every_landlock_version() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    let mut signals = signal(SignalKind::from_raw(rustix::process::Signal::URG.as_raw())).unwrap();
    let attacks = possible_attacks();
    let mut run = 0;
    for version in VERSIONS {
        for attack in &attacks {
            for inside in ["inside", "inside/deep"] {
                let (confinement, support) = (
                    target.confinement(&attack.access),
                    ConfinementSupport::with_version(version),
                );
                let output = target.run(&attack.path, &confinement, support, inside);
                let name = attack.path.file_stem().unwrap().display();
                let after = format!("{name}, version {version}: {output:?}");
                assert_eq!(output.status.code(), Some(REFUSED), "{after}");
                target.assert_whole(&after);
                target.assert_store_is_whole(&after);
                run += 1;
            }
        }
    }
    let received = tokio::time::timeout(std::time::Duration::from_millis(50), signals.recv()).await;
    assert!(received.is_err(), "a signal reached the kernel");
    assert!(run >= 100, "{run} attacks");
}

/// Shows that the confinement refuses the attacks: they succeed without it.
#[tokio::test]
async fn attacks_succeed_without_confinement() {
    for attack in possible_attacks() {
        if attack.path.ends_with("terminal.py") {
            continue;
        }
        let target = target();
        // A process other than this test, which would be killed by the attacks.
        let mut kernel = Command::new("sleep").arg("60").spawn().unwrap();
        let argument = target.argument(kernel.id(), "inside/deep");
        let output = Command::new("python3")
            .arg("-B")
            .arg(&attack.path)
            .arg(argument)
            .output()
            .unwrap();
        kernel.kill().and_then(|()| kernel.wait()).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}: {output:?}",
            attack.path.display()
        );
    }
}

/// Permitted access continues to work, also next to sealed files.
#[tokio::test]
async fn permitted_operations_work() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    let run = |network: Network, access: &str, script: &str| {
        let confinement = Confinement {
            network,
            ..target.confinement(access)
        };
        let output = run_confined(
            &confinement,
            ConfinementSupport::of_this_system().unwrap(),
            || {
                Command::new("python3")
                    .arg("-c")
                    .arg(script)
                    .current_dir(&target.base)
                    .output()
            },
        );
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let port = target.tcp_port();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 2)");
    let unix = "import socket; socket.socket(socket.AF_UNIX).connect('socket')";
    let connect_by_mptcp = format!(
        "import socket; IPPROTO_MPTCP = 262; \
         s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP); \
         s.connect(('127.0.0.1', {port}))"
    );
    let connect_by_sending = format!(
        "import socket; MSG_FASTOPEN = 0x20000000; s = socket.socket(); \
         s.sendto(b'x', MSG_FASTOPEN, ('127.0.0.1', {port}))"
    );
    let listen = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()";
    let listen_unbound = "import socket; socket.socket().listen()";
    for (network, access, script, works) in [
        (
            Network::None,
            "write",
            "open('inside/deep/new', 'w').write('x')",
            true,
        ),
        (
            Network::None,
            "write",
            "open('inside/there', 'w').write('x')",
            true,
        ),
        (
            Network::None,
            "write",
            "import os; os.rename('inside/deep/new', 'inside/deep/newer')",
            true,
        ),
        (
            Network::None,
            "read",
            "open('inside/there').read(); open('/etc/passwd').read()",
            true,
        ),
        (
            Network::None,
            "read",
            "import os; os.listdir('inside/store'); open('/dev/null', 'w').write('x')",
            true,
        ),
        (
            Network::None,
            "read",
            "import subprocess; subprocess.run(['sh', '-c', 'cat /etc/passwd | sort > /dev/null'], \
             check=True)",
            true,
        ),
        (
            Network::None,
            "write",
            "import shutil; shutil.copy2('inside/there', 'inside/deep/copied')",
            true,
        ),
        (
            Network::None,
            "write",
            "import subprocess; subprocess.run(['cp', '-a', 'inside/there', 'inside/deep/kept'], \
             check=True)",
            true,
        ),
        (
            Network::None,
            "write",
            "import threading; t = threading.Thread(target=print); t.start(); t.join()",
            true,
        ),
        (
            Network::None,
            "read",
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))",
            true,
        ),
        // A request that only asks (FS_IOC_GETFLAGS) may fail where a file system has no answer,
        // and is not refused.
        (
            Network::None,
            "read",
            "import fcntl\nFS_IOC_GETFLAGS = 0x80086601\n\
             try: fcntl.ioctl(open('inside/there'), FS_IOC_GETFLAGS, bytearray(8))\n\
             except OSError as e: assert e.errno not in (1, 13)",
            true,
        ),
        // A request that sets attributes of a file is refused.
        (
            Network::None,
            "read",
            "import fcntl\nFS_IOC_SETFLAGS = 0x40086602\n\
             try: fcntl.ioctl(open('inside/there'), FS_IOC_SETFLAGS, bytearray(8))\n\
             except OSError as e: assert e.errno not in (1, 13)",
            false,
        ),
        (Network::None, "read", &connect, false),
        (Network::Ports(vec![port]), "read", &connect, true),
        (Network::Machines, "read", &connect, true),
        (Network::Any, "read", &connect, true),
        (
            Network::Ports(vec![1]),
            "read",
            &connect,
            ConfinementSupport::of_this_system().unwrap().abi() < ABI::V4,
        ),
        (Network::Ports(vec![1]), "read", &connect_by_mptcp, false),
        (Network::Ports(vec![1]), "read", &connect_by_sending, false),
        (Network::Ports(vec![port]), "read", listen, false),
        (Network::Ports(vec![port]), "read", listen_unbound, false),
        (Network::Machines, "read", listen_unbound, false),
        (Network::Any, "read", listen_unbound, true),
        (Network::Machines, "read", listen, false),
        (Network::Machines, "read", unix, false),
        (Network::Any, "read", unix, true),
    ] {
        let (code, errors) = run(network, access, script);
        assert_eq!(code == Some(0), works, "{script}: {errors}");
    }
}

/// A folder that contains a sealed path is permitted entry by entry. A symbolic link among the
/// entries permits nothing.
#[tokio::test]
async fn a_link_next_to_a_sealed_folder_permits_nothing_outside() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    std::os::unix::fs::symlink(target.base.join("outside"), target.base.join("inside/link"))
        .unwrap();
    let confinement = target.confinement("write");
    for (path, works) in [
        ("inside/deep/new", true),
        ("inside/link/new", false),
        ("outside/new", false),
    ] {
        let output = run_script(&confinement, &target.base, &format!("echo x > {path}"));
        assert_eq!(output.status.success(), works, "{path}: {output:?}");
    }
}

/// A file of the kernel with a second name, next to a sealed file. Names in other folders are not
/// looked for (docs/confinement.md).
#[tokio::test]
async fn a_second_name_of_a_sealed_file_is_sealed_too() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    fs::hard_link(
        target.base.join("inside/store/HEAD"),
        target.base.join("inside/second"),
    )
    .unwrap();
    fs::hard_link(
        target.base.join("inside/there"),
        target.base.join("inside/other"),
    )
    .unwrap();
    let confinement = target.confinement("write");
    for (path, works) in [("inside/second", false), ("inside/other", true)] {
        let output = run_script(&confinement, &target.base, &format!("echo x > {path}"));
        assert_eq!(output.status.success(), works, "{path}: {output:?}");
    }
    target.assert_store_is_whole("a second name");
}

/// Every command may read shared memory, and some may write there. A store in it stays sealed.
#[tokio::test]
async fn sealed_files_in_shared_memory_are_sealed_too() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let shared_memory = Path::new("/dev/shm");
    let Ok(dir) = tempfile::tempdir_in(shared_memory) else {
        return skip("shared memory", "no file can be made in /dev/shm");
    };
    for folder in ["store", "other"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        fs::write(dir.path().join(folder).join("there"), "x").unwrap();
    }
    let read_only = Writes::Nothing;
    let writes = Writes::Below(vec![Folder::find(shared_memory).unwrap()]);
    let store = dir.path().join("store");
    for (writes, sealed, script, works) in [
        (&read_only, &*store, "cat store/there", false),
        (&read_only, &store, "cat other/there", true),
        (&read_only, shared_memory, "cat other/there", false),
        (&writes, &store, "cat store/there", false),
        (&writes, &store, "echo x > store/there", false),
        (&writes, &store, "cat other/there", true),
        (&writes, &store, "echo x > other/new", true),
        (&writes, shared_memory, "cat other/there", false),
        (&writes, shared_memory, "echo x > other/new", false),
    ] {
        let confinement = Confinement {
            writes: writes.clone(),
            network: Network::None,
            sealed: vec![sealed.to_owned()],
        };
        let output = run_script(&confinement, dir.path(), script);
        let case = format!("{writes:?}, {}: {script}", sealed.display());
        assert_eq!(output.status.success(), works, "{case}: {output:?}");
    }
}

#[tokio::test]
async fn shared_memory_can_be_permitted_by_its_name() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    let script = "import multiprocessing as m; assert m.Pool(2).map(abs, [-1]) == [1]";
    for (folders, works) in [
        (&["inside"][..], false),
        (&["inside", "/dev/shm"], true),
        (&["/"], false),
    ] {
        let folders = folders
            .iter()
            .map(|folder| Folder::find(&target.base.join(folder)).unwrap());
        let confinement = Confinement {
            writes: Writes::Below(folders.collect()),
            ..target.confinement("write")
        };
        let output = run_confined(
            &confinement,
            ConfinementSupport::of_this_system().unwrap(),
            || {
                Command::new("python3")
                    .arg("-c")
                    .arg(script)
                    .current_dir(&target.base)
                    .output()
            },
        );
        assert_eq!(
            output.as_ref().unwrap().status.success(),
            works,
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn a_folder_that_replaced_a_permitted_one_is_not_permitted() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let target = target();
    let confinement = target.confinement("write");
    fs::rename(target.base.join("inside"), target.base.join("before")).unwrap();
    std::os::unix::fs::symlink(target.base.join("outside"), target.base.join("inside")).unwrap();
    let refused = run_confined(
        &confinement,
        ConfinementSupport::of_this_system().unwrap(),
        || Command::new("true").output(),
    );
    assert!(
        refused
            .as_ref()
            .is_err_and(|error| error.to_string().contains("another folder")),
        "{refused:?}"
    );
}
