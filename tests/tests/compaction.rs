//! A process that goes on for ever: requests stay bounded, and every word can be read back.
//!
//! `COMPACTION_TURNS=10000` makes so many turns; `COMPACTION_CSV=target/requests.csv` writes the
//! size of each request, for a plot.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dormouse::message::Message;
use dormouse::model::{Request, Usage};
use dormouse::program::Program;
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelBuilder, Position, Process};
use dormouse_tests::{FnModel, fault_of, program, says, turn, within};

const PROGRAM: &str = "
[tools]
enabled = ['read_fd', 'search_fd']
[context]
window = 6000
compact_at = 0.6
keep_messages = 4
max_summary_chars = 1500
";

/// Turns, if no others are asked for.
const TURNS: usize = 300;
/// Turns after which the window is full for the first time, and requests no longer grow.
const WARM_UP: usize = 60;

fn turns() -> usize {
    let asked = std::env::var("COMPACTION_TURNS").ok();
    asked.map_or(TURNS, |turns| turns.parse().expect("a number of turns"))
}

/// The user's text of a turn: unlike every other one, in one line and many.
fn said(turn: usize) -> String {
    format!(
        "turn {turn}: {}\n</fd_content> & é {turn}",
        format!("{:08x} ", turn * 7919).repeat(60)
    )
}

fn replied(turn: usize) -> String {
    format!(
        "reply {turn}: {}",
        format!("{:08x} ", turn * 104_729).repeat(20)
    )
}

/// The size of each request, as the model got it.
type Sizes = Arc<Mutex<Vec<u64>>>;

fn kernel(folder: &Path, sizes: &Sizes) -> KernelBuilder {
    let sizes = Arc::clone(sizes);
    let model = FnModel(move |request: Request| {
        let fault = fault_of(&request);
        assert!(fault.is_none(), "{fault:?}");
        let tokens = request.estimated_tokens();
        let turn = {
            let mut sizes = sizes.lock().expect("no model call has failed");
            sizes.push(tokens);
            sizes.len()
        };
        let mut reply = says(&replied(turn));
        reply.usage = Usage {
            input_tokens: tokens,
            ..Usage::default()
        };
        async move { Ok(reply) }
    });
    Kernel::open(LogStore::open(folder).expect("the store opens")).model("m", model)
}

/// Bytes of a folder.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// The whole text of a descriptor, page by page, as a model reads it.
async fn read_descriptor(process: &Process, fd: &str) -> Option<String> {
    let mut text = String::new();
    for page in 1.. {
        let args = format!("{{\"fd\":\"{fd}\",\"page\":{page}}}");
        let answer = within(process.call("read_fd", args))
            .await
            .expect("it is answered");
        if answer.is_error {
            return (page > 1).then_some(text);
        }
        let document = roxmltree::Document::parse(&answer.text).expect("XML-1");
        let parts = document.root_element().children();
        text.extend(parts.filter_map(|node| node.text()));
    }
    unreachable!("some page is the last")
}

/// Everything that the histories and the conversation hold.
async fn read_everything(kernel: &Kernel, process: &Process) -> String {
    let mut text = String::new();
    for history in 1.. {
        match read_descriptor(process, &format!("history:{history}")).await {
            Some(history) => text += &history,
            None => break,
        }
    }
    let conversation = within(kernel.conversation(process.pid(), Position::Now)).await;
    let messages = conversation.expect("it is readable").messages;
    text.extend(messages.iter().map(|message| message.text()));
    text
}

async fn start(kernel: &Kernel, program: Program) -> Process {
    let start = kernel.start(program).session().without_input();
    start.await.expect("it starts")
}

