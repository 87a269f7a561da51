//! Logins behind an authority of one's own, against the authorization server that the tests of the
//! program play.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dormouse_mcp::McpClient;
use dormouse_mcp::login::{LoginError, LoginOptions, Logins};
use dormouse_proto::server::{CaFile, Transport};

use crate::support::{Fixture, host, server};
use crate::tls::Authority;

/// A server that asks for OAuth, and its authorization server.
struct OauthServer {
    child: Child,
    port: u16,
}

impl OauthServer {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../cli/tests/cli/oauth_server.py")
            .canonicalize()
            .unwrap();
        let mut child = Command::new("python3")
            .arg(script)
            .args(["device", "tls"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().trim_end_matches("/mcp").rsplit(':').next();
        let port = port.unwrap().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for OauthServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_authority_of_a_server_is_trusted_for_its_authorization_server() {
    let oauth = OauthServer::start();
    let target = ([127, 0, 0, 1], oauth.port).into();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let url = format!("https://{}/mcp", ours.serve("127.0.0.1", target).await);
    let ca_file = |pem: &str| CaFile {
        path: "ca.pem".to_owned(),
        pem: pem.into(),
    };
    let folder = tempfile::tempdir().unwrap();
    let logins = Logins::in_folder(folder.path().join("logins"));
    let options = |ca_file: Option<CaFile>| LoginOptions {
        ca_file,
        ..LoginOptions::default()
    };
    for ca_file in [None, Some(ca_file(&theirs.pem))] {
        let begun = logins.begin_on_device(&url, options(ca_file)).await;
        assert!(matches!(begun, Err(LoginError::Refused(_))), "{begun:?}");
    }
    let unusable = options(Some(ca_file("nothing")));
    let begun = logins.begin_on_device(&url, unusable).await;
    assert!(
        matches!(begun, Err(LoginError::Certificates(_))),
        "{begun:?}"
    );

    let ours_named = || options(Some(ca_file(&ours.pem)));
    let browser = logins
        .begin(&url, "http://127.0.0.1:1/callback", ours_named())
        .await;
    assert!(browser.unwrap().address().starts_with("https://127.0.0.1:"));
    let pending = logins.begin_on_device(&url, ours_named()).await.unwrap();
    let entered = format!(
        "http://127.0.0.1:{}/enter?user_code={}",
        oauth.port,
        pending.user_code()
    );
    let client = dormouse_http::client(&entered.parse().unwrap(), None).unwrap();
    let client = client.build().unwrap();
    assert!(client.get(entered).send().await.unwrap().status() == 200);
    pending.finish().await.unwrap();

    // The first token has expired, so that the call begins with a refresh.
    let fixture = Fixture {
        client: McpClient::default().logins(logins),
        host: host(folder.path()),
        server: Arc::new(server(Transport::Http {
            url,
            headers: Vec::new(),
            ca_file: Some(ca_file(&ours.pem)),
        })),
        folder,
    };
    assert_eq!(fixture.call("whoami", "").await.unwrap(), "token 2");
}
