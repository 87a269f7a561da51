//! Files of environment variables, as editors name them for a server (`envFile`): a `NAME=value` in
//! each line.

/// The variables of a file, in its order. A line that is empty, begins with `#` or has no `=` is
/// skipped; `export` before a name, and quotation marks around a value, are left out. In double
/// quotation marks, `\n` is the end of a line.
#[must_use]
pub fn parse_env_file(text: &str) -> Vec<(String, String)> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
    let name = name.trim();
    let name = name.strip_prefix("export ").unwrap_or(name).trim();
    (!name.is_empty()).then(|| (name.to_owned(), parse_value(value.trim())))
}

fn parse_value(value: &str) -> String {
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    if let Some(value) = quoted('"') {
        return value.replace("\\n", "\n");
    }
    if let Some(value) = quoted('\'') {
        return value.to_owned();
    }
    let without_comment = value.split_once(" #").map_or(value, |(before, _)| before);
    without_comment.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_other_programs_read_them() {
        let text = "A=1\r\n# B=2\n\nexport C = three # a comment\nD='x # y'\nE=\"l1\\nl2\"\n\
                    F=\nno variable\n=7\nG=a=b\n";
        let read = parse_env_file(text);
        let expected = [
            ("A", "1"),
            ("C", "three"),
            ("D", "x # y"),
            ("E", "l1\nl2"),
            ("F", ""),
            ("G", "a=b"),
        ];
        assert_eq!(
            read,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
