//! What the attacks of this folder are aimed at, and the list of them, for the tests that run them.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The exit code of an attack that was refused.
pub(crate) const REFUSED: i32 = 7;

/// An attack, and what its first line asks for.
pub(crate) struct Attack {
    pub(crate) path: PathBuf,
    /// The access that its command is declared with: `read` or `write`.
    pub(crate) access: String,
    pub(crate) needs_root: bool,
}

/// All attacks, by name.
pub(crate) fn attacks() -> Vec<Attack> {
    let mut paths: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension().is_some_and(|extension| extension == "py") && !path.ends_with("attack.py")
    });
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Attack {
    let text = fs::read_to_string(&path).unwrap();
    let needs = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("# access: "))
        .unwrap();
    let (access, needs_root) = match needs.split_once(", ") {
        Some((access, "root")) => (access, true),
        Some(other) => panic!("{}: unknown need {other:?}", path.display()),
        None => (needs, false),
    };
    Attack {
        access: access.to_owned(),
        needs_root,
        path,
    }
}

/// The folder that the attacks are in, `attack.py` among them, which they share.
pub(crate) fn folder() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .ancestors()
        .map(|folder| folder.join("tests/attacks"))
        .find(|folder| folder.is_dir())
        .unwrap()
}

/// Folders and sockets. A confined command may write `inside`, reads all but `inside/store`, and
/// reaches none of the sockets.
pub(crate) struct Target {
    _dir: TempDir,
    pub(crate) base: PathBuf,
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: [UnixListener; 2],
    _datagrams: UnixDatagram,
}

impl Target {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["outside", "inside/deep"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for file in ["outside/there", "inside/there", "inside/deep/there"] {
            fs::write(base.join(file), "as it was").unwrap();
        }
        let name = SocketAddr::from_abstract_name(base.display().to_string()).unwrap();
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            _unix: [
                UnixListener::bind(base.join("socket")).unwrap(),
                UnixListener::bind_addr(&name).unwrap(),
            ],
            _datagrams: UnixDatagram::bind(base.join("socket-dgram")).unwrap(),
            _dir: dir,
            base,
        }
    }

    pub(crate) fn tcp_port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    /// The argument of an attack (README.md says what it holds). `inside` is the folder below
    /// `base` that it writes.
    pub(crate) fn argument(&self, kernel: impl Into<Value>, inside: &str) -> String {
        json!({
            "kernel": kernel.into(),
            "outside": self.base.join("outside"),
            "inside": self.base.join(inside),
            "store": self.base.join("inside/store"),
            "tcp": self.tcp_port(),
            "udp": self.udp.local_addr().unwrap().port(),
            "unix": self.base.join("socket"),
            "abstract": self.base.display().to_string(),
            "terminal": "/dev/tty",
        })
        .to_string()
    }

    /// Panics where something was written outside.
    pub(crate) fn assert_whole(&self, after: &str) {
        assert_eq!(
            fs::read(self.base.join("outside/there")).unwrap(),
            b"as it was",
            "{after}"
        );
        assert_eq!(
            fs::read_dir(self.base.join("outside")).unwrap().count(),
            1,
            "{after}"
        );
    }
}
