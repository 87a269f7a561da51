//! Runs a program: forwards its output to the sink, and keeps the end of its standard error for the
//! message of a failure.
//!
//! Everything that the program itself wrote is forwarded. Descendants that keep a pipe open after
//! its end get a short grace period and are killed then. Dropping the future kills the whole group
//! at once.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::time::Duration;

use dormouse_actors::ports::{OutputFull, OutputSink, ToolError};
use futures_util::future::{Either, FutureExt, select, try_join};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::confine::Confinement;
use super::launcher::PreparedCommand;
use super::process_group::{ProcessGroup, StartedCommand};
use super::stderr_tail::StderrTail;

/// How long the pipes may stay open after the program ended.
const GRACE: Duration = Duration::from_millis(200);

const CHUNK_BYTES: usize = 64 << 10;

/// Why the output is not read any further.
#[derive(Debug)]
enum ReadStop {
    Full,
    Io(io::Error),
}

/// Runs a program to its end.
///
/// # Errors
/// The program could not be started, wrote more than `cap_bytes`, or failed. The text holds the end
/// of the standard error. The output up to then is in `out`.
pub(super) async fn run(
    prepared: PreparedCommand,
    cap_bytes: u64,
    out: &OutputSink,
) -> Result<(), ToolError> {
    let confinement = prepared
        .bounds
        .as_ref()
        .map(|bounds| bounds.confinement.clone());
    let name = prepared.display_name.clone();
    let started = ProcessGroup::start(prepared)
        .map_err(|error| format!("`{name}` could not be started: {error}."))?;
    let StartedCommand {
        mut group,
        stdout,
        stderr,
    } = started;
    let mut tail = StderrTail::default();
    let forwarding = {
        let errors = tail.follow(stderr).map(|done| done.map_err(ReadStop::Io));
        let streams = try_join(forward(stdout, out), errors).map(|done| done.map(drop));
        supervise(&mut group, pin!(streams)).await
    };
    let status = group.end().await;
    match (forwarding, status) {
        (Err(ReadStop::Full), _) => Err(format!(
            "`{name}` wrote more than {cap_bytes} bytes, the cap of its output, and was ended. \
             What fitted is kept. Ask for less."
        )
        .into()),
        (Err(ReadStop::Io(error)), _) | (Ok(()), Err(error)) => {
            Err(format!("`{name}` could not be followed: {error}.").into())
        }
        (Ok(()), Ok(status)) => check_status(&name, status, tail, confinement.as_ref()),
    }
}

/// Waits until the program has ended and its streams are closed.
async fn supervise(
    group: &mut ProcessGroup,
    mut streams: Pin<&mut impl Future<Output = Result<(), ReadStop>>>,
) -> Result<(), ReadStop> {
    match select(streams.as_mut(), pin!(group.exited())).await {
        Either::Left((forwarding, exited)) => {
            forwarding?;
            return exited.await.map_err(ReadStop::Io);
        }
        Either::Right((exited, _)) => exited.map_err(ReadStop::Io)?,
    }
    if let Ok(forwarding) = timeout(GRACE, streams.as_mut()).await {
        return forwarding;
    }
    group.kill();
    timeout(GRACE, streams).await.unwrap_or(Ok(()))
}

async fn forward(mut stdout: impl AsyncRead + Unpin, out: &OutputSink) -> Result<(), ReadStop> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match stdout.read(&mut chunk).await.map_err(ReadStop::Io)? {
            0 => return Ok(()),
            read => out
                .push(&chunk[..read])
                .map_err(|OutputFull| ReadStop::Full)?,
        }
    }
}

fn check_status(
    name: &str,
    status: ExitStatus,
    tail: StderrTail,
    confinement: Option<&Confinement>,
) -> Result<(), ToolError> {
    if status.success() {
        return Ok(());
    }
    let ending = match (status.code(), status.signal()) {
        // A guard, and a shell, report the end by a signal as such a code.
        (Some(code @ 129..=159), _) => {
            format!(
                "exited with code {code} (as by signal {}{})",
                code - 128,
                signal_name(code - 128)
            )
        }
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(number)) => format!("was ended by signal {number}{}", signal_name(number)),
        (None, None) => format!("ended as {status}"),
    };
    let stderr = tail.text();
    let hint = confinement
        .map(|confinement| confinement.permission_hint(&stderr))
        .unwrap_or_default();
    let stderr = if stderr.is_empty() {
        " It wrote nothing to stderr.".into()
    } else {
        format!(" stderr:\n{stderr}")
    };
    Err(format!("`{name}` {ending}.{stderr}{hint}").into())
}

fn signal_name(number: i32) -> String {
    Signal::from_named_raw(number)
        .map(|signal| format!(" ({signal:?})"))
        .unwrap_or_default()
}
