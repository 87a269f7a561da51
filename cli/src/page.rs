//! `dormouse page`: shows a file in pages, as a model would see it.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::content::Content;
use serde_json::json;

use crate::failure::{Failure, file_failure};
use crate::terminal;

/// `dormouse page`
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// The file.
    pub(crate) file: PathBuf,
    /// Characters per page.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page_size: u32,
    /// Print one JSON object a page: page, lines, continued, truncated, text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints all pages of a file.
pub(crate) fn page(args: &Page) -> Result<ExitCode, Failure> {
    let bytes = std::fs::read(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    let content = Content::new(bytes);
    let total = content.unlimited_reader().total_pages(args.page_size)?;
    let mut out = BufWriter::new(terminal::stdout());
    for number in 1..=total {
        let page = content
            .unlimited_reader()
            .page(args.page_size, number)?
            .expect("every number from 1 to the total is a page");
        if args.json {
            let line = json!({
                "page": number,
                "lines": format!("{}-{}", page.first_line, page.last_line),
                "continued": page.continued,
                "truncated": page.truncated,
                "text": &*page.text,
            });
            writeln!(out, "{}", terminal::escaped_json(&line))?;
        } else {
            let continued = if page.continued { ", continued" } else { "" };
            let truncated = if page.truncated { ", truncated" } else { "" };
            writeln!(
                out,
                "── page {number} of {total}, lines {}-{}{continued}{truncated}",
                page.first_line, page.last_line
            )?;
            writeln!(
                out,
                "{}",
                page.text.strip_suffix('\n').unwrap_or(&page.text)
            )?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
