//! `search_fd`: finds text in a content without showing all of it.
//!
//! Each occurrence of the query is a match. Matches do not overlap and are numbered from 1 in the
//! order of the content, also those that an answer does not show. Matches on one short line share
//! one `match` element with a `count`; on a long line each has its own element with the text around
//! it. The content is read once. The line and page index is used only for the matches that are
//! shown.
//!
//! A search of `*` covers every descriptor of the table (`all.rs`). With `distinct`, each different
//! match is shown once (`distinct.rs`). `matcher.rs` finds the matches in a text, and `excerpt.rs`
//! cuts out what is shown of each.

mod all;
mod distinct;
mod excerpt;
mod matcher;

use dormouse_proto::descriptor::view::{self, Found, QueryKind, Shown};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::tool::Access;

use self::excerpt::{Excerpts, MatchExcerpt};
use self::matcher::{Case, Matcher, Scan, TooSlow};
use super::args::Args;
use super::{Call, FD_NAMES, Group, Handler, Outcome, Parameter, Tool, form};
use crate::table::View;
use dormouse_content::{ReadQuota, Unreadable};

/// `search_fd` as a tool.
pub const TOOL: Tool = Tool {
    name: "search_fd",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some(
        "search_fd(fd=\"fd:1\", query=\"error\", context=2) - find text; fd=\"*\" searches all \
         descriptors",
    ),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(search_fd),
};

/// Selects every descriptor of the table. It is neither a valid id nor a valid name.
pub(super) const ALL: &str = "*";

/// Default maximum of matches in one answer.
const MAX_MATCHES: u64 = 50;

const DESCRIPTION: &str = "Finds text in content that is kept in a file descriptor, or in all of \
them at once. Returns the number of all matches, and each match with its line, its page and its \
character position, which read_fd takes to show what stands around it. With `distinct` you get \
each different match once, with how often it occurs.";

const PARAMETERS: [Parameter; 12] = [
    Parameter::word(
        "fd",
        "The descriptor, such as fd:1 or ref:plan; * for all of them, and for the messages where they \
         are descriptors",
    )
    .required()
    .also(&FD_NAMES),
    Parameter::text(
        "query",
        "The text to find, taken literally unless regex is true",
    )
    .at_least(1)
    .required()
    .also(&QUERY_NAMES),
    Parameter::flag(
        "case_sensitive",
        "Whether upper and lower case differ; true if left out",
    ),
    Parameter::flag(
        "regex",
        "Take the query as a regular expression; ^ and $ match at lines, so ^$ finds empty ones",
    ),
    Parameter::integer(
        "context",
        "Lines to show before and after each match; 0 if left out",
    )
    .at_least(0)
    .also(&["context_lines", "lines_of_context", "-C"])
    .suggested_for(&[
        "-A",
        "-B",
        "before",
        "after",
        "before_context",
        "after_context",
    ]),
    Parameter::integer(
        "start",
        "The number of the first match to show; 1 if left out",
    )
    .at_least(1)
    .suggested_for(&["offset", "skip", "page"]),
    Parameter::integer("max_matches", "The most matches to show; 50 if left out")
        .at_least(1)
        .also(&[
            "max_results",
            "limit",
            "max",
            "head_limit",
            "max_count",
            "n",
        ]),
    Parameter::flag(
        "distinct",
        "Show each different match once, the most frequent first, with how often it occurs and \
         without its place. Of a regular expression with groups only the groups are shown, with a \
         tab between two of them",
    ),
    Parameter::flag(
        "pretty",
        "Whether JSON is reformatted: its pages, lines and characters are then those of the \
         reformatted text. If left out, JSON on one line is, where the program wants that",
    ),
    Parameter::text("pattern", "").hidden(),
    Parameter::flag("ignore_case", "")
        .also(&["case_insensitive", "-i"])
        .hidden(),
    // Each match is shown with its line, whether a call asks for it or not.
    Parameter::flag("line_numbers", "")
        .also(&["show_line_numbers", "-n"])
        .hidden(),
];

/// Other names of `query`.
const QUERY_NAMES: [&str; 7] = [
    "text",
    "search",
    "keyword",
    "term",
    "search_term",
    "search_text",
    "q",
];

/// Executes a call. `max_read_chars` of the settings limits what is shown. O(n) in the content, or
/// in the sum of all contents and messages for `*`; a content that several descriptors share counts
/// for each. A regular expression that would exceed this cost is refused.
#[must_use]
pub fn search_fd(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let fd = args.fd()?;
    let search = Search::parse(&args, call.quota)?;
    if args.flag("distinct") == Some(true) {
        return distinct::run(call, &args, &search);
    }
    let mut excerpts = Excerpts::new(search.context_lines, call.settings.max_read_chars);
    if fd == ALL {
        let found = all::find(&search, call, form::requested(&args), &mut excerpts);
        let found = found.map_err(|error| error.into_fd_error(&args))?;
        search.check_start(&args, found.total())?;
        return Ok(Outcome::Answer(found.answer(&search)));
    }
    let (id, entry) = call.table.resolve_argument(fd)?;
    let view = form::view(&args, entry, form::requested(&args), call)?;
    let matches = search.find(
        &mut search.matcher.scan(call.quota),
        &view,
        0,
        &mut excerpts,
    );
    let matches = matches.map_err(|error| error.into_fd_error(&args))?;
    search.check_start(&args, matches)?;
    let shown = search.describe_shown(matches, excerpts.shown());
    let excerpts = excerpts.take_excerpts();
    let found = Found {
        query: search.query,
        query_kind: search.query_kind,
        shown,
        excerpts: excerpts.iter().map(MatchExcerpt::to_excerpt).collect(),
    };
    Ok(Outcome::Answer(view::search(
        &id,
        view.extent()
            .map_err(|error| args.unreadable_error(error))?,
        &found,
    )))
}

