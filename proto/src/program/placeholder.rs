//! Placeholders in a command's arguments: `{name}`.
//!
//! A brace that does not enclose a parameter's name is an ordinary character, so that JSON and most
//! patterns need no escaping in an argument. A name is a letter or `_`, followed by letters, digits
//! and `_`, all ASCII.

use super::Span;

const MAX_NAME_BYTES: usize = 64;

/// A placeholder in an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder<'a> {
    /// The name between the braces.
    pub name: &'a str,
    /// Its range in the argument, braces included.
    pub span: Span,
}

/// The placeholders of an argument, in order. Costs one pass.
///
/// ```
/// use dormouse_proto::program::placeholders;
///
/// let names: Vec<_> = placeholders("--range={from}..{to} {\"a\": 1}").map(|found| found.name).collect();
/// assert_eq!(names, ["from", "to"]);
/// ```
pub fn placeholders(argument: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let opening = argument.match_indices('{').map(|(at, _)| at);
    opening.filter_map(|at| {
        let inside = &argument[at + 1..];
        let end = inside
            .bytes()
            .take(MAX_NAME_BYTES + 1)
            .position(|byte| byte == b'}')?;
        let name = &inside[..end];
        is_parameter_name(name).then(|| Placeholder {
            name,
            span: at..at + name.len() + 2,
        })
    })
}

/// Whether this can be a parameter's name.
#[must_use]
pub fn is_parameter_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(is_start)
        && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_placeholders() {
        let cases: [(&str, &[(&str, Span)]); 9] = [
            ("{a}", &[("a", 0..3)]),
            ("-{a}{b_2}", &[("a", 1..4), ("b_2", 4..9)]),
            ("{{a}}", &[("a", 1..4)]),
            ("{print $1}", &[]),
            ("{}", &[]),
            ("{1}", &[]),
            ("{a", &[]),
            ("a}", &[]),
            ("é{ä}{z}", &[("z", 6..9)]),
        ];
        for (argument, expected) in cases {
            let found: Vec<_> = placeholders(argument)
                .map(|found| (found.name, found.span))
                .collect();
            assert_eq!(found, expected, "{argument}");
        }
    }
}
