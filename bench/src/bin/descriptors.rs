//! Opens tool output of each size as a descriptor, reads its last page, and prints the cost of both
//! as JSON, for a script that compares the figures with those of another system.
//!
//! `descriptors CHARACTERS...`: each argument is a size in characters; the output has lines of 80.
//! A placer decides that the output becomes a descriptor; neither it nor the read has a read quota
//! (`unlimited`), and nothing is on disk.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use dormouse_kernel::syscall::{Call, Outcome, read_fd};
use dormouse_kernel::table::Table;
use dormouse_kernel::table::placement::{Placement, Placer};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::tool::ToolOutput;

const LINE: &str =
    "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n";
const CREATIONS: usize = 21;
const READS: usize = 1001;

fn main() -> io::Result<()> {
    let sizes: Result<Vec<usize>, _> = std::env::args().skip(1).map(|size| size.parse()).collect();
    let figures: Vec<String> = sizes
        .map_err(io::Error::other)?
        .into_iter()
        .map(measure)
        .collect();
    writeln!(io::stdout(), "[{}]", figures.join(", "))
}

fn measure(chars: usize) -> String {
    let output = ToolOutput::ok(LINE.repeat(chars / LINE.len()));
    let settings = DescriptorSettings::default();
    let mut table = Table::new();
    let placer = Placer::unlimited(Some(&settings), 0);
    let create = median(CREATIONS, || placer.output(output.clone(), "tool:bench"));
    let Placement::Descriptor(new) = placer.output(output, "tool:bench").placement else {
        panic!("{chars} characters are not enough for a descriptor");
    };
    let entry = new.entry;
    let (lines, pages) = (
        entry
            .content
            .unlimited_reader()
            .total_lines()
            .expect("it is in memory"),
        entry
            .content
            .unlimited_reader()
            .total_pages(entry.page_chars)
            .expect("it is in memory"),
    );
    table.insert(table.next_id(), entry);
    let args = format!(r#"{{"fd": "fd:1", "page": {pages}}}"#);
    assert!(
        matches!(read_fd(&Call::unlimited(&table, &args, &settings, 0)), Outcome::Answer(answer) if !answer.is_error)
    );
    let read = median(READS, || {
        read_fd(&Call::unlimited(black_box(&table), &args, &settings, 0))
    });
    let (create, read) = (create.as_nanos(), read.as_nanos());
    format!(
        r#"{{"chars": {chars}, "lines": {lines}, "pages": {pages}, "create_ns": {create}, "read_ns": {read}}}"#
    )
}

/// The median duration of `runs` calls. The results are dropped outside of the measurement.
fn median<T>(runs: usize, mut run: impl FnMut() -> T) -> Duration {
    let measure_run = |_| {
        let start = Instant::now();
        let result = run();
        let elapsed = start.elapsed();
        drop(black_box(result));
        elapsed
    };
    let mut durations: Vec<Duration> = (0..runs).map(measure_run).collect();
    durations.sort_unstable();
    durations[runs / 2]
}
