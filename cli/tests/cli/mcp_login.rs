//! `dormouse mcp login`: a user grants access to a server, against an authorization server that is
//! played.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::json;

use crate::dormouse;
use crate::mcp_sessions::piped;

const OAUTH_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/oauth_server.py");

/// A server that asks for OAuth, declared in `servers.json` of a folder.
struct OauthServer {
    child: Child,
    folder: tempfile::TempDir,
}

impl OauthServer {
    fn begin() -> Self {
        Self::with(&[])
    }

    fn with(args: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .arg(OAUTH_SERVER)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let servers = json!({"mcpServers": {"tickets": {"url": url.trim()}}});
        std::fs::write(folder.path().join("servers.json"), servers.to_string()).unwrap();
        Self { child, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = dormouse::command(self.folder.path());
        command
            .arg("mcp")
            .args(args)
            .args(["tickets", "--config", "servers.json"])
            .env("XDG_STATE_HOME", self.folder.path().join("state"));
        command
    }

    /// Logs in. `grant` opens the address that is printed, and may return one to paste.
    fn login(&self, args: &[&str], grant: impl FnOnce(&str) -> Option<String>) -> Output {
        let mut child = self
            .command(&[&["login"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        while !shown.contains("paste the address") {
            assert_ne!(output.read_line(&mut shown).unwrap(), 0, "{shown}");
        }
        let address = shown.lines().find(|line| line.starts_with("http")).unwrap();
        if let Some(pasted) = grant(address) {
            writeln!(child.stdin.as_mut().unwrap(), "{pasted}").unwrap();
        }
        output.read_to_string(&mut shown).unwrap();
        let mut ended = child.wait_with_output().unwrap();
        ended.stdout = shown.into_bytes();
        ended
    }

    /// Logs in by a code, at the address that is printed with the code in it.
    fn login_on_device(&self, args: &[&str], enter: impl FnOnce(&str)) -> Output {
        let mut child = self
            .command(&[&["login", "--device"], args].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        while !shown.contains("?user_code=") && output.read_line(&mut shown).unwrap() > 0 {}
        if let Some(address) = shown.lines().find(|line| line.contains("?user_code=")) {
            enter(address);
        }
        output.read_to_string(&mut shown).unwrap();
        let mut ended = child.wait_with_output().unwrap();
        ended.stdout = shown.into_bytes();
        ended
    }

    /// The answer to a call of a tool through the proxy, or the error.
    fn answers(&self, tools: &[&str]) -> Vec<String> {
        let mut client = piped(self.folder.path(), &["--config", "servers.json"]);
        if !client.handshake["error"].is_null() {
            return vec![client.handshake["error"]["message"].to_string()];
        }
        let answers = tools.iter().map(|tool| client.call(tool, json!({})));
        let answers = answers.collect();
        client.end();
        answers
    }
}

impl Drop for OauthServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The response to a request as a browser sends it.
fn get(address: &str) -> String {
    let (host, path) = address
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Where a browser is sent by the address of an authorization.
fn redirect_of(address: &str) -> String {
    let response = get(address);
    let location = response
        .lines()
        .find_map(|line| line.strip_prefix("Location: "));
    location.unwrap_or_else(|| panic!("{response}")).to_owned()
}

fn browse(address: &str) -> Option<String> {
    // Other programs may connect as well, and change nothing.
    let redirect = redirect_of(address);
    let favicon = redirect.split("/callback").next().unwrap();
    assert!(get(&format!("{favicon}/favicon.ico")).contains("404"));
    let page = get(&redirect);
    assert!(page.contains("You can close this page"), "{page}");
    None
}

/// The files of logins.
fn logins(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder.join("state/dormouse/logins"));
    let files = files.into_iter().flatten().map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect()
}

#[test]
fn a_token_is_kept_for_this_user_sent_to_its_server_and_refreshed() {
    let server = OauthServer::begin();
    let refused = server.answers(&["whoami"]);
    assert!(refused[0].contains("dormouse mcp login"), "{refused:?}");
    let ended = server.login(&[], browse);
    assert!(ended.status.success(), "{ended:?}");
    let shown = [&ended.stdout[..], &ended.stderr].concat();
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        shown.contains("Logged in to") && !shown.contains("secret"),
        "{shown}"
    );
    let [file] = &logins(server.folder.path())[..] else {
        panic!("one login")
    };
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(
        std::fs::read_to_string(file)
            .unwrap()
            .contains("secret-refresh-1")
    );

    // The first token has expired. A token that is revoked is refreshed, and the call made.
    let answers = server.answers(&["whoami", "revoke", "whoami"]);
    assert_eq!(answers, ["token 2", "token 2", "token 3"]);
    assert_eq!(server.answers(&["whoami"]), ["token 3"]);
    assert!(
        std::fs::read_to_string(file)
            .unwrap()
            .contains("secret-refresh-3")
    );

    let logged_out = server.command(&["logout"]).output().unwrap();
    assert!(logged_out.status.success(), "{logged_out:?}");
    assert!(logins(server.folder.path()).is_empty());
    let refused = server.answers(&["whoami"]);
    assert!(refused[0].contains("dormouse mcp login"), "{refused:?}");
    let again = server.command(&["logout"]).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is no login"));
}

#[test]
fn the_address_of_a_browser_elsewhere_can_be_pasted() {
    let server = OauthServer::begin();
    let ended = server.login(&[], |address| Some(redirect_of(address)));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(server.answers(&["whoami"]), ["token 2"]);
}

#[test]
fn a_refusal_and_a_code_of_another_login_leave_none_behind() {
    let server = OauthServer::begin();
    let foreign = |address: &str| Some(redirect_of(address).replace("state=", "state=x"));
    for (args, grant, expected) in [
        (
            &["--scope=refused"][..],
            (&|address: &str| Some(redirect_of(address))) as &dyn Fn(&str) -> Option<String>,
            "access_denied): not you",
        ),
        (&[], &foreign, "state not found"),
    ] {
        let ended = server.login(args, grant);
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(errors.contains(expected), "{errors}");
        assert_eq!(ended.status.code(), Some(1));
        assert!(logins(server.folder.path()).is_empty());
    }
}

#[test]
fn a_login_that_fails_leaves_the_earlier_one_in_use() {
    let server = OauthServer::begin();
    assert!(server.login(&[], browse).status.success());
    let foreign = |address: &str| Some(redirect_of(address).replace("state=", "state=x"));
    assert_eq!(server.login(&[], foreign).status.code(), Some(1));
    assert_eq!(server.answers(&["whoami"]), ["token 2"]);
}

#[test]
fn a_code_that_is_entered_elsewhere_logs_in_too() {
    let server = OauthServer::with(&["device"]);
    let ended = server.login_on_device(&[], |address| {
        assert!(get(address).contains("200"));
    });
    let shown = [&ended.stdout[..], &ended.stderr].concat();
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        ended.status.success() && shown.contains("enter the code WDJB-0:"),
        "{shown}"
    );
    assert!(
        shown.contains("Logged in to") && !shown.contains("secret"),
        "{shown}"
    );
    // The first token has expired.
    assert_eq!(server.answers(&["whoami"]), ["token 2"]);
}

#[test]
fn a_login_by_a_code_that_fails_leaves_none_behind() {
    let cases = [
        (
            &["device"][..],
            "--scope=refused",
            "access_denied): not you",
        ),
        (&["device"], "--scope=late", "before the code expired"),
        (&[], "--scope=tickets", "offers no login by a code"),
    ];
    for (offers, args, expected) in cases {
        let server = OauthServer::with(offers);
        let ended = server.login_on_device(&[args], |_| {});
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(errors.contains(expected), "{args}: {errors}");
        assert_eq!(ended.status.code(), Some(1));
        assert!(logins(server.folder.path()).is_empty());
    }
}

#[test]
fn a_program_uses_the_login_too() {
    let server = OauthServer::begin();
    assert!(server.login(&[], browse).status.success());
    let servers = std::fs::read_to_string(server.folder.path().join("servers.json")).unwrap();
    let servers: serde_json::Value = serde_json::from_str(&servers).unwrap();
    let url = &servers["mcpServers"]["tickets"]["url"];
    let program = format!(
        "[model]\nprovider = \"scripted\"\n[tools.mcp]\ntickets = {{ tools = \"all\", prefix = \"\" }}\n\
         [mcp.servers.tickets]\nurl = {url}\n"
    );
    std::fs::write(server.folder.path().join("p.toml"), program).unwrap();
    let mut client = piped(server.folder.path(), &["p.toml", "--allow-net=127.0.0.1"]);
    assert_eq!(client.call("whoami", json!({})), "token 2");
    client.end();
}
