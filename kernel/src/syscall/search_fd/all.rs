//! Searches every descriptor of a table in the order of ids, then the messages, if they are
//! descriptors.
//!
//! Matches are numbered across all contents, so that one number identifies where to continue. A
//! content that several descriptors share is searched for each of them.

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, ContentSummary, FoundInAll, Group, Shown};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Answer;

use super::excerpt::{Excerpts, MatchExcerpt};
use super::{Search, SearchError};
use crate::syscall::Call;
use crate::table::{Form, Table, View, view_as};
use dormouse_content::{Content, PrettyError, Unreadable};

/// The result of the search.
pub(super) struct AllMatches {
    descriptors: u64,
    found_in: u64,
    shown: Shown,
    groups: Vec<DescriptorMatches>,
    binary: Vec<FdId>,
    unreadable: Vec<FdError>,
}

/// The matches in one descriptor.
struct DescriptorMatches {
    fd: FdId,
    matches: u64,
    extent: Option<ContentSummary>,
    excerpts: Vec<MatchExcerpt>,
}

impl DescriptorMatches {
    fn to_group(&self) -> Group<'_> {
        let Self {
            fd,
            matches,
            extent,
            excerpts,
        } = self;
        Group {
            fd,
            matches: *matches,
            extent: *extent,
            excerpts: excerpts.iter().map(MatchExcerpt::to_excerpt).collect(),
        }
    }
}

impl AllMatches {
    /// Number of all matches.
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
        let groups = self
            .groups
            .iter()
            .map(DescriptorMatches::to_group)
            .collect();
        let binary = self.binary.iter().collect();
        let unreadable = self.unreadable.clone();
        view::search_all(&FoundInAll {
            query: search.query,
            query_kind: search.query_kind,
            descriptors,
            found_in,
            shown,
            groups,
            binary,
            unreadable,
        })
    }
}

/// Searches all descriptors. A descriptor whose matches come after the shown ones is listed with
/// the number of its matches while there is room. A descriptor that cannot be read is reported.
/// O(n) in the sum of all contents.
///
/// # Errors
/// [`SearchError`] if the search takes too long.
pub(super) fn find(
    search: &Search<'_>,
    call: &Call<'_>,
    requested: Option<Form>,
    excerpts: &mut Excerpts,
) -> Result<AllMatches, SearchError> {
    let mut scan = search.matcher.scan(call.quota);
    let mut total = 0;
    let mut descriptors = 0;
    let mut found_in = 0;
    let mut groups = Vec::new();
    let mut binary = Vec::new();
    let mut unreadable = Vec::new();
    for (fd, entry) in descriptors_to_search(call.table) {
        descriptors += 1;
        let searched = view(entry, requested, call)
            .map_err(SearchError::Unreadable)
            .and_then(|view| {
                let matches = search.find(&mut scan, &view, total, excerpts)?;
                Ok((matches, view.extent().map_err(SearchError::Unreadable)?))
            });
        let excerpts_here = excerpts.take_excerpts();
        let (matches, extent) = match searched {
            Ok(searched) => searched,
            Err(SearchError::Unreadable(error)) => {
                excerpts.withdraw(&excerpts_here);
                unreadable.extend(
                    excerpts
                        .reserve_element()
                        .then(|| unreadable_error(&fd, &error)),
                );
                continue;
            }
            Err(error) => return Err(error),
        };
        total += matches;
        binary.extend(extent.encoding.is_base64().then(|| fd.clone()));
        found_in += u64::from(matches > 0);
        let extent = (!excerpts_here.is_empty()).then_some(extent);
        // Descriptors before the shown matches were listed by the previous call.
        let is_listed = matches > 0 && total >= search.start;
        if is_listed && (excerpts.reserve_element() || extent.is_some()) {
            groups.push(DescriptorMatches {
                fd,
                matches,
                extent,
                excerpts: excerpts_here,
            });
        }
    }
    let shown = search.describe_shown(total, excerpts.shown());
    Ok(AllMatches {
        descriptors,
        found_in,
        shown,
        groups,
        binary,
        unreadable,
    })
}

/// The descriptors to search. A message with notes is in the table as well, and is searched once.
pub(super) fn descriptors_to_search(
    table: &Table,
) -> impl Iterator<Item = (FdId, Cow<'_, Entry<Content>>)> {
    let opened = table
        .iter()
        .filter(|(id, _)| !matches!(id, FdId::Message { .. }))
        .map(|(id, entry)| (id.clone(), Cow::Borrowed(entry)));
    let messages = table.messages();
    opened.chain(messages.map(|(id, entry)| (id, Cow::Owned(entry))))
}

/// A descriptor in the requested form. A content that does not have this form is searched in its
/// default form, since the request applies to all contents.
pub(super) fn view<'a>(
    entry: Cow<'a, Entry<Content>>,
    requested: Option<Form>,
    call: &Call<'a>,
) -> Result<View<'a>, Unreadable> {
    match view_as(entry.clone(), requested, call.settings, call.quota) {
        Ok(view) => Ok(view),
        Err(PrettyError::Unreadable(error)) => Err(error),
        Err(_) => call.in_default_form(entry),
    }
}

pub(super) fn unreadable_error(fd: &FdId, error: &Unreadable) -> FdError {
    FdError::new(
        FdErrorKind::ContentUnreadable,
        Some(fd.to_string()),
        error.to_string(),
    )
}
