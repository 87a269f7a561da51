//! What a tool of the provider returned: its text, and its files and images.

use serde_json::Value;

use crate::base64;

/// What a tool of the provider returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The text, in the order of the result. What is encrypted is left out.
    pub text: String,
    /// Files and images whose bytes the result holds.
    pub media: Vec<Media>,
    /// What is to be said of each file that the provider has and the reply does not hold.
    pub missing: Vec<String>,
    /// Whether the tool reports a failure.
    pub is_error: bool,
}

/// A file or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// Its bytes in base64, as the provider wrote them.
    pub base64: String,
}

impl Media {
    /// Its bytes; `None` if the provider wrote something else than base64. O(n).
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        base64::decode(&self.base64)
    }
}

/// The fields of a result that hold text for a reader, in the order in which they are shown.
const TEXT_FIELDS: [&str; 16] = [
    "title",
    "filename",
    "url",
    "text",
    "stdout",
    "stderr",
    "output",
    "logs",
    "error_code",
    "error_message",
    "message",
    "source",
    "content",
    "outputs",
    "results",
    "tool_references",
];

impl Output {
    /// Reads any part of a result. O(n).
    pub(super) fn of(value: &Value) -> Self {
        let mut output = Self::default();
        output.add(value);
        output
    }

    /// Both, one after the other.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.add_text(&other.text);
        self.media.extend(other.media);
        self.missing.extend(other.missing);
        self.is_error |= other.is_error;
        self
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                self.is_error |= value["type"]
                    .as_str()
                    .is_some_and(|kind| kind.ends_with("_error"));
                if let Some(media) = media(value) {
                    return self.media.push(media);
                }
                if let Some(text) = value["data"].as_str() {
                    return self.add_text(text);
                }
                let known = TEXT_FIELDS.iter().filter_map(|name| fields.get(*name));
                let before = (self.text.len(), self.media.len());
                known.for_each(|field| self.add(field));
                let is_unknown = (self.text.len(), self.media.len()) == before;
                // A result in other words is shown as it is, unless there is a type that says what
                // it is.
                if is_unknown && !fields.is_empty() && !fields.contains_key("type") {
                    self.add_text(&value.to_string());
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

/// The file that an object holds: `{type: "base64", media_type, data}`, Gemini's `inlineData`, or
/// an image of which the address is its bytes.
fn media(object: &Value) -> Option<Media> {
    if object["type"] == "base64" {
        return Some(Media {
            name: None,
            media_type: object["media_type"].as_str()?.to_owned(),
            base64: object["data"].as_str()?.to_owned(),
        });
    }
    if let Some(media) = inline_data(&object["inlineData"]) {
        return Some(media);
    }
    let address = object["url"].as_str().or(object["image_url"].as_str())?;
    let (media_type, base64) = address.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Media {
        name: None,
        media_type: media_type.to_owned(),
        base64: base64.to_owned(),
    })
}

/// Gemini's form of a file.
pub(super) fn inline_data(data: &Value) -> Option<Media> {
    Some(Media {
        name: None,
        media_type: data["mimeType"].as_str()?.to_owned(),
        base64: data["data"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_in_other_words_is_shown_after_an_image_as_well() {
        let image = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
        let output = Output::of(&json!([image, {"answer": 42}]));
        assert_eq!((output.media.len(), &*output.text), (1, r#"{"answer":42}"#));
    }
}
