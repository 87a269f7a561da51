//! Attacks on the confinement, one file each, under every version of Landlock that this system has (`tests/attacks` says how they
//! are written). The kernel that they attack is this test.

#![cfg(target_os = "linux")]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use landlock::ABI;
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Confinement, ConfinementSupport, Folder, Writes, within};
use crate::permissions::Network;

const VERSIONS: [ABI; 6] = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];
/// The code of an attack that was refused.
const REFUSED: i32 = 7;

/// What is attacked.
struct Target {
    _dir: TempDir,
    base: PathBuf,
    told: serde_json::Value,
    _sockets: (TcpListener, UdpSocket, UnixListener, UnixListener, UnixDatagram),
    signals: Signal,
}

impl Target {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["outside", "inside/deep", "inside/store"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for file in ["outside/there", "inside/there", "inside/deep/there", "inside/store/HEAD"] {
            fs::write(base.join(file), "as it was").unwrap();
        }
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (unix, name) = (base.join("socket"), format!("attacked-{}", base.display()));
        let named = SocketAddr::from_abstract_name(&name).unwrap();
        let told = serde_json::json!({
            "kernel": std::process::id(), "outside": base.join("outside"), "store": base.join("inside/store"),
            "tcp": tcp.local_addr().unwrap().port(), "udp": udp.local_addr().unwrap().port(),
            "unix": unix, "abstract": name, "terminal": "/dev/tty",
        });
        let (path, datagrams) =
            (UnixListener::bind(&unix).unwrap(), UnixDatagram::bind(base.join("socket-dgram")).unwrap());
        let abstracts = UnixListener::bind_addr(&named).unwrap();
        let signals = signal(SignalKind::from_raw(rustix::process::Signal::URG.as_raw())).unwrap();
        Self { _dir: dir, base, told, _sockets: (tcp, udp, path, abstracts, datagrams), signals }
    }
}

impl Target {
    /// What a command may do here: all that it wants to attack is closed to it.
    fn confinement(&self, access: &str) -> Confinement {
        let writes = match access {
            "read" => Writes::Nothing,
            _ => Writes::Below(vec![Folder::find(&self.base.join("inside")).unwrap()]),
        };
        Confinement { writes, network: Network::None, sealed: vec![self.base.join("inside/store")] }
    }

    fn run(&self, attack: &Path, confinement: &Confinement, system: ConfinementSupport, inside: &str) -> Output {
        let mut told = self.told.clone();
        told["inside"] = serde_json::json!(self.base.join(inside));
        within(confinement, system, || {
            let mut command = Command::new("python3");
            command.arg("-B").arg(attack).arg(told.to_string()).env_clear().env("PATH", std::env::var("PATH").unwrap());
            command.process_group(0).output()
        })
        .unwrap()
    }

    fn is_whole(&self) -> bool {
        ["outside/there", "inside/store/HEAD"]
            .iter()
            .all(|file| fs::read(self.base.join(file)).unwrap() == b"as it was")
            && fs::read_dir(self.base.join("outside")).unwrap().count() == 1
            && fs::read_dir(self.base.join("inside/store")).unwrap().count() == 1
    }
}

fn attacks() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks");
    let mut attacks: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    attacks.retain(|path| path.extension().is_some_and(|extension| extension == "py") && !path.ends_with("attack.py"));
    attacks.sort();
    let needs = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().next().and_then(|line| line.strip_prefix("# access: ")).unwrap().to_owned()
    };
    attacks.into_iter().map(|path| (path.clone(), needs(&path))).collect()
}

#[tokio::test]
async fn no_attack_gets_through_under_any_version() {
    if !ConfinementSupport::of_this_system().unwrap().confines() {
        eprintln!("skipped: this system cannot confine");
        return;
    }
    let mut target = Target::new();
    let is_root = rustix::process::geteuid().is_root();
    let mut run = 0;
    for version in VERSIONS {
        for (attack, needs) in attacks() {
            let (access, root) = needs.split_once(", ").map_or((needs.as_str(), false), |(access, _)| (access, true));
            if root && !is_root {
                continue;
            }
            for inside in ["inside", "inside/deep"] {
                let output =
                    target.run(&attack, &target.confinement(access), ConfinementSupport::with(version), inside);
                let said = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                let name = attack.file_stem().unwrap().display();
                assert_eq!(output.status.code(), Some(REFUSED), "{name}, version {version}: {said}{errors}");
                assert!(target.is_whole(), "{name}, version {version}: {errors}");
                run += 1;
            }
        }
    }
    let heard = tokio::time::timeout(std::time::Duration::from_millis(50), target.signals.recv()).await;
    assert!(heard.is_err(), "a signal reached the kernel");
    assert!(run >= 100, "{run} attacks");
}

