//! A line diff in unified format, as `diff -u` prints it, without the two header lines.

use std::fmt::Write;
use std::ops::Range;

use imara_diff::{Algorithm, Hunk, InternedInput, Token};

/// The differences of two texts in unified format, with `context` equal lines around each, and
/// without the two lines that name the files; empty if the texts are equal. Compares with Myers'
/// algorithm: for texts that differ much, the diff may be longer than the shortest one, to save
/// time.
#[must_use]
pub fn unified_diff(before: &str, after: &str, context: u32) -> String {
    Diff::compute(before, after).to_unified(context)
}

/// The differences of two texts.
pub(super) struct Diff<'a> {
    lines: InternedInput<&'a str>,
    hunks: Vec<Hunk>,
}

impl<'a> Diff<'a> {
    /// Compares two texts with Myers' algorithm. For texts that differ much, the diff may be longer
    /// than the shortest one, to save time.
    pub(super) fn compute(before: &'a str, after: &'a str) -> Self {
        // No memory is reserved from an estimate, since a text may begin with many short lines.
        let mut lines = InternedInput::default();
        lines.update_before(before.split_inclusive('\n'));
        lines.update_after(after.split_inclusive('\n'));
        let mut diff = imara_diff::Diff::compute(Algorithm::Myers, &lines);
        diff.postprocess_lines(&lines);
        let hunks = diff.hunks().collect();
        Self { lines, hunks }
    }

    /// Number of lines that are only in the second text.
    pub(super) fn added_lines(&self) -> u64 {
        self.hunks.iter().map(|hunk| hunk.after.len() as u64).sum()
    }

    /// Number of lines that are only in the first text.
    pub(super) fn removed_lines(&self) -> u64 {
        self.hunks.iter().map(|hunk| hunk.before.len() as u64).sum()
    }

    /// Formats the diff with `context` equal lines around each hunk.
    pub(super) fn to_unified(&self, context: u32) -> String {
        let mut text = String::new();
        // Hunks whose context overlaps form one group.
        for group in self
            .hunks
            .chunk_by(|one, next| next.before.start - one.before.end <= 2 * context)
        {
            self.write_group(&mut text, group, context);
        }
        text
    }

    fn write_group(&self, text: &mut String, group: &[Hunk], context: u32) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return;
        };
        let lines_before = first.before.start.min(context);
        let lines_after = (self.lines.before.len() as u32 - last.before.end).min(context);
        let before = first.before.start - lines_before..last.before.end + lines_after;
        let after = first.after.start - lines_before..last.after.end + lines_after;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "@@ -{} +{} @@",
            format_range(&before),
            format_range(&after)
        );
        let mut at = before.start;
        for hunk in group {
            self.write_lines(text, ' ', &self.lines.before, at..hunk.before.start);
            self.write_lines(text, '-', &self.lines.before, hunk.before.clone());
            self.write_lines(text, '+', &self.lines.after, hunk.after.clone());
            at = hunk.before.end;
        }
        self.write_lines(text, ' ', &self.lines.before, at..before.end);
    }

    fn write_lines(&self, text: &mut String, sign: char, tokens: &[Token], range: Range<u32>) {
        for token in &tokens[range.start as usize..range.end as usize] {
            let line = self.lines.interner[*token];
            text.push(sign);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}

/// Formats a line range for a hunk header: first line and count. An empty range states the line
/// before it.
fn format_range(lines: &Range<u32>) -> String {
    let first = if lines.is_empty() {
        lines.start
    } else {
        lines.start + 1
    };
    format!("{first},{}", lines.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nearby_hunks_form_one_group_whose_header_states_its_lines() {
        let before: String = (1..=12).map(|line| format!("{line}\n")).collect();
        let after = before.replace("5\n", "five\n").replace("11\n", "eleven\n");
        let groups =
            "@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n@@ -10,3 +10,3 @@\n 10\n-11\n+eleven\n 12\n";
        assert_eq!(unified_diff(&before, &after, 1), groups);
        assert!(
            unified_diff(&before, &after, 3)
                .starts_with("@@ -2,11 +2,11 @@\n 2\n 3\n 4\n-5\n+five\n 6\n")
        );
        assert_eq!(unified_diff("", "a\n", 3), "@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified_diff("a\nb\n", "a\n", 0), "@@ -2,1 +1,0 @@\n-b\n");
        let ends = "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n";
        assert_eq!(unified_diff("a", "a\n", 3), ends);
    }

    /// Applies a unified diff, as `patch` does.
    fn patched(before: &str, diff: &str) -> String {
        let mut left: Vec<&str> = before.split_inclusive('\n').collect();
        let (mut after, mut taken) = (String::new(), 0);
        let mut lines = diff.split_inclusive('\n').peekable();
        while let Some(line) = lines.next() {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (first, rest) = header.split_once(',').unwrap();
                let count: usize = rest.split(' ').next().unwrap().parse().unwrap();
                let first: usize = first.parse().unwrap();
                let until = if count == 0 { first } else { first - 1 };
                after.extend(left.drain(..until - taken));
                taken = until;
                continue;
            }
            let is_open = lines.next_if(|next| next.starts_with('\\')).is_some();
            let (sign, text) = line.split_at(1);
            let text = if is_open {
                text.trim_end_matches('\n')
            } else {
                text
            };
            if sign != "+" {
                assert_eq!(left.remove(0), text);
                taken += 1;
            }
            if sign != "-" {
                after.push_str(text);
            }
        }
        after.extend(left);
        after
    }

    proptest! {
        #[test]
        fn a_diff_turns_one_text_into_the_other(
            before in "([abc]{0,2}\n){0,12}[abc]{0,2}", after in "([abc]{0,2}\n){0,12}[abc]{0,2}", context in 0_u32..4
        ) {
            prop_assert_eq!(patched(&before, &unified_diff(&before, &after, context)), after);
        }
    }
}
