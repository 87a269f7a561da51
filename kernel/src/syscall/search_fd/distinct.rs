//! `search_fd` with `distinct`: each different matched text once, with its number of occurrences,
//! like `sort | uniq -c | sort -rn`.
//!
//! If the pattern has groups, their text is counted instead of the whole match. The content is read
//! once. Memory is bounded: a query with too many different matches is refused.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use dormouse_proto::descriptor::view::{self, DistinctMatch, DistinctMatches, Shown};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};

use super::excerpt::ELEMENT_CHARS;
use super::matcher::{Groups, LineEnds, Matcher, Scan};
use super::{ALL, Search, SearchError, all};
use crate::syscall::args::Args;
use crate::syscall::{Call, Outcome, form};
use dormouse_content::Reader;

/// Limit for the memory of all counted texts and their entries.
const TEXT_BYTES: usize = 16 << 20;
/// Estimated overhead of one entry.
const ENTRY_BYTES: usize = 64;

pub(super) const TOO_MANY_DISTINCT: &str = "The matches of the query are too many different texts \
to be counted. Make it more specific, put a group around the part that matters, or leave out \
distinct";

/// Executes a call with `distinct`.
pub(super) fn run(call: &Call<'_>, args: &Args, search: &Search<'_>) -> Result<Outcome, FdError> {
    if search.context_lines > 0 {
        return Err(args.invalid_error(
            "Parameter 'context' does not go with distinct, which shows no places: \
                 give one of the two.",
        ));
    }
    let fd = args.fd()?;
    let mut counts = Counts::new(&search.matcher);
    if fd == ALL {
        return run_in_all(call, args, search, counts);
    }
    let (id, entry) = call.table.resolve_argument(fd)?;
    let view = form::view(args, entry, form::requested(args), call)?;
    let matches = counts.add_all(&mut search.matcher.scan(call.quota), &view.content);
    let matches = matches.map_err(|error| error.into_fd_error(args))?;
    search.check_start(args, counts.len())?;
    let sorted = counts.sorted();
    let found = select_shown(search, &sorted, matches, call.settings);
    Ok(Outcome::Answer(view::distinct(
        &id,
        view.extent()
            .map_err(|error| args.unreadable_error(error))?,
        &found,
    )))
}

fn run_in_all(
    call: &Call<'_>,
    args: &Args,
    search: &Search<'_>,
    mut counts: Counts<'_>,
) -> Result<Outcome, FdError> {
    let mut matches = 0;
    let mut descriptors = 0;
    let mut found_in = 0;
    let mut binary = Vec::new();
    let mut unreadable = Vec::new();
    let mut scan = search.matcher.scan(call.quota);
    for (fd, entry) in all::descriptors_to_search(call.table) {
        descriptors += 1;
        let view = all::view(entry, form::requested(args), call).map_err(SearchError::Unreadable);
        let searched = view.and_then(|view| {
            let found = counts.add_all(&mut scan, &view.content)?;
            let is_binary = view.content.is_binary().map_err(SearchError::Unreadable)?;
            Ok((found, is_binary))
        });
        match searched {
            Ok((found, is_binary)) => {
                binary.extend(is_binary.then_some(fd));
                matches += found;
                found_in += u64::from(found > 0);
            }
            Err(SearchError::Unreadable(error)) => {
                let has_room =
                    (unreadable.len() as u64) < call.settings.max_read_chars / ELEMENT_CHARS;
                unreadable.extend(has_room.then(|| all::unreadable_error(&fd, &error)));
            }
            Err(error) => return Err(error.into_fd_error(args)),
        }
    }
    search.check_start(args, counts.len())?;
    let sorted = counts.sorted();
    let found = select_shown(search, &sorted, matches, call.settings);
    Ok(Outcome::Answer(view::distinct_in_all(
        descriptors,
        found_in,
        &found,
        &binary,
        &unreadable,
    )))
}

/// Counts of the matched texts.
struct Counts<'m> {
    matcher: &'m Matcher<'m>,
    /// The groups of the pattern for the line ends of the texts that were searched.
    groups: BTreeMap<LineEnds, Option<Groups<'m>>>,
    counts: BTreeMap<Box<str>, Count>,
    bytes_left: usize,
}

