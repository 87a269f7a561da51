//! Defects that a build with `--cfg dormouse_planted` can have, so that tests can show that they
//! find them (`.ci/cluster-faults --plant`). DORMOUSE_PLANTED names one. No other build has this
//! module.

use std::sync::Arc;
use std::time::Duration;

use dormouse_records::NewContent;

use crate::objects::LargeContents;

/// What keeps an earlier owner from writing records.
const GUARD: &str = " AND s.epoch = w.epoch AND s.writes = w.writes";

fn is_planted(defect: &str) -> bool {
    std::env::var("DORMOUSE_PLANTED").is_ok_and(|planted| planted == defect)
}

/// The defect `no-epoch-check`: whoever owns a shard, the write is made.
pub(crate) fn without_guard(sql: String) -> String {
    match is_planted("no-epoch-check") {
        true => sql.replace(GUARD, ""),
        false => sql,
    }
}

/// The defect `contents-after-commit`: a content is put after the commit that names it. Returns
/// whether it was taken.
pub(crate) fn put_later(objects: &Arc<dyn LargeContents>, content: &NewContent) -> bool {
    if !is_planted("contents-after-commit") {
        return false;
    }
    let (objects, content) = (objects.clone(), content.clone());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        objects.put_if_absent(content.name, content.bytes, content.index)
    });
    true
}
