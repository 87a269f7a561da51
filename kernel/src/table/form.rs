//! Which text of a descriptor a call is served: its own, or its JSON reformatted.
//!
//! The one place that decides it. What opens a descriptor, what reads it and what searches it agree
//! by asking here.

use std::borrow::Cow;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::Extent;
use dormouse_proto::record::Entry;

use super::extent;
use dormouse_content::{Content, PrettyError, ReadQuota, Reader, Unreadable};

/// A form of a content's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Plain,
    /// JSON reformatted.
    Pretty,
}

/// A descriptor in the form that is served.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The descriptor as the table has it.
    pub entry: Cow<'a, Entry<Content>>,
    /// What is served: its content, or that reformatted.
    pub content: Reader<'a>,
    /// Whether it is. None where the content is as it is, and would be for every call that does not
    /// ask for another form.
    pub pretty: Option<bool>,
}

impl<'a> View<'a> {
    /// The descriptor as it is, whatever is shown by default.
    #[must_use]
    pub fn plain(entry: Cow<'a, Entry<Content>>, quota: &'a ReadQuota) -> Self {
        Self {
            content: entry.content.reader(quota),
            entry,
            pretty: None,
        }
    }

    /// Characters per page.
    #[must_use]
    pub fn page_chars(&self) -> u32 {
        self.entry.page_chars
    }

    /// What is served, as every answer about it describes it.
    ///
    /// # Errors
    /// As [`extent`].
    pub fn extent(&self) -> Result<Extent, Unreadable> {
        Ok(Extent {
            pretty: self.pretty,
            ..extent(&self.content, self.page_chars(), self.entry.cut_bytes)?
        })
    }

    /// A content that was made of what is served, as an answer about this descriptor describes it.
    ///
    /// # Errors
    /// As [`extent`].
    pub fn describe(&self, extracted: Content) -> Result<Extent, Unreadable> {
        Ok(Extent {
            pretty: self.pretty,
            ..extent(&self.content.of(extracted), self.page_chars(), 0)?
        })
    }
}

/// The form of a descriptor that a call is served: the one that it asked for; else JSON on a single
/// line is reformatted where the settings say so, and everything else is plain. Costs what
/// [`Reader::pretty`](dormouse_content::Reader::pretty) costs where JSON is reformatted for the first
/// time, otherwise nothing.
///
/// # Errors
/// Reformatted JSON was asked for, and the content has none; or it cannot be read.
pub fn view_of<'a>(
    entry: Cow<'a, Entry<Content>>,
    asked: Option<Form>,
    settings: &DescriptorSettings,
    quota: &'a ReadQuota,
) -> Result<View<'a>, PrettyError> {
    let content = entry.content.reader(quota);
    let by_default = settings.pretty_json && content.may_be_json_line()?;
    let (content, pretty) = match asked {
        Some(Form::Pretty) => (content.pretty()?, Some(true)),
        Some(Form::Plain) if by_default => (content, Some(false)),
        None if by_default => match content.pretty() {
            Ok(pretty) => (pretty, Some(true)),
            Err(error @ PrettyError::Unreadable(_)) => return Err(error),
            // It only looked like JSON.
            Err(_) => (content, None),
        },
        _ => (content, None),
    };
    Ok(View {
        entry,
        content,
        pretty,
    })
}

/// The form of a descriptor that a call is served which asks for none. Costs what [`view_of`]
/// costs.
///
/// # Errors
/// It cannot be read.
pub fn served<'a>(
    entry: Cow<'a, Entry<Content>>,
    settings: &DescriptorSettings,
    quota: &'a ReadQuota,
) -> Result<View<'a>, Unreadable> {
    view_of(entry, None, settings, quota).map_err(|error| match error {
        PrettyError::Unreadable(error) => error,
        other => unreachable!("nothing is refused that was not asked for: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pretty_json: bool) -> DescriptorSettings {
        DescriptorSettings {
            pretty_json,
            ..DescriptorSettings::default()
        }
    }

    /// The lines of what is served and what is said of it, with the setting off and on; none where
    /// that is refused.
    fn check(
        text: &str,
        asked: Option<Form>,
        off: Option<(u64, Option<bool>)>,
        on: Option<(u64, Option<bool>)>,
    ) {
        for (is_on, expected) in [(false, off), (true, on)] {
            let entry = Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0);
            let view = view_of(
                Cow::Borrowed(&entry),
                asked,
                &settings(is_on),
                ReadQuota::unlimited(),
            )
            .ok();
            let extent = view.map(|view| view.extent().unwrap());
            assert_eq!(
                extent.map(|e| (e.total_lines, e.pretty)),
                expected,
                "{text:?} {asked:?} {is_on}"
            );
        }
    }

    #[test]
    fn what_is_asked_for_wins_over_the_setting_and_the_setting_is_for_json_on_one_line() {
        let (plain, pretty) = (Some((1, None)), Some((4, Some(true))));
        check("[1,2]", None, plain, pretty);
        check("[1,2]\n", None, plain, pretty);
        check("[1,2]", Some(Form::Pretty), pretty, pretty);
        check("[1,2]", Some(Form::Plain), plain, Some((1, Some(false))));
        check("[1,\n2]", None, Some((2, None)), Some((2, None)));
        check(
            "[1,\n2]",
            Some(Form::Plain),
            Some((2, None)),
            Some((2, None)),
        );
        check("[1,\n2]", Some(Form::Pretty), pretty, pretty);
        check("[prose]", None, plain, plain);
        check("[prose]", Some(Form::Pretty), None, None);
        check("", None, plain, plain);
    }
}
