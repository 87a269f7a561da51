//! The different texts that a query matches, each once, with how often it occurs: what
//! `sort | uniq -c | sort -rn` makes of them.
//!
//! Of a pattern with groups, the groups are the text. One pass over the content; what is kept is
//! bounded, and a query whose matches differ more than that is refused.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use dormouse_proto::descriptor::view::{self, Distinct, DistinctMatch, Shown};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};

use super::excerpt::ELEMENT_CHARS;
use super::matcher::{Groups, Matcher, Scan};
use super::{ALL, Search, SearchError, all};
use crate::syscall::args::Args;
use crate::syscall::{Call, Outcome, form};
use dormouse_content::Reader;

/// The most memory that the texts of one search may take, with what keeps them.
const TEXT_BYTES: usize = 16 << 20;
/// What keeps one of them is reckoned at.
const ENTRY_BYTES: usize = 64;

pub(super) const TOO_DIFFERENT: &str = "The matches of the query are too many different texts to \
be counted. Make it more specific, put a group around the part that matters, or leave out distinct";

/// Answers a call with `distinct`.
pub(super) fn run(call: &Call<'_>, args: &Args, search: &Search<'_>) -> Result<Outcome, FdError> {
    if search.context_lines > 0 {
        return Err(args.invalid(
            "Parameter 'context' does not go with distinct, which shows no places: \
                 give one of the two.",
        ));
    }
    let (fd, mut counts) = (args.fd()?, Counts::of(&search.matcher));
    if fd == ALL {
        return in_all(call, args, search, counts);
    }
    let (id, entry) = call.table.resolve(fd)?;
    let view = form::view(args, entry, form::asked(args), call)?;
    let matches = counts.add_all(&mut search.matcher.scan(call.quota), &view.content);
    let matches = matches.map_err(|error| error.answer(args))?;
    search.check_start(args, counts.len())?;
    let sorted = counts.sorted();
    let found = shown(search, &sorted, matches, call.settings);
    Ok(Outcome::Answer(view::distinct(
        &id,
        view.extent().map_err(|error| args.lost(error))?,
        &found,
    )))
}

fn in_all(
    call: &Call<'_>,
    args: &Args,
    search: &Search<'_>,
    mut counts: Counts<'_>,
) -> Result<Outcome, FdError> {
    let (mut matches, mut descriptors, mut found_in, mut unreadable) = (0, 0, 0, Vec::new());
    let mut scan = search.matcher.scan(call.quota);
    for (fd, entry) in all::searched(call.table) {
        descriptors += 1;
        let view = all::view(entry, form::asked(args), call).map_err(SearchError::Lost);
        match view.and_then(|view| counts.add_all(&mut scan, &view.content)) {
            Ok(found) => {
                matches += found;
                found_in += u64::from(found > 0);
            }
            Err(SearchError::Lost(error)) => {
                let has_room =
                    (unreadable.len() as u64) < call.settings.max_read_chars / ELEMENT_CHARS;
                unreadable.extend(has_room.then(|| all::lost(fd, &error)));
            }
            Err(error) => return Err(error.answer(args)),
        }
    }
    search.check_start(args, counts.len())?;
    let sorted = counts.sorted();
    let found = shown(search, &sorted, matches, call.settings);
    Ok(Outcome::Answer(view::distinct_in_all(
        descriptors,
        found_in,
        &found,
        &unreadable,
    )))
}

/// How often each text was matched.
struct Counts<'m> {
    groups: Option<Groups<'m>>,
    counts: BTreeMap<Box<str>, Count>,
    bytes_left: usize,
}

struct Count {
    count: u64,
    /// How many other texts were found before it.
    order: usize,
}

impl<'m> Counts<'m> {
    fn of(matcher: &'m Matcher<'_>) -> Self {
        Self {
            groups: matcher.groups(),
            counts: BTreeMap::new(),
            bytes_left: TEXT_BYTES,
        }
    }

    fn len(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Adds the matches in a content. Returns how many it holds.
    fn add_all(&mut self, scan: &mut Scan<'_>, content: &Reader<'_>) -> Result<u64, SearchError> {
        let content = content.loaded().map_err(SearchError::Lost)?;
        let text = content.text().map_err(SearchError::Lost)?;
        if let Some(groups) = &mut self.groups {
            groups.allow(text.len());
        }
        let (mut matches, mut added) = (0, Ok(()));
        let scanned = scan.find_each(&text, |bytes| {
            matches += 1;
            if added.is_ok() {
                added = self.add(&text, bytes);
            }
        });
        scanned.map_err(SearchError::TooSlow)?;
        added.map(|()| matches)
    }

    fn add(&mut self, text: &str, found: Range<usize>) -> Result<(), SearchError> {
        let key = match &mut self.groups {
            Some(groups) => groups.text(text, found).map_err(SearchError::TooSlow)?,
            None => Cow::Borrowed(&text[found]),
        };
        if let Some(known) = self.counts.get_mut(&*key) {
            known.count += 1;
            return Ok(());
        }
        let left = self.bytes_left.checked_sub(key.len() + ENTRY_BYTES);
        self.bytes_left = left.ok_or(SearchError::TooDifferent)?;
        self.counts.insert(
            key.into(),
            Count {
                count: 1,
                order: self.counts.len(),
            },
        );
        Ok(())
    }

    /// The most frequent first; of those that are as frequent, the one that was found first.
    fn sorted(self) -> Vec<(Box<str>, u64)> {
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_unstable_by_key(|(_, Count { count, order })| (Reverse(*count), *order));
        counts
            .into_iter()
            .map(|(text, Count { count, .. })| (text, count))
            .collect()
    }
}

/// Those that are asked for, as long as there is room. The first is always shown, cut to the bound.
fn shown<'a>(
    search: &Search<'a>,
    sorted: &'a [(Box<str>, u64)],
    matches: u64,
    settings: &DescriptorSettings,
) -> Distinct<'a> {
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
    let asked = sorted
        .iter()
        .skip(start)
        .take(most)
        .enumerate()
        .take_while(fits);
    let values: Vec<_> = asked
        .map(|(_, (text, count))| value(text, *count, max_chars))
        .collect();
    let shown = Shown {
        total: sorted.len() as u64,
        start: search.start,
        count: values.len() as u64,
    };
    Distinct {
        query: search.query,
        matches,
        shown,
        values,
    }
}

fn value(text: &str, count: u64, max_chars: u64) -> DistinctMatch<'_> {
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
