//! The socket in the folder of a store: who gets in, and who does not.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_api::{ControlApi, ControlSocket, SOCKET, SocketError, TOKEN_FILE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::support::*;

/// Opens the socket of the world's store, and serves it.
fn serve_socket(world: &World) -> (PathBuf, JoinHandle<()>) {
    let folder = store_path(&world.folder);
    let socket = ControlSocket::open(&folder).unwrap();
    let api = ControlApi::new(world.kernel.clone());
    let server = tokio::spawn(async move {
        api.serve_unix(&socket, std::future::pending())
            .await
            .unwrap();
    });
    (folder, server)
}

/// The answer to a GET over the socket in this folder.
async fn get(folder: &Path, token: &str, more: &str) -> String {
    let mut stream = UnixStream::connect(folder.join(SOCKET)).await.unwrap();
    let request = format!(
        "GET /v1/kernel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_gets_in_with_the_token_of_the_file() {
    let world = World::new().await;
    let (folder, server) = serve_socket(&world);
    for name in [SOCKET, TOKEN_FILE] {
        let status = std::fs::symlink_metadata(folder.join(name)).unwrap();
        assert_eq!(status.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let token = std::fs::read_to_string(folder.join(TOKEN_FILE)).unwrap();
    assert!(get(&folder, &token, "").await.starts_with("HTTP/1.1 200"));
    for wrong in ["", "x", LOOK, &token[1..]] {
        assert!(
            get(&folder, wrong, "").await.starts_with("HTTP/1.1 401"),
            "{wrong}"
        );
    }
    // No browser reaches a socket, so what says that it is one is refused.
    let page = "Origin: http://evil.example\r\n";
    assert!(get(&folder, &token, page).await.starts_with("HTTP/1.1 403"));
    server.abort();
    within(async { while folder.join(SOCKET).exists() || folder.join(TOKEN_FILE).exists() {} })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_program_left_behind_is_replaced_and_what_is_served_is_not() {
    let world = World::new().await;
    let folder = store_path(&world.folder);
    // Left by a program that was killed.
    drop(std::os::unix::net::UnixListener::bind(folder.join(SOCKET)).unwrap());
    std::fs::write(folder.join(TOKEN_FILE), "old").unwrap();
    let (folder, _server) = serve_socket(&world);
    let token = std::fs::read_to_string(folder.join(TOKEN_FILE)).unwrap();
    assert_ne!(token, "old");
    let again = ControlSocket::open(&folder);
    assert!(matches!(again, Err(SocketError::InUse(_))), "{again:?}");
    assert!(get(&folder, &token, "").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_others_can_enter_gets_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o755, 0o750, 0o701, 0o770] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), permissions).unwrap();
        let opened = ControlSocket::open(folder.path());
        assert!(
            matches!(opened, Err(SocketError::Folder { .. })),
            "{mode:o}: {opened:?}"
        );
        assert!(!folder.path().join(SOCKET).exists());
    }
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), closed).unwrap();
    drop(ControlSocket::open(folder.path()).unwrap());
    // A path that is longer than that of a socket may be.
    let deep = folder.path().join("d".repeat(200));
    std::fs::create_dir(&deep).unwrap();
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o700)).unwrap();
    let opened = ControlSocket::open(&deep);
    assert_eq!(opened.is_ok(), cfg!(target_os = "linux"), "{opened:?}");
    // Somebody else's folder: that of root, unless root asks, whose it is.
    if std::fs::metadata("/").unwrap().uid() != rustix::process::geteuid().as_raw() {
        assert!(matches!(
            ControlSocket::open(Path::new("/")),
            Err(SocketError::Folder { .. })
        ));
    }
    let absent = ControlSocket::open(&folder.path().join("absent"));
    assert!(matches!(absent, Err(SocketError::Io { .. })), "{absent:?}");
}

const CHILD_FOLDER: &str = "DORMOUSE_TEST_CHILD_FOLDER";

/// What a program that the kernel's process started gets, which has even read the token. Run by the
/// test below.
#[test]
#[ignore = "a part of another test, in a process of its own"]
fn in_a_child() {
    use std::io::{Read as _, Write as _};
    let Some(folder) = std::env::var_os(CHILD_FOLDER).map(PathBuf::from) else {
        return;
    };
    let token = std::fs::read_to_string(folder.join(TOKEN_FILE)).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(folder.join(SOCKET)).unwrap();
    let request = format!(
        "GET /v1/kernel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: \
         close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    writeln!(std::io::stdout(), "ANSWER {answer}").unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_the_kernel_started_is_refused_even_with_the_token() {
    let world = World::new().await;
    let (folder, _server) = serve_socket(&world);
    let program = std::env::current_exe().unwrap();
    let test = [
        "unix_socket::in_a_child",
        "--exact",
        "--ignored",
        "--nocapture",
    ];
    // A child, and a child of a child.
    let direct = Command::new(&program);
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; true"]).arg(&program);
    for mut command in [direct, shell] {
        command.args(test).env(CHILD_FOLDER, &folder);
        let output = within(tokio::task::spawn_blocking(move || {
            command.output().unwrap()
        }))
        .await;
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        let answer = output.split_once("ANSWER ").map(|(_, answer)| answer);
        let answer = answer.unwrap_or_else(|| panic!("{output}"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("started by the kernel"), "{answer}");
    }
    // The test can fail: this process itself gets in with the same token.
    let token = std::fs::read_to_string(folder.join(TOKEN_FILE)).unwrap();
    assert!(get(&folder, &token, "").await.starts_with("HTTP/1.1 200"));
}
