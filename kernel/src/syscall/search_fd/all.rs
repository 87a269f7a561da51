//! A search of every descriptor of a table, in order of ids. Messages are not among them.
//!
//! Matches are numbered over all contents together, so that one number says where to go on. A content that several
//! descriptors hold is searched for each of them.

use std::borrow::Cow;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{FoundInAll, Group};
use dormouse_proto::id::FdId;

use super::Search;
use super::excerpt::Excerpts;
use super::matcher::TooSlow;
use crate::table::{Form, Table, View, served, view_of};

/// What there is to be found. A descriptor whose matches come after those that are shown is listed with their number, as
/// long as there is room. O(n) in all contents together.
///
/// # Errors
/// Where they could not be searched in that time.
pub(super) fn find<'a>(
    search: &Search<'a>,
    views: &'a [(&'a FdId, View<'a>)],
    excerpts: &mut Excerpts<'a>,
) -> Result<FoundInAll<'a>, TooSlow> {
    let mut scan = search.matcher.scan();
    let (mut total, mut found_in, mut groups) = (0, 0, Vec::new());
    for (fd, view) in views {
        let matches = search.find(&mut scan, &view.entry, total, excerpts)?;
        total += matches;
        let excerpts_here = excerpts.take();
        let extent = (!excerpts_here.is_empty()).then(|| view.extent());
        found_in += u64::from(matches > 0);
        // What comes before those that are shown was listed by the call before.
        let is_ahead = matches > 0 && total >= search.start;
        if is_ahead && (excerpts.make_room() || extent.is_some()) {
            groups.push(Group { fd, matches, extent, excerpts: excerpts_here });
        }
    }
    let shown = search.shown(total, excerpts.shown());
    Ok(FoundInAll { query: search.query, descriptors: views.len() as u64, found_in, shown, groups })
}

/// Every descriptor of a table but its messages, in the form that is asked for. One that has no such form is searched as it
/// is: what is asked of all of them need not fit each.
pub(super) fn views<'a>(
    table: &'a Table,
    asked: Option<Form>,
    settings: &DescriptorSettings,
) -> Vec<(&'a FdId, View<'a>)> {
    let held = table.iter().filter(|(id, _)| !matches!(id, FdId::Message { .. })).map(|(id, entry)| {
        let view = view_of(Cow::Borrowed(entry), asked, settings);
        (id, view.unwrap_or_else(|_| served(Cow::Borrowed(entry), settings)))
    });
    held.collect()
}
