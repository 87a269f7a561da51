//! Paths of values within arguments: the names and indices of RFC 9535, such as
//! `$.rooms[0]['a b']`, without its queries.

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field of an object.
    Name(String),
    /// An element of a list, from 0.
    Index(usize),
}

/// The most steps of a path: JSON that is nested deeper is not parsed again.
const MAX_STEPS: usize = 64;

/// Parses a path of at least one step.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(super) fn parse(path: &str) -> Result<Vec<Step>, &'static str> {
    const WRONG: &str = "has a path that is no name or index";
    let mut rest = path.strip_prefix('$').ok_or(WRONG)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            let is_name = !name.is_empty() && !name.contains(['*', ']', '\'', '"']);
            let step = is_name.then(|| Step::Name(name.to_owned()));
            (step.ok_or(WRONG)?, after)
        } else {
            let inner = rest.strip_prefix('[').ok_or(WRONG)?;
            let (step, after) = bracketed(inner).ok_or(WRONG)?;
            (step, after.strip_prefix(']').ok_or(WRONG)?)
        };
        if steps.len() == MAX_STEPS {
            return Err("has a path of too many steps");
        }
        steps.push(step);
        rest = after;
    }
    match steps.first() {
        Some(Step::Name(_)) => Ok(steps),
        _ => Err("names no argument"),
    }
}

/// A quoted name or an index, and what follows it.
fn bracketed(text: &str) -> Option<(Step, &str)> {
    let quote = text.chars().next()?;
    if !matches!(quote, '\'' | '"') {
        let end = text.find(']')?;
        let (digits, after) = text.split_at(end);
        let is_index = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let index = is_index.then(|| digits.parse().ok()).flatten()?;
        return Some((Step::Index(index), after));
    }
    let mut is_escaped = false;
    let end = text[1..].find(|c| {
        let is_end = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })? + 1;
    let name = &text[1..end];
    // The escapes are those of JSON, and one for the single quote.
    let json = match quote {
        '\'' => name.replace("\\'", "'").replace('"', "\\\""),
        _ => name.to_owned(),
    };
    let name = serde_json::from_str(&format!("\"{json}\"")).ok()?;
    Some((Step::Name(name), &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Step {
        Step::Name(name.to_owned())
    }

    #[test]
    fn names_and_indices_are_parsed() {
        let cases = [
            ("$.a", vec![name("a")]),
            (
                "$.foo.bar[0].data",
                vec![name("foo"), name("bar"), Step::Index(0), name("data")],
            ),
            ("$['a b'][12]", vec![name("a b"), Step::Index(12)]),
            (
                r#"$["a.b"]['it\'s "x"']"#,
                vec![name("a.b"), name("it's \"x\"")],
            ),
            (r"$['\u00e9\\'].größe", vec![name("é\\"), name("größe")]),
            ("$['']", vec![name("")]),
        ];
        for (path, steps) in cases {
            assert_eq!(parse(path), Ok(steps), "{path}");
        }
    }

    #[test]
    fn other_paths_are_refused() {
        let deep = format!("${}", ".a".repeat(MAX_STEPS + 1));
        for path in [
            "",
            "a",
            "$",
            "$[0]",
            "$.",
            "$..a",
            "$.*",
            "$.a[",
            "$.a[]",
            "$.a[-1]",
            "$.a[1",
            "$.a[*]",
            "$.a[0:2]",
            "$.a['b]",
            "$.a['b'",
            "$.a['\\q']",
            "$.a]",
            "$ .a",
            "$.a[99999999999999999999]",
            "$.a[?@.b]",
            "$.a[é]",
            &deep,
        ] {
            assert!(parse(path).is_err(), "{path}");
        }
    }
}