struct Count {
    count: u64,
    /// Number of different texts that were found before this one.
    order: usize,
}

impl<'m> Counts<'m> {
    fn new(matcher: &'m Matcher<'m>) -> Self {
        Self {
            matcher,
            groups: BTreeMap::new(),
            counts: BTreeMap::new(),
            bytes_left: TEXT_BYTES,
        }
    }

    fn len(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Counts the matches in a content. Returns their number.
    fn add_all(&mut self, scan: &mut Scan<'_>, content: &Reader<'_>) -> Result<u64, SearchError> {
        let content = content.loaded().map_err(SearchError::Unreadable)?;
        let text = content.text().map_err(SearchError::Unreadable)?;
        let line_ends = LineEnds::of(&text);
        let mut groups = match self.groups.remove(&line_ends) {
            Some(groups) => groups,
            None => self
                .matcher
                .groups(line_ends)
                .map_err(SearchError::TooSlow)?,
        };
        if let Some(groups) = &mut groups {
            groups.extend_for_text(text.len());
        }
        let mut matches = 0;
        let mut add_result = Ok(());
        let scanned = scan.find_each(&text, |bytes| {
            matches += 1;
            if add_result.is_ok() {
                add_result = self.add(&text, bytes, groups.as_mut());
            }
        });
        self.groups.insert(line_ends, groups);
        scanned.map_err(SearchError::TooSlow)?;
        add_result.map(|()| matches)
    }

    fn add(
        &mut self,
        text: &str,
        found: Range<usize>,
        groups: Option<&mut Groups<'m>>,
    ) -> Result<(), SearchError> {
        let key = match groups {
            Some(groups) => groups
                .captured_text(text, found)
                .map_err(SearchError::TooSlow)?,
            None => Cow::Borrowed(&text[found]),
        };
        if let Some(known) = self.counts.get_mut(&*key) {
            known.count += 1;
            return Ok(());
        }
        let left = self.bytes_left.checked_sub(key.len() + ENTRY_BYTES);
        self.bytes_left = left.ok_or(SearchError::TooManyDistinct)?;
        self.counts.insert(
            key.into(),
            Count {
                count: 1,
                order: self.counts.len(),
            },
        );
        Ok(())
    }

    /// The counts, most frequent first; equally frequent ones in the order of their first
    /// occurrence.
    fn sorted(self) -> Vec<(Box<str>, u64)> {
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_unstable_by_key(|(_, Count { count, order })| (Reverse(*count), *order));
        counts
            .into_iter()
            .map(|(text, Count { count, .. })| (text, count))
            .collect()
    }
}

/// Selects the requested texts while they fit. The first is always shown, truncated to the limit.
fn select_shown<'a>(
    search: &Search<'a>,
    sorted: &'a [(Box<str>, u64)],
    matches: u64,
    settings: &DescriptorSettings,
) -> DistinctMatches<'a> {
    let max_chars = settings.max_read_chars.max(1);
    let mut left = max_chars;
    let fits = |(index, (text, _)): &(usize, &(Box<str>, u64))| {
        let chars = text.chars().count() as u64 + ELEMENT_CHARS;
        let fits = *index == 0 || chars <= left;
        left = left.saturating_sub(chars);
        fits
    };
    let start = usize::try_from(search.start - 1).unwrap_or(usize::MAX);
    let most = usize::try_from(search.max_matches).unwrap_or(usize::MAX);
    let requested = sorted
        .iter()
        .skip(start)
        .take(most)
        .enumerate()
        .take_while(fits);
    let values: Vec<_> = requested
        .map(|(_, (text, count))| to_match(text, *count, max_chars))
        .collect();
    let shown = Shown {
        total: sorted.len() as u64,
        start: search.start,
        count: values.len() as u64,
    };
    DistinctMatches {
        query: search.query,
        matches,
        shown,
        values,
    }
}

fn to_match(text: &str, count: u64, max_chars: u64) -> DistinctMatch<'_> {
    let end = text
        .char_indices()
        .nth(usize::try_from(max_chars).unwrap_or(usize::MAX))
        .map(|(at, _)| at);
    DistinctMatch {
        text: &text[..end.unwrap_or(text.len())],
        count,
        truncated: end.is_some(),
    }
}

#[cfg(test)]
mod tests;