#[tokio::test]
async fn requests_stay_bounded_and_every_word_can_be_read_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sizes = Sizes::default();
    let kernel = kernel(folder.path(), &sizes)
        .build()
        .await
        .expect("it is built");
    let session = start(&kernel, program(&kernel, PROGRAM)).await;
    let (turns, mut csv) = (turns(), String::from("turn,request_tokens,disk_bytes\n"));
    let (mut half_disk, mut resident) = (0, 0);
    for number in 1..=turns {
        turn(&session, &said(number)).await;
        let tokens = *sizes
            .lock()
            .expect("it holds")
            .last()
            .expect("it was asked");
        let disk = if number % (turns / 20).max(1) == 0 {
            disk_bytes(folder.path())
        } else {
            0
        };
        writeln!(csv, "{number},{tokens},{disk}").expect("a string can be written");
        resident = kernel.resident_bytes().max(resident);
        if number == turns / 2 {
            half_disk = disk_bytes(folder.path());
        }
    }
    if let Some(path) = std::env::var_os("COMPACTION_CSV") {
        std::fs::write(path, csv).expect("the figures are written");
    }
    let sizes = sizes.lock().expect("it holds").clone();
    let (early, late) = sizes.split_at(WARM_UP.min(sizes.len()));
    let (most_early, most_late) = (early.iter().max(), late.iter().max());
    let (most_early, most_late) = (most_early.unwrap_or(&0), most_late.unwrap_or(&0));
    // Numbers of messages get more digits.
    let is_bounded = most_late * 100 <= most_early * 105;
    assert!(is_bounded, "{most_late} tokens after {most_early}");

    let words: usize = (1..=turns)
        .map(|number| said(number).len() + replied(number).len())
        .sum();
    let disk = disk_bytes(folder.path());
    let grown = disk as f64 / half_disk as f64;
    assert!(grown < 2.2, "twice the words take {grown} times the disk");

    let all: Vec<Arc<Message>> = within(kernel.all_messages(session.pid(), Position::Now))
        .await
        .expect("all is readable");
    assert_eq!(all.len(), 2 * turns);
    for (number, pair) in (1..).zip(all.chunks(2)) {
        assert_eq!(pair[0].text(), said(number));
        assert_eq!(pair[1].text(), replied(number));
    }
    let everything = read_everything(&kernel, &session).await;
    let mut rest = &*everything;
    for number in 1..=turns {
        for text in [said(number), replied(number)] {
            let at = rest.find(&text);
            let at = at.unwrap_or_else(|| panic!("{text:?} is not read after the one before"));
            rest = &rest[at + text.len()..];
        }
    }
    within(kernel.shutdown()).await.expect("it ends");
    // Past the harness, which keeps the words of a test that passes.
    let _ = writeln!(
        std::io::stderr(),
        "{turns} turns, {words} bytes of words: requests of at most {most_late} tokens, {disk} \
         bytes of disk ({:.1} times the words), at most {resident} bytes of contents in memory",
        disk as f64 / words as f64
    );
}

#[tokio::test]
async fn a_compacted_process_is_the_same_after_its_store_is_opened_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sizes = Sizes::default();
    let kernel_before = kernel(folder.path(), &sizes)
        .build()
        .await
        .expect("it is built");
    let session = start(&kernel_before, program(&kernel_before, PROGRAM)).await;
    for number in 1..=60 {
        turn(&session, &said(number)).await;
    }
    let pid = session.pid();
    let before = within(kernel_before.conversation(pid, Position::Now)).await;
    let before = before.expect("it is readable");
    assert!(before.compacted > 0);
    assert_eq!(
        before.numbered().next().map(|(number, _)| number),
        Some(None)
    );
    assert_eq!(
        before.numbered().last().map(|(number, _)| number),
        Some(Some(120))
    );
    within(kernel_before.shutdown()).await.expect("it ends");
    let kernel = kernel(folder.path(), &sizes)
        .build()
        .await
        .expect("it is built");
    let session = within(kernel.resume(pid)).await.expect("it resumes");
    let after = within(kernel.conversation(pid, Position::Now)).await;
    assert_eq!(after.expect("it is readable"), before);
    let first = read_descriptor(&session, "history:1")
        .await
        .expect("it is readable");
    assert!(first.contains(&said(1)) && first.contains(&replied(2)));
    // What was compacted can be gone back to from disk.
    let answer = within(session.goto("msg:4", "Once more.")).await;
    assert!(answer.is_ok(), "{answer:?}");
    within(session.wait_for(|view| view.is_idle() && view.messages == 6))
        .await
        .expect("it replies");
    let all = within(kernel.all_messages(pid, Position::Now)).await;
    let texts: Vec<_> = all
        .expect("it is readable")
        .iter()
        .map(|m| m.text())
        .collect();
    assert_eq!(texts[..4], [said(1), replied(1), said(2), replied(2)]);
    within(kernel.shutdown()).await.expect("it ends");
}
