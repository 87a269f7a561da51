//! Computes how much context descriptors would have saved in recorded agent runs. Prints for each
//! run the number of characters that its tools returned, and how many of them would have entered a
//! context with a small and with a large threshold, previews included.
//!
//! `recorded_runs FOLDER...`: the folders contain trajectories as SWE-agent writes them (`*.traj`).
//! A tool output counts once, when it was returned. Pages that a model would have read of a
//! descriptor afterwards are not counted.

use std::fmt;
use std::io::{self, Write as _};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use dormouse_kernel::table::Table;
use dormouse_kernel::table::placement::{Placement, Placer};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::tool::ToolOutput;
use serde_json::Value;

/// The thresholds; pages have half as many characters.
const THRESHOLDS: [u32; 2] = [2_000, 8_000];

fn main() -> io::Result<()> {
    let folders: Vec<_> = std::env::args().skip(1).collect();
    let mut files = Vec::new();
    folders
        .iter()
        .try_for_each(|folder| find_trajectories(Path::new(folder), &mut files))?;
    files.sort();
    if files.is_empty() {
        return Err(io::Error::other(format!(
            "there is no *.traj in {folders:?}: name folders of recorded runs"
        )));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", format_header())?;
    let mut sum = Run::default();
    for file in &files {
        let run = measure(&read_outputs(file)?);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(out, "{:<46.46} {run}", name)?;
        sum += run;
    }
    writeln!(out, "{:<46} {sum}", format!("{} runs", files.len()))
}

fn find_trajectories(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_trajectories(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "traj")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The tool outputs of a run: the observations of its steps, or its tool messages if only the
/// conversation was recorded.
fn read_outputs(file: &Path) -> io::Result<Vec<String>> {
    let run: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let steps = run["trajectory"]
        .as_array()
        .map(|steps| non_empty_texts(steps, "observation"));
    let from_history = || {
        let history = run["history"].as_array().into_iter().flatten();
        non_empty_texts(
            history.filter(|message| message["role"] == "tool"),
            "content",
        )
    };
    Ok(steps.unwrap_or_else(from_history))
}

fn non_empty_texts<'a>(items: impl IntoIterator<Item = &'a Value>, key: &str) -> Vec<String> {
    let found = items.into_iter().filter_map(|item| item[key].as_str());
    found
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .collect()
}

/// One run, or the sum of several.
#[derive(Clone, Copy, Default)]
struct Run {
    outputs: u64,
    chars: u64,
    by_threshold: [Cost; THRESHOLDS.len()],
}

/// The effect of one threshold.
#[derive(Clone, Copy, Default)]
struct Cost {
    descriptors: u64,
    /// Characters of the previews that replace large outputs.
    previews: u64,
    /// Characters that enter the context: small outputs and previews.
    context: u64,
}

fn measure(outputs: &[String]) -> Run {
    let chars = outputs
        .iter()
        .map(|output| output.chars().count() as u64)
        .sum();
    let by_threshold = THRESHOLDS.map(|threshold| {
        let settings = DescriptorSettings {
            max_direct_output_chars: threshold.into(),
            page_chars: threshold / 2,
            ..DescriptorSettings::default()
        };
        outputs.iter().fold(Cost::default(), |cost, output| {
            cost.add_output(output, &settings)
        })
    });
    Run {
        outputs: outputs.len() as u64,
        chars,
        by_threshold,
    }
}

impl Cost {
    fn add_output(mut self, output: &str, settings: &DescriptorSettings) -> Self {
        let output = ToolOutput::ok(output.to_owned());
        let placement = Placer::unlimited(Some(settings), 0)
            .output(output, "tool:recorded")
            .placement;
        let answer = placement.answer(&Table::new().next_id());
        match placement {
            Placement::Context { .. } => self.context += answer.text.chars().count() as u64,
            Placement::Descriptor(_) => {
                let preview = answer.text.chars().count() as u64;
                self.descriptors += 1;
                self.previews += preview;
                self.context += preview;
            }
        }
        self
    }
}

impl AddAssign for Run {
    fn add_assign(&mut self, other: Self) {
        self.outputs += other.outputs;
        self.chars += other.chars;
        for (cost, more) in self.by_threshold.iter_mut().zip(other.by_threshold) {
            cost.descriptors += more.descriptors;
            cost.previews += more.previews;
            cost.context += more.context;
        }
    }
}

fn format_header() -> String {
    let columns = THRESHOLDS.map(|threshold| {
        format!(
            " | {:>5} {:>9} {:>9} {:>5}",
            "fds", "previews", threshold, "of it"
        )
    });
    format!(
        "{:<46} {:>7} {:>9}{}",
        "characters of tool output",
        "outputs",
        "all",
        columns.concat()
    )
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} {:>9}", self.outputs, self.chars)?;
        self.by_threshold.iter().try_for_each(
            |Cost {
                 descriptors,
                 previews,
                 context,
             }| {
                let share = if self.chars == 0 {
                    100.0
                } else {
                    100.0 * *context as f64 / self.chars as f64
                };
                write!(
                    f,
                    " | {descriptors:>5} {previews:>9} {context:>9} {share:>4.0}%"
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_outputs_stay_and_large_ones_are_previewed() {
        let run = measure(&["a\n".repeat(500), "b\n".repeat(2_000), "c\n".repeat(5_000)]);
        assert_eq!((run.outputs, run.chars), (3, 15_000));
        let [small, large] = run.by_threshold;
        assert_eq!((small.descriptors, large.descriptors), (2, 1));
        assert_eq!(
            (small.context, large.context),
            (1_000 + small.previews, 5_000 + large.previews)
        );
        assert!(
            small.previews > 2_000 && small.previews < 2_800,
            "two pages of 1,000 and the XML around them"
        );
    }

    #[test]
    fn outputs_are_found_in_steps_or_in_the_conversation() {
        let folder = std::env::temp_dir().join(format!("recorded-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written to");
        let cases = [
            (
                r#"{"trajectory": [{"observation": "one"}, {"observation": ""}], "history": [{"role": "tool", "content": "x"}]}"#,
                "one",
            ),
            (
                r#"{"history": [{"role": "user", "content": "x"}, {"role": "tool", "content": "two"}]}"#,
                "two",
            ),
        ];
        for (text, expected) in cases {
            let file = folder.join("run.traj");
            std::fs::write(&file, text).expect("it can be written");
            assert_eq!(read_outputs(&file).expect("it is read"), [expected]);
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
