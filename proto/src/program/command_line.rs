//! Splits a command line into words as a shell would, for lines that need no shell.
//!
//! Syntax that only a shell can execute (pipes, redirections, expansions, patterns) is refused,
//! never taken as plain text. So an accepted line means the same as in a shell.

use std::iter::Peekable;
use std::str::Chars;

/// Characters that are special to a shell anywhere outside of quotes.
const ACTIVE: &str = "|&;<>()$`*?[]\n";
/// Characters that are special to a shell at the beginning of a word.
const ACTIVE_AT_START: &str = "~#";

/// Why a line cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// A shell would act on this character.
    #[error("`{}` is for a shell", .0.escape_default())]
    NeedsShell(char),
    #[error("it ends with a backslash")]
    EndsWithBackslash,
    #[error("a quote is not closed")]
    OpenQuote,
}

/// The words of a line, with quotes and backslashes removed. A blank line has no words.
///
/// # Errors
/// The character that needs a shell, or the syntax error in the line.
pub(super) fn split(line: &str) -> Result<Vec<String>, LineError> {
    let mut words = Vec::new();
    let mut rest = line.trim().chars().peekable();
    while rest.peek().is_some() {
        let is_between = skip_continuation(&mut rest) || rest.next_if(|c| is_blank(*c)).is_some();
        if !is_between {
            words.push(read_word(&mut rest)?);
        }
    }
    match words.first() {
        Some(first) if is_assignment(first) => Err(LineError::NeedsShell('=')),
        _ => Ok(words),
    }
}

/// Skips a backslash and the line end after it, which a shell removes.
fn skip_continuation(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut ahead = rest.clone();
    let is_continuation = ahead.next() == Some('\\') && ahead.next() == Some('\n');
    if is_continuation {
        *rest = ahead;
    }
    is_continuation
}

fn read_word(rest: &mut Peekable<Chars<'_>>) -> Result<String, LineError> {
    let mut word = String::new();
    if let Some(c) = rest.peek().filter(|c| ACTIVE_AT_START.contains(**c)) {
        return Err(LineError::NeedsShell(*c));
    }
    loop {
        if skip_continuation(rest) {
            continue;
        }
        let Some(c) = rest.next_if(|c| !is_blank(*c)) else {
            return Ok(word);
        };
        match c {
            '\'' => read_single_quoted(rest, &mut word)?,
            '"' => read_double_quoted(rest, &mut word)?,
            '\\' => word.push(rest.next().ok_or(LineError::EndsWithBackslash)?),
            _ if ACTIVE.contains(c) => return Err(LineError::NeedsShell(c)),
            _ => word.push(c),
        }
    }
}

fn read_single_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), LineError> {
    loop {
        match rest.next().ok_or(LineError::OpenQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn read_double_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), LineError> {
    loop {
        match rest.next().ok_or(LineError::OpenQuote)? {
            '"' => return Ok(()),
            c @ ('$' | '`') => return Err(LineError::NeedsShell(c)),
            '\\' => match rest.next_if(|c| "\"\\$`\n".contains(*c)) {
                Some('\n') => {}
                Some(escaped) => word.push(escaped),
                None => word.push('\\'),
            },
            c => word.push(c),
        }
    }
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Whether a word has the form `NAME=value`, which sets a variable in front of a command.
fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| super::is_parameter_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_would() {
        let cases: [(&str, &[&str]); 12] = [
            ("git status", &["git", "status"]),
            ("  a\t b ", &["a", "b"]),
            ("", &[]),
            ("echo 'a $b' \"c d\" e\\ f", &["echo", "a $b", "c d", "e f"]),
            ("a''b \"\" '*'", &["ab", "", "*"]),
            (r#"a "\"\\\$\n""#, &["a", r#""\$\n"#]),
            ("a~b a#b --x=1", &["a~b", "a#b", "--x=1"]),
            ("awk {print} é", &["awk", "{print}", "é"]),
            (r"echo \| \$x", &["echo", "|", "$x"]),
            ("git log \\\n  --oneline", &["git", "log", "--oneline"]),
            ("ec\\\nho a\\\n b", &["echo", "a", "b"]),
            ("\"a\\\nb\" 'a\\\nb'", &["ab", "a\\\nb"]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn a_line_that_needs_a_shell_is_refused() {
        let needing = [
            "ls | wc",
            "a && b",
            "a > f",
            "echo $HOME",
            "echo \"$HOME\"",
            "ls *.rs",
            "ls a?",
            "`a`",
            "a\nb",
        ];
        for line in needing
            .into_iter()
            .chain(["ls ~/a", "# a", "A=1 b", "(a)", "ls [ab]"])
        {
            let error = split(line).unwrap_err();
            assert!(matches!(error, LineError::NeedsShell(_)), "{line}: {error}");
        }
        let unfinished = [
            ("a 'b", LineError::OpenQuote),
            ("a \"b", LineError::OpenQuote),
            ("a b\\", LineError::EndsWithBackslash),
        ];
        for (line, error) in unfinished {
            assert_eq!(split(line), Err(error), "{line}");
        }
    }
}
