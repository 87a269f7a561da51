//! Draws the processes of a store as an SVG picture: the process tree, the number of characters
//! that the tools of each process returned, and how many of them entered a context.
//!
//! ```sh
//! dormouse run examples/audit/auditor.toml --store target/audit --allow-read=examples/audit --allow-write=target/report
//! cargo run -p dormouse-examples --example picture -- target/audit docs/pictures/audit.svg
//! ```

use std::fmt::Write;

use dormouse::id::Pid;
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelError};

const ROW: usize = 44;
const INDENT: usize = 36;
/// The width of the widest bar.
const MAX_BAR_WIDTH: u64 = 240;

/// A process in the picture.
struct Row {
    depth: usize,
    /// The index of the parent's row.
    parent: Option<usize>,
    name: String,
    descriptors: usize,
    produced: u64,
    entered: u64,
}

/// The processes of a store, parents before their children.
async fn read_rows(kernel: &Kernel) -> Result<Vec<Row>, KernelError> {
    let processes = kernel.processes().await?;
    let mut rows: Vec<Row> = Vec::new();
    let mut stack: Vec<(usize, Option<usize>, Pid)> = processes
        .iter()
        .rev()
        .filter(|info| info.row.parent.is_none())
        .map(|info| (0, None, info.row.pid))
        .collect();
    while let Some((depth, parent, pid)) = stack.pop() {
        let view = kernel.inspect(pid).await?;
        let at = rows.len();
        for info in processes.iter().rev() {
            if info.row.parent == Some(pid) {
                stack.push((depth + 1, Some(at), info.row.pid));
            }
        }
        let info = processes.iter().find(|info| info.row.pid == pid);
        let status = info.map_or("", |info| info.status.word());
        rows.push(Row {
            depth,
            parent,
            name: format!("{pid} {} · {}", view.program.name(), status).replace('<', "&lt;"),
            descriptors: view.descriptors,
            produced: view.output_totals.produced_chars,
            entered: view.output_totals.entered_chars,
        });
    }
    Ok(rows)
}

/// Formats a number with a comma at each thousand.
fn format_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Draws the rows as SVG.
fn draw_picture(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let height = ROW * (rows.len() + 3);
    let middle = |row: usize| ROW * (row + 1) + ROW / 2;
    let max_produced = rows.iter().map(|row| row.produced).max().unwrap_or(0);
    let width = |chars: u64| match chars {
        0 => 0,
        chars => (MAX_BAR_WIDTH * chars / max_produced.max(1)).max(1),
    };
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="14">
<rect width="760" height="{height}" fill="#ffffff"/>
<g fill="#666666" font-size="12"><text x="290" y="30">tools returned</text><text x="400" y="30">in a context</text></g>
"##
    );
    for (at, row) in rows.iter().enumerate() {
        let (x, y) = (16 + INDENT * row.depth, middle(at));
        if let Some(parent) = row.parent {
            let (from, top) = (x + 18 - INDENT, middle(parent) + 15);
            writeln!(
                svg,
                r##"<path d="M{from} {top} V{y} H{x}" fill="none" stroke="#999999"/>"##
            )?;
        }
        let (name, descriptors) = (&row.name, row.descriptors);
        let (text, top, bar, line) = (x + 10, y - 15, y - 7, y + 5);
        let [produced, entered] = [row.produced, row.entered].map(format_number);
        let [produced_width, entered_width] = [row.produced, row.entered].map(width);
        writeln!(
            svg,
            r##"<rect x="{x}" y="{top}" width="200" height="30" rx="5" fill="#eef2f7" stroke="#5b7a9d"/>
<text x="{text}" y="{line}">{name} · {descriptors} fd</text>
<text x="290" y="{line}">{produced}</text><text x="400" y="{line}">{entered}</text>
<rect x="500" y="{bar}" width="{produced_width}" height="14" fill="#c3cfdd"/><rect x="500" y="{bar}" width="{entered_width}" height="14" fill="#b3541e"/>"##
        )?;
    }
    let produced = format_number(rows.iter().map(|row| row.produced).sum());
    let entered = format_number(rows.iter().map(|row| row.entered).sum());
    let last = height - ROW / 2;
    writeln!(
        svg,
        r##"<text x="16" y="{last}" font-weight="bold">The tools returned {produced} characters; {entered} of them entered a context.</text>
</svg>"##
    )?;
    Ok(svg)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: picture STORE FILE.svg".into());
    };
    let kernel = Kernel::open(LogStore::read_only(store)?).build().await?;
    std::fs::write(file, draw_picture(&read_rows(&kernel).await?)?)?;
    kernel.shutdown().await?;
    Ok(())
}
