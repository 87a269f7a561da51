//! Descriptors: their list, and pages, lines and matches of their contents.
//!
//! Contents are read on threads where blocking is allowed, and a read stops when its client is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use axum::Json;
use axum::extract::State;
use dormouse_content::{Content, ReadQuota};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::at::{AtQuery, DescriptorPath, ProcessPath};
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::view::{DescriptorLine, LinesView, MatchView, PageView, SearchView};

const DEFAULT_PAGE_CHARS: u32 = 4000;
const MAX_PAGE_CHARS: u32 = 100_000;
const DEFAULT_LINES: u64 = 200;
const MAX_LINES: u64 = 5000;
/// The most bytes of lines in one answer: a line may be as long as its content.
const MAX_LINE_BYTES: usize = 1 << 20;
const DEFAULT_MATCHES: usize = 50;
const MAX_MATCHES: usize = 1000;
const MAX_PATTERN_CHARS: usize = 1000;
/// What is read of a content at once in a search.
const LINES_AT_ONCE: u64 = 2000;
/// The characters of a line that are shown on each side of a match.
const CONTEXT_CHARS: usize = 200;
/// The most memory that a compiled pattern may take, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/processes/{pid}/descriptors",
            get_with(list, |operation| {
                operation
                    .id("listDescriptors")
                    .summary("The descriptors of a process at any position")
            }),
        )
        .api_route(
            "/processes/{pid}/descriptors/{fd}/pages/{page}",
            get_with(page, |operation| {
                operation.id("getPage").summary("A page of a content")
            }),
        )
        .api_route(
            "/processes/{pid}/descriptors/{fd}/lines",
            get_with(lines, |operation| {
                operation.id("getLines").summary("Lines of a content")
            }),
        )
        .api_route(
            "/processes/{pid}/descriptors/{fd}/search",
            get_with(search, |operation| {
                operation
                    .id("search")
                    .summary("The lines of a content that match")
                    .description("Costs the lines that are searched, at about 1 GB a second.")
            }),
        )
}

/// The content of a descriptor at a position.
async fn content(
    api: &ControlApi,
    pid: u64,
    path: &DescriptorPath,
    at: &AtQuery,
) -> Result<Content, ApiError> {
    let id = path.id()?;
    let process = ProcessPath { pid };
    let view = api
        .kernel()
        .inspect_at(process.pid(), at.position()?)
        .await?;
    view.content(&id).ok_or_else(|| {
        ApiError::not_found(format!(
            "process {pid} has no descriptor {id} there: GET /v1/processes/{pid}/descriptors lists \
             those it has"
        ))
    })
}

/// Reads a content on a thread where blocking is allowed, until the client is gone.
async fn read<T: Send + 'static>(
    read: impl FnOnce(&ReadQuota) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(is_cancelled.clone());
    let quota = ReadQuota::until(is_cancelled);
    let reading = tokio::task::spawn_blocking(move || read(&quota));
    reading.await.map_err(dormouse_actors::KernelError::from)?
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn list(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Query(at): Query<AtQuery>,
) -> Result<Json<Vec<DescriptorLine>>, ApiError> {
    let view = api.kernel().inspect_at(path.pid(), at.position()?).await?;
    let listed = read(move |_| {
        let descriptors = view.list_descriptors();
        Ok(descriptors.iter().map(DescriptorLine::from).collect())
    });
    listed.await.map(Json)
}

/// The page in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PagePath {
    /// The process.
    pid: u64,
    /// The descriptor, such as `fd:3` or `ref:plan`.
    fd: String,
    /// The page, from 1.
    page: u64,
}

/// How a content is divided into pages.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    at: Option<String>,
    /// Characters of a page: 1 to 100000, by default 4000.
    page_size: Option<u32>,
}

async fn page(
    State(api): State<ControlApi>,
    Path(path): Path<PagePath>,
    Query(query): Query<PageQuery>,
) -> Result<Json<PageView>, ApiError> {
    let page_size = query.page_size.unwrap_or(DEFAULT_PAGE_CHARS);
    if !(1..=MAX_PAGE_CHARS).contains(&page_size) {
        return Err(ApiError::invalid(format!(
            "page_size is {page_size}: valid are 1 to {MAX_PAGE_CHARS}"
        )));
    }
    let PagePath { pid, fd, page } = path;
    let descriptor = DescriptorPath { pid, fd };
    let content = content(&api, pid, &descriptor, &AtQuery { at: query.at }).await?;
    let read = read(move |quota| {
        let reader = content.reader(quota);
        let pages = reader.total_pages(page_size)?;
        let slice = reader.page(page_size, page)?.ok_or_else(|| {
            ApiError::not_found(format!("there is no page {page}: valid are 1 to {pages}"))
        })?;
        Ok(PageView {
            fd: descriptor.fd,
            page,
            pages,
            page_size,
            lines: PageView::lines_of(&slice),
            continued: slice.continued,
            truncated: slice.truncated,
            binary: reader.is_binary()?,
            text: slice.text.to_string(),
        })
    });
    read.await.map(Json)
}

/// Which lines are shown.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LinesQuery {
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    at: Option<String>,
    /// The first line, from 1.
    from: Option<u64>,
    /// The most lines: 1 to 5000, by default 200.
    limit: Option<u64>,
}