/// Why a search stopped early.
#[derive(Debug)]
enum SearchError {
    TooSlow(TooSlow),
    /// There are too many different matches to count.
    TooManyDistinct,
    Unreadable(Unreadable),
}

impl SearchError {
    fn into_fd_error(self, args: &Args) -> FdError {
        match self {
            Self::TooSlow(error) => args.invalid_error(error.to_string()),
            Self::TooManyDistinct => args.invalid_error(distinct::TOO_MANY_DISTINCT),
            Self::Unreadable(error) => args.unreadable_error(error),
        }
    }
}

#[derive(Debug)]
struct Search<'a> {
    query: &'a str,
    query_kind: QueryKind,
    matcher: Matcher<'a>,
    context_lines: u64,
    start: u64,
    max_matches: u64,
}

impl<'a> Search<'a> {
    fn parse(args: &'a Args, quota: &ReadQuota) -> Result<Self, FdError> {
        let (query, query_kind) = parse_query(args)?;
        let is_insensitive =
            args.flag("case_sensitive") == Some(false) || args.flag("ignore_case") == Some(true);
        let case = if is_insensitive {
            Case::Insensitive
        } else {
            Case::Sensitive
        };
        let matcher = match query_kind {
            QueryKind::Pattern => Matcher::pattern(query, case, quota),
            QueryKind::Literal => Matcher::literal(query, case, quota),
        };
        Ok(Self {
            query,
            query_kind,
            matcher: matcher.map_err(|error| {
                args.invalid_error(format!("The query cannot be searched for: {error}"))
            })?,
            context_lines: args.integer_at_least("context", 0, 0)?,
            start: args.integer_at_least("start", 1, 1)?,
            max_matches: args.integer_at_least("max_matches", 1, MAX_MATCHES)?,
        })
    }

    /// Finds the matches in a content and shows the requested ones. Numbering continues after
    /// `before` matches. Returns the number of matches in the content.
    fn find(
        &self,
        scan: &mut Scan<'_>,
        view: &View<'_>,
        before: u64,
        excerpts: &mut Excerpts,
    ) -> Result<u64, SearchError> {
        let end = self.start.saturating_add(self.max_matches);
        let content = view.content.loaded().map_err(SearchError::Unreadable)?;
        let text = content.text().map_err(SearchError::Unreadable)?;
        let mut matches = 0;
        // The first error of `push`; the closure cannot return it.
        let mut push_result = Ok(());
        let scanned = scan.find_each(&text, |bytes| {
            matches += 1;
            if push_result.is_ok() && (self.start..end).contains(&(before + matches)) {
                push_result = excerpts.push(&content, view.page_chars(), bytes);
            }
        });
        scanned.map_err(SearchError::TooSlow)?;
        push_result
            .map(|()| matches)
            .map_err(SearchError::Unreadable)
    }

    /// Checks that the first requested match exists.
    fn check_start(&self, args: &Args, matches: u64) -> Result<(), FdError> {
        if self.start <= matches.max(1) {
            return Ok(());
        }
        let message = format!(
            "Invalid match number {}. Valid range: 1-{}",
            self.start,
            matches.max(1)
        );
        Err(args.error(FdErrorKind::InvalidRange, message))
    }

    /// Describes which matches are shown.
    fn describe_shown(&self, matches: u64, shown: u64) -> Shown {
        Shown {
            total: matches,
            start: self.start,
            count: shown,
        }
    }
}

/// The text to find, and how it is taken. Models know the parameter `pattern` from tools where its
/// value is a regular expression. So it is one here, unless the call says otherwise.
///
/// # Errors
/// `invalid_parameter`: there is none, or there are two.
fn parse_query(args: &Args) -> Result<(&str, QueryKind), FdError> {
    let is_regex = args.flag("regex");
    let kind = |is_pattern| match is_pattern {
        true => QueryKind::Pattern,
        false => QueryKind::Literal,
    };
    match args.text("pattern").filter(|pattern| !pattern.is_empty()) {
        Some(_) if args.contains("query") => Err(args.invalid_error(
            "Parameters 'query' and 'pattern' cannot be combined: give the text as query, or a \
             regular expression as query with regex=true.",
        )),
        Some(pattern) => Ok((pattern, kind(is_regex != Some(false)))),
        None => {
            let query = args.required_text("query", "the text to find")?;
            Ok((query, kind(is_regex == Some(true))))
        }
    }
}

#[cfg(test)]
mod tests;
