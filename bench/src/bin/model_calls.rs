//! The overhead that the kernel adds to a model call, compared with a call by the HTTP client
//! reqwest alone: the time of a call, and the memory of an open stream.
//!
//! A local server answers each request at once, and measures the time from the last byte of an
//! answer to the last byte of the next request, which is the work of the client in between. Both
//! clients send the same conversation, which grows with each reply. The stop reason `pause_turn`
//! makes the kernel continue its turn with another call; the other client sends the bodies that the
//! kernel sent.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use dormouse::models::Anthropic;
use dormouse::{Kernel, ProcessView};
use dormouse_bench::{Outcome, print_line, resident_bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CALLS: usize = 400;
const STREAMS: usize = 200;
/// Streams that are open before the measurement begins. What the first calls bring into memory,
/// such as code and tables, is no cost of a stream.
const WARM_UP_STREAMS: usize = 50;
const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"anthropic\"\nmax_iterations = \
1000\n[prompt]\nsystem = \"You measure.\"\n";

/// The answers of the server.
#[derive(Clone, Copy)]
enum Answers {
    /// This many answers have the stop reason `pause_turn`; the next one ends the turn.
    PausedTurns(usize),
    /// Each answer is a stream that begins and never ends.
    NeverEnding,
}

/// The requests that the server has received.
#[derive(Default)]
struct ServerLog {
    bodies: Vec<Vec<u8>>,
    /// The times from the end of each answer to the end of the next request.
    gaps: Vec<Duration>,
    answered: Option<Instant>,
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => runtime.block_on(compare()),
        ["measure", kind] => print_line(runtime.block_on(open_streams(kind))?).map_err(Into::into),
        _ => Err("model_calls".into()),
    }
}

async fn compare() -> Outcome {
    let (url, log) = serve(Answers::PausedTurns(CALLS))?;
    let kernel = Kernel::builder()
        .model("m", Anthropic::builder().base_url(&url).build()?)
        .build()
        .await?;
    let process = kernel
        .start(kernel.parse(PROGRAM)?.program)
        .session()
        .input("go")
        .await?;
    process
        .wait_for(|view: &ProcessView| view.is_idle())
        .await?;
    let kernel_log = std::mem::take(&mut *log.lock().expect("the server does not panic"));
    let store = tempfile::tempdir()?;
    let durable = Kernel::open(dormouse::store::LogStore::open(store.path())?);
    let durable = durable
        .model("m", Anthropic::builder().base_url(&url).build()?)
        .build()
        .await?;
    let process = durable
        .start(durable.parse(PROGRAM)?.program)
        .session()
        .input("go")
        .await?;
    process
        .wait_for(|view: &ProcessView| view.is_idle())
        .await?;
    let with_store = std::mem::take(&mut *log.lock().expect("the server does not panic"));
    let client = client()?;
    for body in &kernel_log.bodies {
        let request = client
            .post(format!("{url}/v1/messages"))
            .header("content-type", "application/json");
        request.body(body.clone()).send().await?.bytes().await?;
    }
    let bare = std::mem::take(&mut *log.lock().expect("the server does not panic"));
    let micros =
        |log: &ServerLog| median(log.gaps.iter().map(|gap| gap.as_secs_f64() * 1e6).collect());
    let (kernel_log, with_store, bare) = (micros(&kernel_log), micros(&with_store), micros(&bare));
    print_line(format_args!(
        "microseconds between an answer and the next request, median of {CALLS} calls"
    ))?;
    print_line(format_args!(
        "{:40} {bare:>8.0}",
        "bare reqwest, the same bodies"
    ))?;
    print_line(format_args!(
        "{:40} {kernel_log:>8.0}  {:+.0}",
        "kernel",
        kernel_log - bare
    ))?;
    print_line(format_args!(
        "{:40} {with_store:>8.0}  {:+.0}",
        "kernel on a store (two syncs)",
        with_store - bare
    ))?;
    print_line(format_args!(
        "bytes for each of {STREAMS} open streams, resident, both ends"
    ))?;
    for kind in ["bare", "kernel"] {
        let output = Command::new(std::env::current_exe()?)
            .args(["measure", kind])
            .output()?;
        let bytes: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
        print_line(format_args!("{kind:40} {bytes:>8}"))?;
    }
    Ok(())
}