async fn lines(
    State(api): State<ControlApi>,
    Path(path): Path<DescriptorPath>,
    Query(query): Query<LinesQuery>,
) -> Result<Json<LinesView>, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_LINES);
    if !(1..=MAX_LINES).contains(&limit) {
        return Err(ApiError::invalid(format!(
            "limit is {limit}: valid are 1 to {MAX_LINES}"
        )));
    }
    let from = query.from.unwrap_or(1);
    let content = content(&api, path.pid, &path, &AtQuery { at: query.at }).await?;
    let read = read(move |quota| {
        let reader = content.reader(quota);
        let total_lines = reader.total_lines()?;
        let range = reader.lines_at(from, limit)?.ok_or_else(|| {
            ApiError::not_found(format!(
                "there is no line {from}: valid are 1 to {total_lines}"
            ))
        })?;
        let end = range.end.min(range.start + MAX_LINE_BYTES);
        let slice = reader.slice(range.start..boundary(&reader, end)?)?;
        Ok(LinesView {
            fd: path.fd,
            lines: PageView::lines_of(&slice),
            total_lines,
            truncated: slice.truncated,
            binary: reader.is_binary()?,
            text: slice.text.to_string(),
        })
    });
    read.await.map(Json)
}

/// The boundary between characters at or before a byte.
fn boundary(reader: &dormouse_content::Reader<'_>, byte: usize) -> Result<usize, ApiError> {
    Ok(reader.byte_at(reader.char_at(byte)?)?)
}

/// What is searched.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    /// The text to find, or the regular expression.
    query: String,
    /// Whether the query is a regular expression.
    regex: Option<bool>,
    /// Whether upper and lower case are the same.
    ignore_case: Option<bool>,
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    at: Option<String>,
    /// The first line that is searched, from 1.
    from: Option<u64>,
    /// The most lines that are returned: 1 to 1000, by default 50.
    limit: Option<usize>,
}

impl SearchQuery {
    fn pattern(&self) -> Result<Regex, ApiError> {
        let chars = self.query.chars().count();
        if !(1..=MAX_PATTERN_CHARS).contains(&chars) {
            return Err(ApiError::invalid(format!(
                "the query has {chars} characters: valid are 1 to {MAX_PATTERN_CHARS}"
            )));
        }
        let pattern = match self.regex {
            Some(true) => self.query.clone(),
            _ => regex::escape(&self.query),
        };
        let mut builder = RegexBuilder::new(&pattern);
        let builder = builder
            .case_insensitive(self.ignore_case == Some(true))
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        builder
            .build()
            .map_err(|error| ApiError::invalid(format!("the query is not valid: {error}")))
    }
}

async fn search(
    State(api): State<ControlApi>,
    Path(path): Path<DescriptorPath>,
    Query(query): Query<SearchQuery>,
) -> Result<Json<SearchView>, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_MATCHES);
    if !(1..=MAX_MATCHES).contains(&limit) {
        return Err(ApiError::invalid(format!(
            "limit is {limit}: valid are 1 to {MAX_MATCHES}"
        )));
    }
    let pattern = query.pattern()?;
    let from = query.from.unwrap_or(1).max(1);
    let content = content(&api, path.pid, &path, &AtQuery { at: query.at }).await?;
    let _permit = api.large_read().await;
    let found = read(move |quota| {
        let reader = content.reader(quota);
        let mut matches = Vec::new();
        let mut next = from;
        while let Some(slice) = reader.lines(next, LINES_AT_ONCE)? {
            for (number, line) in (next..).zip(slice.text.lines()) {
                let Some(found) = pattern.find(line) else {
                    continue;
                };
                if matches.len() == limit {
                    return Ok((matches, Some(number)));
                }
                matches.push(MatchView {
                    line: number,
                    column: line[..found.start()].chars().count(),
                    text: excerpt(line, found.start(), found.end()).to_owned(),
                });
            }
            next += LINES_AT_ONCE;
        }
        Ok((matches, None))
    });
    let (matches, next_line) = found.await?;
    Ok(Json(SearchView {
        fd: path.fd,
        matches,
        next_line,
    }))
}

/// The part of a line around a match.
fn excerpt(line: &str, start: usize, end: usize) -> &str {
    let before = line[..start].char_indices().rev().nth(CONTEXT_CHARS - 1);
    let from = before.map_or(0, |(at, _)| at);
    let after = line[start..].char_indices();
    let chars = line[start..end].chars().count().min(CONTEXT_CHARS) + CONTEXT_CHARS;
    let to = after
        .map(|(at, _)| start + at)
        .nth(chars)
        .unwrap_or(line.len());
    &line[from..to]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_cut_at_characters_and_holds_its_match() {
        let line = format!("{}needle{}", "ä".repeat(500), "ö".repeat(500));
        let start = line.find("needle").unwrap();
        let shown = excerpt(&line, start, start + "needle".len());
        assert_eq!(shown.chars().count(), CONTEXT_CHARS + 6 + CONTEXT_CHARS);
        assert!(shown.contains("äneedleö"));
        assert_eq!(excerpt("needle", 0, 6), "needle");
    }

    #[test]
    fn a_query_is_literal_unless_it_is_an_expression_and_has_bounds() {
        let query = |query: &str, regex| SearchQuery {
            query: query.to_owned(),
            regex: Some(regex),
            ignore_case: None,
            at: None,
            from: None,
            limit: None,
        };
        assert!(!query("a.c", false).pattern().unwrap().is_match("abc"));
        assert!(query("a.c", true).pattern().unwrap().is_match("abc"));
        for (text, is_regex) in [("", false), ("(", true), ("(a{1000}){1000}", true)] {
            assert!(query(text, is_regex).pattern().is_err(), "{text}");
        }
        assert!(query(&"x".repeat(1001), false).pattern().is_err());
    }
}
