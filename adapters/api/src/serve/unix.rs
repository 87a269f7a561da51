//! The way in by a socket in the folder of a store, for programs of its owner.
//!
//! Commands and tool servers run as the same user as the kernel, and must not decide about their own
//! calls. What keeps them out:
//!
//! * The socket and the file with its token are in the folder of the store, which is sealed: the
//!   confinement of commands lets none of them read there. Without the token no request is answered.
//! * Unless everything is permitted on the network, the confinement lets no command make a socket of
//!   this kind at all.
//! * A process below this one is refused by its pid, whatever it knows (`peer.rs`).
//!
//! Whether commands are confined is known to whoever permits them: do not open the socket of a kernel
//! that runs commands or servers without confinement.

mod peer;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dormouse_http::server::{Hosts, Token};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use super::{Admission, ServeError, serve};
use crate::api::ControlApi;
use crate::scope::{Scope, Tokens};

/// The name of the socket in the folder of a store.
pub const SOCKET: &str = "control.sock";

/// The name of the file with the token of the socket.
pub const TOKEN_FILE: &str = "control.token";

/// Why a socket was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The folder belongs to another user, or others may look into it.
    #[error(
        "the control socket needs a folder of its own user, with the mode 0700: {} {reason}",
        folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another kernel answers at the socket.
    #[error("another program answers at the control socket {}", .0.display())]
    InUse(PathBuf),
    /// The operating system refuses.
    #[error("the control socket cannot be opened: {doing}: {source}")]
    Io {
        /// What was done.
        doing: String,
        /// The error.
        source: io::Error,
    },
}

/// The socket in the folder of a store. Dropping it removes it.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    token: Token,
    /// Kept open, so that the paths below lead into this folder even if it is renamed.
    _folder: File,
    /// The files that were made, each with its device and its number: another program may have
    /// replaced them by its own, once the kernel of this one had released the store.
    files: [(PathBuf, (u64, u64)); 2],
}

impl ControlSocket {
    /// Opens the socket of the store in this folder, whose kernel runs in this program. A socket that
    /// an earlier program left behind is replaced. Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn open(folder: &Path) -> Result<Self, SocketError> {
        let (handle, inside) = open_folder(folder)?;
        let socket = inside.join(SOCKET);
        let token_file = inside.join(TOKEN_FILE);
        remove_left_over(&socket, &folder.join(SOCKET))?;
        let io = |doing: &str| {
            let doing = format!("{doing} in {}", folder.display());
            move |source| SocketError::Io { doing, source }
        };
        let (token, secret) = Token::generate().map_err(io("draw a token"))?;
        write_token(&token_file, &secret).map_err(io("write the token"))?;
        let listener = UnixListener::bind(&socket).map_err(io("bind the socket"))?;
        // Nobody else can have come by in between: the folder is closed to others.
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))
            .map_err(io("close the socket to others"))?;
        let files = [socket, token_file].map(|path| {
            // One that is gone already is not removed.
            let identity = identity(&path).unwrap_or_default();
            (path, identity)
        });
        Ok(Self {
            listener,
            token,
            _folder: handle,
            files,
        })
    }
}

/// The device and the number of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let status = std::fs::symlink_metadata(path)?;
    Ok((status.dev(), status.ino()))
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        for (path, made) in &self.files {
            if identity(path).is_ok_and(|found| found == *made) {
                // What stays behind is replaced by the next program.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Opens the folder, and returns a path by which it is reached whatever its own path is: a socket's
/// path has at most some hundred bytes.
fn open_folder(folder: &Path) -> Result<(File, PathBuf), SocketError> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty());
    let handle = opened.map_err(|error| SocketError::Io {
        doing: format!("open the folder {}", folder.display()),
        source: error.into(),
    })?;
    let status = fstat(&handle).map_err(|error| SocketError::Io {
        doing: format!("look at the folder {}", folder.display()),
        source: error.into(),
    })?;
    let wrong = |reason: String| SocketError::Folder {
        folder: folder.to_owned(),
        reason,
    };
    if status.st_uid != geteuid().as_raw() {
        return Err(wrong(format!("belongs to user {}", status.st_uid)));
    }
    let mode = status.st_mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(wrong(format!("has the mode {mode:o}")));
    }
    let handle = File::from(handle);
    let inside = inside_path(folder, &handle);
    Ok((handle, inside))
}

#[cfg(target_os = "linux")]
fn inside_path(_folder: &Path, handle: &File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
}

#[cfg(not(target_os = "linux"))]
fn inside_path(folder: &Path, _handle: &File) -> PathBuf {
    folder.to_owned()
}

/// Removes a socket that nobody answers at. `shown` is its path for people.
fn remove_left_over(socket: &Path, shown: &Path) -> Result<(), SocketError> {
    let io = |doing: &str, source| SocketError::Io {
        doing: format!("{doing} {}", shown.display()),
        source,
    };
    let is_socket = match std::fs::symlink_metadata(socket) {
        Ok(found) => found.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("look at", error)),
    };
    if is_socket && std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(SocketError::InUse(shown.to_owned()));
    }
    std::fs::remove_file(socket).map_err(|error| io("remove", error))
}

fn write_token(file: &Path, secret: &str) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(file)?.write_all(secret.as_bytes())
}

impl ControlApi {
    /// Serves programs of the same user at a socket, until `until` resolves or the kernel is shut
    /// down. Its token is one to control.
    ///
    /// # Errors
    /// [`ServeError::Listener`].
    pub async fn serve_unix(
        &self,
        socket: &ControlSocket,
        until: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let admission = Admission {
            // Who reaches the socket chose it by its path, and pages of browsers do not.
            hosts: Hosts::Any,
            origins: Vec::new(),
            tokens: Tokens::none().with(socket.token.clone(), Scope::Control),
        };
        let refusal = |stream: &UnixStream| peer::refusal(stream);
        serve(self, admission, &socket.listener, refusal, until).await
    }
}
