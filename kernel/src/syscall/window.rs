//! Paging of lists: selects the items that one answer shows, from a requested position on.

use dormouse_proto::descriptor::view::Shown;
use dormouse_proto::descriptor::{FdError, FdErrorKind};

use super::args::Args;

/// The requested range of a list and the limit of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    start: u64,
    max: u64,
    max_chars: u64,
}

impl Window {
    /// Parses the arguments `start` and `max`.
    ///
    /// # Errors
    /// `invalid_range`.
    pub(super) fn parse(args: &Args, default_max: u64, max_chars: u64) -> Result<Self, FdError> {
        let start = args.integer_at_least("start", 1, 1)?;
        let max = args.integer_at_least("max", 1, default_max)?;
        Ok(Self {
            start,
            max,
            max_chars,
        })
    }

    /// Selects the items. `estimate_chars` estimates the length of a shown item. The first item is
    /// shown even if it exceeds the limit.
    ///
    /// # Errors
    /// `invalid_range`, with the valid range.
    pub(super) fn select<T>(
        self,
        args: &Args,
        items: impl IntoIterator<Item = T>,
        estimate_chars: impl Fn(&T) -> u64,
    ) -> Result<(Shown, Vec<T>), FdError> {
        let mut total = 0;
        // `None` once no further item is shown; the remaining items are only counted.
        let mut chars_left = Some(self.max_chars);
        let mut shown = Vec::new();
        for item in items {
            total += 1;
            let Some(left) = chars_left.filter(|_| total >= self.start) else {
                continue;
            };
            let rest = left.checked_sub(estimate_chars(&item));
            if rest.is_some() || shown.is_empty() {
                shown.push(item);
            }
            chars_left = rest.filter(|_| (shown.len() as u64) < self.max);
        }
        if self.start > total.max(1) {
            let message = format!(
                "Invalid start {}. Valid range: 1-{}",
                self.start,
                total.max(1)
            );
            return Err(args.error(FdErrorKind::InvalidRange, message));
        }
        Ok((
            Shown {
                total,
                start: self.start,
                count: shown.len() as u64,
            },
            shown,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Parameter;
    use super::super::parameter::OfferedParameters;
    use super::*;

    const PARAMETERS: [Parameter; 2] = [
        Parameter::integer("start", "First"),
        Parameter::integer("max", "Most"),
    ];

    fn parsed(json: &str) -> Args {
        Args::parse_with("t", &PARAMETERS, OfferedParameters::ALL, json).unwrap()
    }

    fn shown(args: &str, max_chars: u64) -> Result<(String, Option<u64>, Vec<u64>), String> {
        let args = parsed(args);
        let window = Window::parse(&args, 4, max_chars).map_err(|error| error.message)?;
        let (shown, items) = window
            .select(&args, [10, 20, 30, 5, 5], |chars| *chars)
            .map_err(|error| error.message)?;
        Ok((shown.range(), shown.next(), items))
    }

    #[test]
    fn items_are_shown_while_there_is_room() {
        let cases = [
            ("{}", 999, ("1-4", Some(5), vec![10, 20, 30, 5])),
            (r#"{"max": 2}"#, 999, ("1-2", Some(3), vec![10, 20])),
            (r#"{"start": 4}"#, 999, ("4-5", None, vec![5, 5])),
            ("{}", 59, ("1-2", Some(3), vec![10, 20])),
            ("{}", 60, ("1-3", Some(4), vec![10, 20, 30])),
            (r#"{"start": 3}"#, 0, ("3-3", Some(4), vec![30])),
            (r#"{"start": 5, "max": 1}"#, 0, ("5-5", None, vec![5])),
        ];
        for (args, max_chars, (range, next, items)) in cases {
            assert_eq!(
                shown(args, max_chars),
                Ok((range.to_owned(), next, items)),
                "{args} in {max_chars}"
            );
        }
        for (args, message) in [
            (r#"{"start": 6}"#, "Valid range: 1-5"),
            (r#"{"start": 0}"#, "it must be 1 or more"),
            (r#"{"max": 0}"#, "it must be 1 or more"),
        ] {
            assert!(shown(args, 99).unwrap_err().contains(message), "{args}");
        }
    }

    #[test]
    fn an_empty_list_is_shown_from_its_beginning() {
        let args = parsed("{}");
        let window = Window::parse(&args, 4, 10).unwrap();
        let (shown, items) = window
            .select(&args, Vec::<u64>::new(), |chars| *chars)
            .unwrap();
        assert_eq!(
            (shown.range().as_str(), shown.next(), items),
            ("0", None, vec![])
        );
    }
}
