//! Reads records that the index points to. A missing record is reported as damage.

use dormouse_actors::ports::{CommittedFacts, StoreError, TempFileChange};
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use crate::error::damaged;
use crate::location_index::FactRun;
use crate::log::Log;
use crate::log_position::Location;
use crate::payload::{decode_created, decode_facts};
use crate::record_header::{RecordHeader, RecordKind};

/// Reads the header of the record at a location.
///
/// # Errors
/// [`StoreError::Damaged`] if no record is there, [`StoreError::Io`].
pub(crate) fn read_header(log: &Log, at: Location) -> Result<RecordHeader, StoreError> {
    let checked = log.header(at)?.ok_or_else(|| {
        damaged(format!(
            "the record at {at} is unreadable. Its content is lost; everything else can still be \
             read"
        ))
    })?;
    Ok(checked.header)
}

/// Reads the image in a snapshot or a creation.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Io`].
pub(crate) fn read_image(log: &Log, at: Location) -> Result<Vec<u8>, StoreError> {
    let header = read_header(log, at)?;
    let mut payload = log.payload(at, &header)?;
    if header.kind == RecordKind::ProcessCreated {
        let start = payload.len() - decode_created(&payload)?.1.len();
        payload.drain(..start);
    }
    Ok(payload)
}

/// Reads a change of temporary files.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Io`].
pub(crate) fn read_temp_file_change(log: &Log, at: Location) -> Result<TempFileChange, StoreError> {
    let header = read_header(log, at)?;
    Ok(TempFileChange {
        commit: CommitNumber(header.first_commit),
        record: log.payload(at, &header)?,
    })
}

/// Reads when the facts of a record were written. A creation counts as fact 0.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Io`].
pub(crate) fn read_committed_facts(log: &Log, at: Location) -> Result<CommittedFacts, StoreError> {
    let RecordHeader {
        first_commit,
        at_ms,
        first,
        count,
        ..
    } = read_header(log, at)?;
    Ok(CommittedFacts {
        commit: CommitNumber(first_commit),
        at_ms,
        first: FactNumber(first),
        count: count.max(1),
    })
}

/// Reads the facts from `first` to `up_to`. `runs` must contain them without a gap, and may contain
/// more.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Io`].
pub(crate) fn read_facts(
    log: &Log,
    pid: Pid,
    runs: &[FactRun],
    first: FactNumber,
    up_to: FactNumber,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut facts = Vec::new();
    for run in runs {
        let read = || decode_facts(&log.payload(run.at, &read_header(log, run.at)?)?);
        let read = read().map_err(|error| name_lost_facts(pid, run, error))?;
        if read.len() != run.count {
            return Err(damaged(format!(
                "the record at {} does not contain as many facts of process {pid} as its header \
                 says",
                run.at
            )));
        }
        let numbered = (run.first.0..).zip(read);
        facts.extend(
            numbered
                .filter(|(number, _)| (first.0..=up_to.0).contains(number))
                .map(|(_, fact)| fact),
        );
    }
    Ok(facts)
}

/// Adds the lost facts to the error of a damaged record.
fn name_lost_facts(pid: Pid, run: &FactRun, error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged { what } => {
            let last = run.first.0 + (run.count as u64).saturating_sub(1);
            damaged(format!(
                "facts {}-{last} of process {pid} are lost: {what}",
                run.first
            ))
        }
        other => other,
    }
}
