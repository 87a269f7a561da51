//! `dormouse page`: a file as a model would see it.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::content::Content;
use serde_json::json;

use crate::status::Failure;
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
    let bytes = std::fs::read(&args.file);
    let bytes =
        bytes.map_err(|error| Failure::Usage(format!("{}: {error}", args.file.display())))?;
    let content = Content::new(bytes);
    let total = content.unbounded().total_pages(args.page_size)?;
    let mut out = BufWriter::new(terminal::stdout());
    for number in 1..=total {
        let page = content
            .unbounded()
            .page(args.page_size, number)?
            .expect("pages count from 1 to their total");
        if args.json {
            let line = json!({
                "page": number,
                "lines": format!("{}-{}", page.first_line, page.last_line),
                "continued": page.continued,
                "truncated": page.truncated,
                "text": &*page.text,
            });
            writeln!(out, "{}", terminal::json(&line))?;
        } else {
            let marks = [
                (page.continued, ", continued"),
                (page.truncated, ", truncated"),
            ];
            let marks: String = marks
                .iter()
                .filter(|(is, _)| *is)
                .map(|(_, mark)| *mark)
                .collect();
            writeln!(
                out,
                "── page {number} of {total}, lines {}-{}{marks}",
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
