//! A store of 1 GB: opening it, and the first answer of a process that is read from it.

use std::path::Path;
use std::time::{Duration, Instant};

use dormouse::Kernel;
use dormouse::model::Request;
use dormouse::store::LogStore;
use dormouse::user_input::InputPart;
use dormouse_bench::{Outcome, Replies, Spread, line, program, resident_bytes, says, shown};

use crate::{bytes, timed};

const ROUNDS: usize = 20;

/// Opens warm, again and again: the store alone, then a kernel on it that resumes the process and
/// reads a page of it.
pub(crate) fn restored(folder: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let store = folder.join("store");
    let opened = || {
        let model = Replies(|_: Request| async { says("done") });
        Outcome::Ok(Kernel::open(LogStore::open(&store)?).model("m", model))
    };
    let pid = runtime.block_on(async {
        let kernel = opened()?.build().await?;
        let process = kernel
            .start(program(&kernel)?)
            .session()
            .without_input()
            .await?;
        for part in 0..20 {
            process
                .input(InputPart::new("bench", bytes(part + 1, 50_000_000)))
                .await?;
            process.wait_for(dormouse::View::is_idle).await?;
        }
        let pid = process.pid();
        kernel.shutdown().await?;
        Outcome::Ok(pid)
    })?;
    // What building it left in memory is no part of what restoring it takes.
    let (mut opens, mut answers, mut grown) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (found, took) = timed(|| LogStore::open(&store));
        drop(found?);
        opens.push(took);
        let (took, bytes) = runtime.block_on(async {
            let kernel = opened()?.build().await?;
            let before = resident_bytes()?;
            let began = Instant::now();
            let process = kernel.resume(pid).await?;
            let page = 1 + 100 * round;
            let answer = process
                .call(
                    "read_fd",
                    format!(r#"{{"fd": "fd:{}", "page": {page}}}"#, 1 + round),
                )
                .await?;
            let took = began.elapsed();
            let bytes = resident_bytes()?.saturating_sub(before);
            if answer.is_error {
                return Err(format!("{answer:?}").into());
            }
            kernel.shutdown().await?;
            Outcome::<(Duration, u64)>::Ok((took, bytes))
        })?;
        answers.push(took);
        grown.push(bytes);
    }
    let (opens, answers) = (Spread::of(opens), Spread::of(answers));
    line(format_args!(
        "a store of 1 GB opens in {} (p99 {})",
        shown(opens.median),
        shown(opens.p99)
    ))?;
    line(format_args!(
        "resumed and a page read in {} (p99 {})",
        shown(answers.median),
        shown(answers.p99)
    ))?;
    grown.sort_unstable();
    line(format_args!(
        "memory grew by {:.2} MB (median)",
        grown[grown.len() / 2] as f64 / 1e6
    ))?;
    Ok(())
}
