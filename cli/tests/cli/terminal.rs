//! Text from outside reaches a terminal only as visible text: from a hostile program, store,
//! export, model server or command line, under every command. Colours are off, so that any control
//! sequence must come from outside.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::dormouse::{command, run};

/// Sets a title, clears, colours by C1, turns text around, hides, deletes, overwrites.
const EVIL: &str = "EVIL\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}32m\u{202e}gpj\u{2066}\u{200f}\u{61c}\u{200b}\u{7f}\u{85}\r\u{1b}cX";

/// The two ends of a terminal: text written to the second is read from the first.
pub(crate) fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(name)
        .unwrap();
    (ours.into(), theirs)
}

/// All that a command shows on a terminal that is its standard output and standard error.
fn shown(folder: &Path, words: &[&str], log: &str) -> String {
    let (mut ours, theirs) = terminal();
    let mut command = command(folder);
    command.args(words).stdin(Stdio::null());
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    command
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .env("DORMOUSE_LOG", log)
        .env_remove("RUST_BACKTRACE");
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    // Once the other end is closed, reading fails.
    while let Ok(read @ 1..) = ours.read(&mut part) {
        bytes.extend_from_slice(&part[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The first place in a text that a terminal obeys or that deceives a reader. Progress bars may
/// move the cursor and clear lines.
pub(crate) fn strange(text: &str) -> Option<&str> {
    let found = text.char_indices().find(|(at, c)| match c {
        '\u{1b}' => {
            let sequence = text[at + 1..]
                .strip_prefix('[')
                .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
            !sequence.is_some_and(|rest| rest.starts_with(['A', 'B', 'J', 'K']))
        }
        '\n' | '\r' | '\t' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' => {
            true
        }
        c => c.is_control(),
    });
    found.map(|(at, _)| &text[at..text.len().min(text.ceil_char_boundary(at + 60))])
}

/// What a command shows, which must have nothing strange in it.
fn check(folder: &Path, words: &[&str]) -> String {
    let text = shown(folder, words, "error");
    assert_eq!(strange(&text), None, "{words:?} showed {text:?}");
    text
}

/// A text as a string of TOML or JSON.
fn quoted(text: &str) -> String {
    let shown = text
        .chars()
        .flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec());
    format!(
        "\"{}\"",
        shown
            .map(|unit| format!("\\u{unit:04x}"))
            .collect::<String>()
    )
}

/// A program with hostile names, which calls a tool and answers with hostile text.
fn program(folder: &Path, name: &str, model: &str) {
    let evil = quoted(EVIL);
    let script = format!(
        "[[turn]]\nwhen.round = 0\ncalls = [{{ tool = \"create_temp_file\", args = {{ content = \
         {evil} }} }}, {{ tool = \"shout\" }}]\n[[turn]]\ntext = {evil}\n"
    );
    fs::write(folder.join("script.toml"), script).unwrap();
    let text = format!(
        "[model]\nname = {evil}\n{model}\n[demo]\ndisplay_name = {evil}\n[prompt]\nsystem = \
         {evil}\nuser = {evil}\n[tools]\nenabled = [\"create_temp_file\"]\n[[tools.command]]\nname \
         = \"shout\"\ndescription = {evil}\nargv = [\"absent\", {evil}]\n[env_info]\ncommands = \
         [[{evil}]]\n"
    );
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn no_command_shows_what_others_wrote_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    program(
        at,
        "evil.toml",
        "provider = \"scripted\"\nscript = \"script.toml\"",
    );
    fs::write(at.join(EVIL), format!("{EVIL}\n{EVIL}")).unwrap();
    fs::write(
        at.join("calls"),
        format!(
            "{{\"tool\": {0}}}\n{EVIL}\n{{\"open\": {{\"file\": {0}}}}}\n",
            quoted(EVIL)
        ),
    )
    .unwrap();
    let store = ["--store", "s"];
    let with = |words: &[&'static str]| [words, &store].concat();
    let answer = check(at, &with(&["run", "evil.toml"]));
    assert!(
        answer.contains("EVIL␛]0;owned␇") && answer.contains("\\u{9b}32m\\u{202e}gpj"),
        "{answer:?}"
    );
    let steps: [&[&str]; 10] = [
        &["checkpoint", "1", "--label", EVIL],
        &["checkpoints"],
        &["ps"],
        &["log", "1"],
        &["messages", "1"],
        &["diff", "1@1", "1"],
        &["branch", "1@2"],
        &["resume"],
        &["gc", "--dry-run"],
        &["fsck"],
    ];
    for step in steps {
        let text = check(at, &[step, &store].concat());
        let is_silent = ["checkpoint", "diff", "gc", "fsck"].contains(&step[0]);
        assert!(
            is_silent || text.contains("EVIL"),
            "{step:?} showed {text:?}"
        );
        let json = shown(at, &[step, &["--json"], &store].concat(), "error");
        assert_eq!(strange(&json), None, "{step:?} --json showed {json:?}");
    }
    check(at, &with(&["run", "evil.toml", "--json"]));
    check(at, &with(&["export", "1@2", "x.dormouse", "--tree"]));
    for words in [
        &["show", "x.dormouse", "--log"][..],
        &["show", "x.dormouse", "--log", "--json"],
        &["page", EVIL],
        &["page", EVIL, "--json"],
    ] {
        assert!(check(at, words).contains("EVIL"), "{words:?}");
    }
    check(at, &["import", "x.dormouse", "--store", "there"]);
    check(
        at,
        &["import", "x.dormouse", "--store", "there", "--resume"],
    );
    check(at, &["resume", "--store", "there", "--imported"]);
    assert!(check(at, &["call", "evil.toml", "--calls", "calls"]).contains("EVIL"));
}

#[test]
fn no_error_repeats_what_others_wrote_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Raw in the file: the report shows the line, and points to it.
    fs::write(
        at.join("wrong.toml"),
        format!("[model]\nname = \"{EVIL}\"\n# {EVIL}\nprovider = 1 # {EVIL}\n"),
    )
    .unwrap();
    fs::write(
        at.join("odd.toml"),
        format!(
            "[model]\nprovider = \"scripted\"\n[tools]\nenabled = [{0}]\n{0} = 1\n",
            quoted(EVIL)
        ),
    )
    .unwrap();
    fs::write(
        at.join("servers.json"),
        format!(
            "{{\"mcpServers\": {{{0}: {{\"command\": {0}}}}}}}",
            quoted(EVIL)
        ),
    )
    .unwrap();
    let bogus = format!("--{EVIL}");
    let cases: [&[&str]; 12] = [
        &["run", "wrong.toml"],
        &["run", "odd.toml"],
        &["run", EVIL],
        &["show", EVIL],
        &["ps", "--store", EVIL],
        &["fsck", "--store", EVIL],
        &["import", EVIL, "--store", "s"],
        &["page", EVIL],
        &["ps", &bogus],
        &[EVIL],
        &["diff", EVIL, EVIL, "--store", "s"],
        &[
            "export",
            "1",
            "f",
            "--store",
            "s",
            "--redact",
            "(EVIL\u{1b}]0;x\u{202e}",
        ],
    ];
    for words in cases {
        let text = check(at, words);
        assert!(text.contains("EVIL"), "{words:?} showed {text:?}");
    }
    check(at, &["mcp", "--config", "servers.json"]);
    check(at, &["mcp", "--", EVIL]);
}

/// A server that answers every request with this error.
fn serve_errors(body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 65_536]);
            let head =
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close";
            let _ = write!(
                stream,
                "{head}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

#[test]
fn what_a_model_server_says_and_what_is_traced_is_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let address = serve_errors(format!("{{\"error\": {{\"message\": {}}}}}", quoted(EVIL)));
    program(
        folder.path(),
        "far.toml",
        &format!("provider = \"openai-chat\"\nbase_url = \"http://{address}\""),
    );
    let net = format!("--allow-net={address}");
    for json in [&[][..], &["--json"]] {
        let words = [&["run", "far.toml", &net], json].concat();
        for log in ["error", "trace"] {
            let text = shown(folder.path(), &words, log);
            assert_eq!(strange(&text), None, "{log} {json:?}");
            assert!(text.contains("EVIL"), "{log} {json:?} showed {text:?}");
        }
    }
}

#[test]
fn in_a_pipe_an_answer_is_exact_and_an_error_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    program(
        at,
        "evil.toml",
        "provider = \"scripted\"\nscript = \"script.toml\"",
    );
    let piped = |words: &[&str]| run(command(at).args(words).stdin(Stdio::null()));
    let ran = piped(&["run", "evil.toml"]);
    assert_eq!(ran.out, format!("{EVIL}\n"));
    assert_eq!(strange(&ran.err), None);
    let ran = piped(&["run", "evil.toml", "--json"]);
    assert_eq!(strange(&ran.out), None);
    let result = ran
        .json_lines()
        .into_iter()
        .find(|line| line["event"] == "result")
        .unwrap();
    assert_eq!(result["message"], EVIL);
    assert_eq!(strange(&piped(&["show", EVIL]).err), None);
}
