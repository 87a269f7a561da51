//! A search of every descriptor of a table, in order of ids. Messages are not among them.
//!
//! Matches are numbered over all contents together, so that one number says where to go on. A
//! content that several descriptors hold is searched for each of them.

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, Extent, FoundInAll, Group, Shown};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Answer;

use super::excerpt::{Excerpted, Excerpts};
use super::{Search, SearchError};
use crate::syscall::Call;
use crate::table::{Form, Table, View, view_of};
use dormouse_content::{Content, PrettyError, Unreadable};

/// What was found.
pub(super) struct Found<'a> {
    descriptors: u64,
    found_in: u64,
    shown: Shown,
    groups: Vec<FoundIn<'a>>,
    unreadable: Vec<FdError>,
}

/// What was found in one descriptor.
struct FoundIn<'a> {
    fd: &'a FdId,
    matches: u64,
    extent: Option<Extent>,
    excerpts: Vec<Excerpted>,
}

impl FoundIn<'_> {
    fn group(&self) -> Group<'_> {
        let Self {
            fd,
            matches,
            extent,
            ref excerpts,
        } = *self;
        Group {
            fd,
            matches,
            extent,
            excerpts: excerpts.iter().map(Excerpted::excerpt).collect(),
        }
    }
}

impl Found<'_> {
    /// All matches.
    pub(super) fn total(&self) -> u64 {
        self.shown.total
    }

    pub(super) fn answer(&self, search: &Search<'_>) -> Answer {
        let Self {
            descriptors,
            found_in,
            shown,
            ..
        } = *self;
        let (groups, unreadable) = (
            self.groups.iter().map(FoundIn::group).collect(),
            self.unreadable.clone(),
        );
        view::search_all(&FoundInAll {
            query: search.query,
            descriptors,
            found_in,
            shown,
            groups,
            unreadable,
        })
    }
}

/// What there is to be found. A descriptor whose matches come after those that are shown is listed
/// with their number, as long as there is room; one that cannot be read is named. O(n) in all
/// contents together.
///
/// # Errors
/// Where they could not be searched in that time.
pub(super) fn find<'a>(
    search: &Search<'_>,
    call: &Call<'a>,
    asked: Option<Form>,
    excerpts: &mut Excerpts,
) -> Result<Found<'a>, SearchError> {
    let mut scan = search.matcher.scan(call.quota);
    let (mut total, mut descriptors, mut found_in) = (0, 0, 0);
    let (mut groups, mut unreadable) = (Vec::new(), Vec::new());
    for (fd, entry) in searched(call.table) {
        descriptors += 1;
        let searched = view(entry, asked, call)
            .map_err(SearchError::Lost)
            .and_then(|view| {
                let matches = search.find(&mut scan, &view, total, excerpts)?;
                Ok((matches, view.extent().map_err(SearchError::Lost)?))
            });
        let excerpts_here = excerpts.take();
        let (matches, extent) = match searched {
            Ok(searched) => searched,
            Err(SearchError::Lost(error)) => {
                unreadable.extend(excerpts.make_room().then(|| lost(fd, &error)));
                continue;
            }
            Err(error) => return Err(error),
        };
        total += matches;
        found_in += u64::from(matches > 0);
        let extent = (!excerpts_here.is_empty()).then_some(extent);
        // What comes before those that are shown was listed by the call before.
        let is_ahead = matches > 0 && total >= search.start;
        if is_ahead && (excerpts.make_room() || extent.is_some()) {
            groups.push(FoundIn {
                fd,
                matches,
                extent,
                excerpts: excerpts_here,
            });
        }
    }
    let shown = search.shown(total, excerpts.shown());
    Ok(Found {
        descriptors,
        found_in,
        shown,
        groups,
        unreadable,
    })
}

/// The descriptors that are searched.
pub(super) fn searched(table: &Table) -> impl Iterator<Item = (&FdId, &Entry<Content>)> {
    table
        .iter()
        .filter(|(id, _)| !matches!(id, FdId::Message { .. }))
}

/// A descriptor in the form that is asked for. One that has no such form is searched as it is: what
/// is asked of all of them need not fit each.
pub(super) fn view<'a>(
    entry: &'a Entry<Content>,
    asked: Option<Form>,
    call: &Call<'a>,
) -> Result<View<'a>, Unreadable> {
    match view_of(Cow::Borrowed(entry), asked, call.settings, call.quota) {
        Ok(view) => Ok(view),
        Err(PrettyError::Unreadable(error)) => Err(error),
        Err(_) => call.served(Cow::Borrowed(entry)),
    }
}

pub(super) fn lost(fd: &FdId, error: &Unreadable) -> FdError {
    FdError {
        kind: FdErrorKind::ContentUnreadable,
        fd: Some(fd.to_string()),
        message: error.to_string(),
    }
}
