//! Finds the descriptor that an argument of a call means.
//!
//! Models also write a descriptor in another spelling (`fd_1`), by the id of a reference without
//! `ref:`, and by the path that it came from. Each of them is accepted if it means one descriptor,
//! after ids and assigned names. A number alone can be a page or a process as well, so it is
//! answered with the id that it may mean.

use std::borrow::Cow;

use dormouse_proto::descriptor::FdError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;

use super::Table;
use dormouse_content::Content;

/// The longest list of descriptors that came from one path.
const MAX_LISTED: usize = 5;

impl Table {
    /// Resolves an argument that names a descriptor. O(log n) for an id, O(n) otherwise.
    ///
    /// # Errors
    /// `not_found`, with what may have been meant.
    pub fn resolve_argument(
        &self,
        requested: &str,
    ) -> Result<(FdId, Cow<'_, Entry<Content>>), FdError> {
        let error = match self.resolve(requested) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let respelled = respell(requested);
        let reference = FdId::Ref(requested.trim().to_owned());
        for id in respelled.into_iter().chain([reference]) {
            if let Some(entry) = self.find(&id) {
                return Ok((id, entry));
            }
        }
        match self.opened_from(requested)[..] {
            [(id, entry)] => Ok((id.clone(), Cow::Borrowed(entry))),
            ref several => Err(FdError {
                message: format!(
                    "{}{}",
                    error.message,
                    self.describe_guess(requested, several)
                ),
                ..error
            }),
        }
    }

    /// The descriptors that came from a path, which is their source or what follows its kind.
    fn opened_from(&self, path: &str) -> Vec<(&FdId, &Entry<Content>)> {
        let is_source = |source: &str| {
            let after = |separator| source.split_once(separator).map(|(_, path)| path);
            path.len() > 1
                && (source == path || after(':') == Some(path) || after('/') == Some(path))
        };
        self.iter()
            .filter(|(_, entry)| is_source(&entry.source))
            .collect()
    }

    /// The sentence of an error that says what may have been meant; empty if nothing is near.
    fn describe_guess(&self, requested: &str, several: &[(&FdId, &Entry<Content>)]) -> String {
        if !several.is_empty() {
            let ids: Vec<_> = several
                .iter()
                .take(MAX_LISTED)
                .map(|(id, _)| id.to_string())
                .collect();
            return format!(
                " Several came from there: {}. Name one of them.",
                ids.join(", ")
            );
        }
        let first = requested.trim().split(' ').next().unwrap_or_default();
        match (format!("fd:{first}").parse(), first.parse()) {
            (Ok(id), _) if self.find(&id).is_some() => format!(" Did you mean {id}?"),
            (_, Ok(id)) if self.find(&id).is_some() => format!(
                " Give {id} alone, and a part of it by parameters of its own, such as \
                 'start_line' and 'end_line'."
            ),
            _ => String::new(),
        }
    }
}

/// The id in another spelling, such as `fd_1`, `fd1`, `FD:1`, `fd: 1` or `[fd:1]`.
fn respell(requested: &str) -> Option<FdId> {
    let is_around = |char: char| char.is_whitespace() || "[](){}<>\"'`".contains(char);
    let bare = requested.trim_matches(is_around).to_ascii_lowercase();
    ["fd", "msg"].into_iter().find_map(|kind| {
        let number = bare.strip_prefix(kind)?;
        let number = number.trim_start_matches([':', '-', '_', '#', ' ']);
        format!("{kind}:{number}").parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use dormouse_proto::descriptor::FdErrorKind;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new();
        for (text, source) in [
            ("one", "file:src/a.py"),
            ("two", "tool:grep"),
            ("three", "tool:grep"),
        ] {
            let content = Content::new(text.to_owned());
            table.insert(table.next_id(), Entry::new(content, 10, source, 0));
        }
        let plan = Entry::new(Content::new("plan".to_owned()), 10, "reply", 0);
        table.insert(FdId::Ref("plan".into()), plan);
        table
    }

    #[test]
    fn a_spelling_a_reference_and_a_path_mean_one_descriptor() {
        let cases = [
            ("fd_1", "fd:1"),
            ("fd1", "fd:1"),
            ("FD:2", "fd:2"),
            (" fd: 2 ", "fd:2"),
            ("[fd:3]", "fd:3"),
            ("\"fd:3\"", "fd:3"),
            ("fd#1", "fd:1"),
            ("plan", "ref:plan"),
            ("src/a.py", "fd:1"),
            ("file:src/a.py", "fd:1"),
        ];
        for (requested, id) in cases {
            let found = table()
                .resolve_argument(requested)
                .map(|(id, _)| id.to_string());
            assert_eq!(found, Ok(id.to_owned()), "{requested}");
        }
    }

    #[test]
    fn what_may_mean_several_things_is_answered_with_them() {
        let cases = [
            ("1", "Did you mean fd:1?"),
            ("9", "This process has"),
            ("tool:grep", "Several came from there: fd:2, fd:3."),
            ("grep", "Several came from there: fd:2, fd:3."),
            ("fd:1 lines 1-2", "Give fd:1 alone"),
            ("fd_01", "not found"),
            ("fd", "not found"),
            ("", "not found"),
        ];
        for (requested, message) in cases {
            let error = table().resolve_argument(requested).unwrap_err();
            assert_eq!(
                (error.kind, error.fd.as_deref()),
                (FdErrorKind::NotFound, Some(requested))
            );
            assert!(error.message.contains(message), "{}", error.message);
        }
    }

    #[test]
    fn an_assigned_name_comes_before_other_spellings() {
        use dormouse_proto::record::Annotation;
        let mut table = table();
        let note = Annotation::Named {
            name: Some("fd_1".into()),
        };
        table.annotate(&FdId::Fd(2), &note);
        let (id, _) = table.resolve_argument("fd_1").unwrap();
        assert_eq!(id, FdId::Fd(2));
    }
}
