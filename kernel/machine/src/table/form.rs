//! Selects the form in which a descriptor is shown: its unchanged text, or its JSON reformatted.
//!
//! All tools use this module, so that they number pages, lines and characters in the same way.

use std::borrow::Cow;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::ContentSummary;
use dormouse_proto::record::Entry;

use super::extent;
use dormouse_content::{Content, PrettyError, ReadQuota, Reader, Unreadable};

/// A form of the text of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The unchanged text.
    Plain,
    /// Reformatted JSON.
    Pretty,
}

/// A descriptor in the form in which it is shown. (The view of a *process* in the glossary is
/// something else.)
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The entry of the descriptor table.
    pub entry: Cow<'a, Entry<Content>>,
    /// The shown content: that of the entry, or its reformatted JSON.
    pub content: Reader<'a>,
    /// Whether JSON is reformatted, as answers state it. `None` if the plain text is shown and is
    /// the default.
    pub pretty: Option<bool>,
}

impl<'a> View<'a> {
    /// Creates a view of the unchanged text.
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

    /// The extent of the shown content: its numbers of pages, lines and characters.
    ///
    /// # Errors
    /// Same as [`extent`].
    pub fn extent(&self) -> Result<ContentSummary, Unreadable> {
        Ok(ContentSummary {
            pretty: self.pretty,
            ..extent(&self.content, self.page_chars(), self.entry.cut_bytes)?
        })
    }

    /// The extent of a content that was extracted from this one.
    ///
    /// # Errors
    /// Same as [`extent`].
    pub fn describe(&self, extracted: Content) -> Result<ContentSummary, Unreadable> {
        Ok(ContentSummary {
            pretty: self.pretty,
            ..extent(&self.content.with_content(extracted), self.page_chars(), 0)?
        })
    }
}

/// Selects the form of a descriptor for a call: the requested form, if any. Otherwise single-line
/// JSON is reformatted if the settings enable that, and other content is plain. Costs
/// [`Reader::pretty`](dormouse_content::Reader::pretty) when JSON is reformatted for the first
/// time, otherwise nothing.
///
/// # Errors
/// [`PrettyError`] if reformatted JSON was requested and the content is not JSON, or if the content
/// cannot be read.
pub fn view_as<'a>(
    entry: Cow<'a, Entry<Content>>,
    requested: Option<Form>,
    settings: &DescriptorSettings,
    quota: &'a ReadQuota,
) -> Result<View<'a>, PrettyError> {
    let content = entry.content.reader(quota);
    // This looks at the beginning of the content only. Whether all of it is JSON shows when it is
    // reformatted.
    let is_pretty_by_default = settings.pretty_json && content.may_be_json_line()?;
    let (content, pretty) = match requested {
        Some(Form::Pretty) => (content.pretty()?, Some(true)),
        // The answer states the form, because it differs from the default.
        Some(Form::Plain) if is_pretty_by_default => (content, Some(false)),
        None if is_pretty_by_default => match content.pretty() {
            Ok(pretty) => (pretty, Some(true)),
            Err(error @ PrettyError::Unreadable(_)) => return Err(error),
            // The content only looks like JSON. The call did not request JSON, so this is no error.
            Err(_) => (content, None),
        },
        Some(Form::Plain) | None => (content, None),
    };
    Ok(View {
        entry,
        content,
        pretty,
    })
}

/// A descriptor in its default form: reformatted JSON where the settings say so, otherwise plain
/// text. Lines and pages are counted in that form. Costs the same as [`view_as`].
///
/// # Errors
/// [`Unreadable`] if the content cannot be read.
pub fn in_default_form<'a>(
    entry: Cow<'a, Entry<Content>>,
    settings: &DescriptorSettings,
    quota: &'a ReadQuota,
) -> Result<View<'a>, Unreadable> {
    view_as(entry, None, settings, quota).map_err(|error| match error {
        PrettyError::Unreadable(error) => error,
        other => unreachable!("only a request for reformatted JSON can fail: {other}"),
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

    /// Checks the number of lines and the value of `pretty` with the setting off and on. `None` if
    /// the request is refused.
    fn check(
        text: &str,
        requested: Option<Form>,
        off: Option<(u64, Option<bool>)>,
        on: Option<(u64, Option<bool>)>,
    ) {
        for (is_on, expected) in [(false, off), (true, on)] {
            let entry = Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0);
            let view = view_as(
                Cow::Borrowed(&entry),
                requested,
                &settings(is_on),
                ReadQuota::unlimited(),
            )
            .ok();
            let extent = view.map(|view| view.extent().unwrap());
            assert_eq!(
                extent.map(|e| (e.total_lines, e.pretty)),
                expected,
                "{text:?} {requested:?} {is_on}"
            );
        }
    }

    #[test]
    fn a_request_overrides_the_setting_which_applies_to_single_line_json() {
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
