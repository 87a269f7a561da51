//! `dormouse page`: a file as a model would see it.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use dormouse::content::Content;
use serde_json::json;

use crate::args::Page;
use crate::status::Failure;
use crate::terminal;

/// Prints all pages of a file.
pub(crate) fn page(args: &Page) -> Result<ExitCode, Failure> {
    let bytes = std::fs::read(&args.file);
    let bytes = bytes.map_err(|error| Failure::Usage(format!("{}: {error}", args.file.display())))?;
    let content = Content::new(bytes);
    let total = content.total_pages(args.page_size)?;
    let mut out = BufWriter::new(terminal::stdout());
    for number in 1..=total {
        let page = content.page(args.page_size, number)?.expect("pages count from 1 to their total");
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
            let marks = [(page.continued, ", continued"), (page.truncated, ", truncated")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            writeln!(out, "── page {number} of {total}, lines {}-{}{marks}", page.first_line, page.last_line)?;
            writeln!(out, "{}", page.text.strip_suffix('\n').unwrap_or(&page.text))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