/// The resident bytes of each open stream.
async fn open_streams(kind: &str) -> Outcome<u64> {
    let (url, log) = serve(Answers::NeverEnding)?;
    let client = client()?;
    let kernel = Kernel::builder()
        .model_calls(WARM_UP_STREAMS + STREAMS)
        .model("m", Anthropic::builder().base_url(&url).build()?);
    let kernel = kernel.build().await?;
    let program = kernel.parse(PROGRAM)?.program;
    let mut opened = 0;
    let mut open = Vec::new();
    let mut before = 0;
    for count in [WARM_UP_STREAMS, WARM_UP_STREAMS + STREAMS] {
        before = resident_bytes()?;
        while opened < count {
            opened += 1;
            if kind == "kernel" {
                drop(kernel.start(program.clone()).input("go").await?);
            } else {
                let mut response = client
                    .post(format!("{url}/v1/messages"))
                    .body("{}")
                    .send()
                    .await?;
                response.chunk().await?;
                open.push(response);
            }
        }
        while log.lock().expect("the server does not panic").bodies.len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(resident_bytes()?.saturating_sub(before) / STREAMS as u64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// An HTTP client as the kernel's models use it, without the kernel around it.
fn client() -> Outcome<reqwest::Client> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    let tls = tls
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .build()?)
}

/// Starts a server on a thread of its own. Returns its URL and its log.
fn serve(answers: Answers) -> io::Result<(String, Arc<Mutex<ServerLog>>)> {
    let (address_sender, address) = mpsc::channel();
    let log = Arc::new(Mutex::new(ServerLog::default()));
    let server_log = log.clone();
    std::thread::spawn(move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(accept(answers, &server_log, &address_sender))
    });
    let address = address.recv().map_err(io::Error::other)?;
    Ok((format!("http://{address}"), log))
}

async fn accept(
    answers: Answers,
    log: &Arc<Mutex<ServerLog>>,
    address_sender: &mpsc::Sender<SocketAddr>,
) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // The caller of `serve` waits for the address.
    let _ = address_sender.send(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // An error means that the client closed the connection, so the result of the task is
        // ignored.
        tokio::spawn(serve_connection(stream, answers, log.clone()));
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    answers: Answers,
    log: Arc<Mutex<ServerLog>>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let body = loop {
            if let Some(body) = complete_body(&buffer) {
                break body;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let count = {
            let mut log = log.lock().expect("nobody panics with it");
            let now = Instant::now();
            let gap = log.answered.map(|answered| now.duration_since(answered));
            log.gaps.extend(gap);
            log.bodies.push(body);
            log.bodies.len()
        };
        buffer.clear();
        match answers {
            Answers::NeverEnding => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: \
                     text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                let event =
                    event(r#"{"type":"message_start","message":{"usage":{"input_tokens":9}}}"#);
                stream
                    .write_all(format!("{head}{:x}\r\n{event}\r\n", event.len()).as_bytes())
                    .await?;
                std::future::pending::<()>().await;
            }
            Answers::PausedTurns(calls) => {
                let stop = if count <= calls {
                    "pause_turn"
                } else {
                    "end_turn"
                };
                stream.write_all(answer(stop).as_bytes()).await?;
                log.lock().expect("nobody panics with it").answered = Some(Instant::now());
            }
        }
    }
}

/// The body of a request that has arrived completely.
fn complete_body(buffer: &[u8]) -> Option<Vec<u8>> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let lines = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let length = lines.lines().find_map(|line| {
        line.strip_prefix("content-length:")?
            .trim()
            .parse::<usize>()
            .ok()
    })?;
    buffer.get(head..head + length).map(<[u8]>::to_vec)
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn answer(stop: &str) -> String {
    let events = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I go on."}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        &format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}"}},"usage":{{"output_tokens":4}}}}"#
        ),
        r#"{"type":"message_stop"}"#,
    ];
    let body: String = events.into_iter().map(event).collect();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
