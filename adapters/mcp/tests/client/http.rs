//! A server that is a machine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::server::{Server, ServerValue, Transport};

use crate::support::{Place, host, script, server};

/// `server.py` as a machine; it ends with this.
struct Machine {
    child: Child,
    port: u16,
}

impl Machine {
    fn begin() -> Self {
        let mut child = Command::new("python3")
            .arg(script())
            .arg("http")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            child,
            port: line.trim().parse().unwrap(),
        }
    }

    fn place(&self, path: &str, token: &str) -> Place {
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        let headers = vec![(
            "Authorization".to_owned(),
            ServerValue::new(format!("Bearer {token}")),
        )];
        let server = Server {
            connect_ms: 5_000,
            ..server(Transport::Http { url, headers })
        };
        let folder = tempfile::tempdir().unwrap();
        Place {
            client: McpClient::default(),
            host: host(folder.path()),
            server: Arc::new(server),
            folder,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn tools_of_a_machine_are_offered_and_called() {
    let machine = Machine::begin();
    let place = machine.place("mcp", "s3cret");
    let offers = place.offers().await.unwrap();
    assert!(
        offers.iter().any(|offer| &*offer.name == "stuck"),
        "{offers:?}"
    );
    assert_eq!(place.call("echo", "far").await.unwrap(), "echo: far");
    assert_eq!(
        place.call("huge", "2000000").await.unwrap().len(),
        2_000_000
    );
}

#[tokio::test]
async fn what_a_machine_gets_wrong_is_an_answer_without_secrets() {
    let machine = Machine::begin();
    let place = machine.place("mcp", "s3cret");
    for tool in ["die", "junk"] {
        let error = place.call(tool, "").await.unwrap_err();
        assert!(error.contains("Effect unknown"), "{tool}: {error}");
        assert!(
            !error.contains("s3cret") && !error.contains("127.0.0.1"),
            "{tool}: {error}"
        );
        assert_eq!(
            place.call("echo", tool).await.unwrap(),
            format!("echo: {tool}")
        );
    }
    let error = place.call("huge", "17000000").await.unwrap_err();
    assert!(error.contains("exceeded"), "{error}");
    let given_up = tokio::time::timeout(Duration::from_millis(200), place.call("never", "")).await;
    assert!(given_up.is_err());
    assert_eq!(place.call("echo", "after").await.unwrap(), "echo: after");
}

#[tokio::test]
async fn a_machine_that_asks_or_tells_without_end_is_left_with_an_error_that_says_so() {
    let machine = Machine::begin();
    let place = machine.place("mcp", "s3cret");
    for (said, expected) in [
        ("ping", "asked without reading its answers"),
        ("changed", "messages that nobody asked for"),
        ("progress", "messages that nobody asked for"),
    ] {
        let error = place.call("endless", said).await.unwrap_err();
        assert!(
            error.contains(expected) && error.contains("Effect unknown"),
            "{said}: {error}"
        );
        assert_eq!(place.call("echo", "again").await.unwrap(), "echo: again");
    }
}

#[tokio::test]
async fn a_machine_that_forgot_its_sessions_is_reached_in_a_new_one() {
    let machine = Machine::begin();
    let place = machine.place("mcp", "s3cret");
    // By the protocol it says so, and then nothing was done; some say something else.
    for (unknown, expected) in [
        ("404", "did not carry out the call"),
        ("400", "Effect unknown"),
    ] {
        assert_eq!(
            place.call("forget", unknown).await.unwrap(),
            format!("forget: {unknown}")
        );
        let error = place.call("echo", "lost").await.unwrap_err();
        assert!(error.contains(expected), "{unknown}: {error}");
        assert_eq!(
            place.call("echo", unknown).await.unwrap(),
            format!("echo: {unknown}")
        );
    }
}

#[tokio::test]
async fn many_slow_calls_keep_their_session_when_one_is_given_up() {
    let machine = Machine::begin();
    let place = machine.place("mcp", "s3cret");
    let slow = futures_util::future::join_all((0..40).map(|_| place.call("hold", "")));
    let others = async {
        let given_up =
            tokio::time::timeout(Duration::from_millis(500), place.call("never", "")).await;
        assert!(given_up.is_err());
        assert_eq!(place.call("release", "all").await.unwrap(), "release: all");
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert!(
        slow.iter().all(|held| held.as_deref() == Ok("hold: ")),
        "{slow:?}"
    );
}

#[tokio::test]
async fn a_machine_that_refuses_redirects_or_is_not_there_is_an_error() {
    let machine = Machine::begin();
    for (path, token) in [("mcp", "wr0ng"), ("elsewhere", "s3cret")] {
        let error = machine.place(path, token).offers().await.unwrap_err();
        assert!(
            !error.contains(token) && !error.contains("127.0.0.1"),
            "{path}: {error}"
        );
    }
    let place = machine.place("mcp", "s3cret");
    let place = Place {
        host: Arc::new(LocalHost::new(Permissions::none(), ".").unwrap()),
        ..place
    };
    let error = place.offers().await.unwrap_err();
    assert!(
        error.contains(&format!("--allow-net=127.0.0.1:{}", machine.port)),
        "{error}"
    );
    let place = machine.place("mcp", "s3cret");
    drop(machine);
    let error = place.offers().await.unwrap_err();
    assert!(error.contains("no connection could be made"), "{error}");
}