/// The attacks work where nothing is confined: what refuses them is the confinement.
#[tokio::test]
async fn attacks_get_through_without_confinement() {
    for (attack, needs) in attacks() {
        if needs.ends_with("root") && !rustix::process::geteuid().is_root() || attack.ends_with("terminal.py") {
            continue;
        }
        let target = Target::new();
        let mut told = target.told.clone();
        told["inside"] = serde_json::json!(target.base.join("inside/deep"));
        // Another one than this test, which hears of no signal.
        let mut kernel = Command::new("sleep").arg("60").spawn().unwrap();
        told["kernel"] = serde_json::json!(kernel.id());
        let output = Command::new("python3").arg("-B").arg(&attack).arg(told.to_string()).output().unwrap();
        kernel.kill().and_then(|()| kernel.wait()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", attack.display());
    }
}

/// What is permitted goes on working, beside what is sealed too.
#[tokio::test]
async fn what_is_permitted_works() {
    let target = Target::new();
    let run = |network: Network, access: &str, script: &str| {
        let confinement = Confinement { network, ..target.confinement(access) };
        let output = within(&confinement, ConfinementSupport::of_this_system().unwrap(), || {
            Command::new("python3").arg("-c").arg(script).current_dir(&target.base).output()
        });
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let port = target.told["tcp"].as_u64().unwrap();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 2)");
    let unix = "import socket; socket.socket(socket.AF_UNIX).connect('socket')";
    let many_ways = format!(
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect(('127.0.0.1', {port}))"
    );
    let with_data = format!("import socket; s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', {port}))");
    let listen = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()";
    let mine = u16::try_from(port).unwrap();
    for (network, access, script, works) in [
        (Network::None, "write", "open('inside/deep/new', 'w').write('x')", true),
        (Network::None, "write", "open('inside/there', 'w').write('x')", true),
        (Network::None, "write", "import os; os.rename('inside/deep/new', 'inside/deep/newer')", true),
        (Network::None, "read", "open('inside/there').read(); open('/etc/passwd').read()", true),
        (Network::None, "read", "import os; os.listdir('inside/store'); open('/dev/null', 'w').write('x')", true),
        (
            Network::None,
            "read",
            "import subprocess; subprocess.run(['sh', '-c', 'cat /etc/passwd | sort > /dev/null'], check=True)",
            true,
        ),
        (Network::None, "read", &connect, false),
        (Network::Ports(vec![mine]), "read", &connect, true),
        (Network::Machines, "read", &connect, true),
        (Network::Any, "read", &connect, true),
        (Network::Ports(vec![1]), "read", &connect, ConfinementSupport::of_this_system().unwrap().abi() < ABI::V4),
        (Network::Ports(vec![1]), "read", &many_ways, false),
        (Network::Ports(vec![1]), "read", &with_data, false),
        (Network::Ports(vec![mine]), "read", listen, ConfinementSupport::of_this_system().unwrap().abi() < ABI::V4),
        (Network::Machines, "read", listen, ConfinementSupport::of_this_system().unwrap().abi() < ABI::V4),
        (Network::Machines, "read", unix, false),
        (Network::Any, "read", unix, true),
    ] {
        let (code, errors) = run(network, access, script);
        assert_eq!(code == Some(0), works, "{script}: {errors}");
    }
}

#[tokio::test]
async fn a_folder_that_took_the_place_of_a_permitted_one_is_not_permitted() {
    let target = Target::new();
    let confinement = target.confinement("write");
    fs::rename(target.base.join("inside"), target.base.join("before")).unwrap();
    std::os::unix::fs::symlink(target.base.join("outside"), target.base.join("inside")).unwrap();
    let refused = within(&confinement, ConfinementSupport::of_this_system().unwrap(), || Command::new("true").output());
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("another folder")), "{refused:?}");
}
