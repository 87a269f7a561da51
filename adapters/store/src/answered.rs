//! Which records count: those that an answer of the store hangs on.

use dormouse_actors::ports::Forgotten;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::catalog::Catalog;
use crate::envelope::{Header, Kind};
use crate::index::{Fault, Name};
use crate::mark::Location;
use crate::table::{CheckpointLine, Kept};

/// Whether an answer hangs on the record that stands at a place, when these are given up as well.
/// Of a content: whether it is the copy that is read.
pub(crate) fn is_answered_from(
    catalog: &Catalog,
    forgotten: &Forgotten,
    at: Location,
    header: &Header,
) -> Result<bool, Fault> {
    let (pid, id) = (Pid(header.subject), CheckpointId(header.subject));
    let leads_here = || name_of(header).map_or(Ok(false), |name| catalog.leads_to(&name, at));
    let line = catalog
        .table()
        .line(pid)
        .filter(|line| !line.is_forgotten() && !forgotten.processes.contains(&pid));
    let line = line.as_ref();
    let since = line.map(|line| {
        forgotten
            .histories
            .get(&pid)
            .copied()
            .unwrap_or_default()
            .max(line.since())
    });
    let checkpoint = catalog
        .table()
        .checkpoint_line(id)
        .filter(|line| line.at == at);
    match header.kind {
        Kind::Opened | Kind::Swept => Ok(false),
        Kind::Content | Kind::ContentLost => leads_here(),
        Kind::Born => {
            Ok(since == Some(FactNumber(0)) && line.is_some_and(|line| line.born_at == at))
        }
        Kind::Facts => match since {
            Some(since) if header.first + header.count > since.0 + 1 => leads_here(),
            _ => Ok(false),
        },
        Kind::Snapshot => match since {
            Some(since) if header.first >= since.0 => leads_here(),
            _ => Ok(false),
        },
        Kind::SnapshotDropped => {
            let image = Name::Image(pid, FactNumber(header.first));
            Ok(since.is_some_and(|since| header.first >= since.0)
                && !catalog.leads_somewhere(&image)?)
        }
        Kind::Ended => Ok(line
            .and_then(|line| line.end.as_ref())
            .is_some_and(|end| end.at == at)),
        Kind::TempFile if line.is_some() => leads_here(),
        Kind::TempFile => Ok(false),
        Kind::Checkpoint => {
            Ok(checkpoint.is_some_and(CheckpointLine::is_held)
                && !forgotten.checkpoints.contains(&id))
        }
        Kind::CheckpointDropped => Ok(checkpoint.is_some()),
        // A second copy says the same, and becomes one with the first when it is moved.
        Kind::Pids | Kind::CheckpointIds => Ok(true),
        Kind::LossNoted => Ok(catalog
            .table()
            .note(header.since)
            .is_some_and(|note| note.at == at)),
        Kind::Shortened => {
            Ok(line.is_some_and(|line| matches!(line.kept, Kept::From(_, place) if place == at)))
        }
        Kind::Forgotten => {
            let line = catalog.table().line(pid);
            Ok(line.is_some_and(|line| matches!(line.kept, Kept::Number(place) if place == at)))
        }
    }
}

/// What the index knows a record by; none for those that it does not know.
pub(crate) fn name_of(header: &Header) -> Option<Name> {
    let (pid, first) = (Pid(header.subject), FactNumber(header.first));
    match header.kind {
        Kind::Content | Kind::ContentLost => Some(Name::Content(header.payload)),
        Kind::Born => Some(Name::Image(pid, FactNumber(0))),
        Kind::Facts => Some(Name::Facts(pid, first)),
        Kind::Snapshot => Some(Name::Image(pid, first)),
        Kind::TempFile => Some(Name::TempFile(pid, header.first)),
        Kind::Opened
        | Kind::Swept
        | Kind::Ended
        | Kind::Checkpoint
        | Kind::CheckpointDropped
        | Kind::Shortened
        | Kind::Forgotten
        | Kind::SnapshotDropped
        | Kind::Pids
        | Kind::CheckpointIds
        | Kind::LossNoted => None,
    }
}
