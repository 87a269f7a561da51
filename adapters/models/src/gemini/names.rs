//! Converts names of models and ids of calls by the rules of the Gemini API.

use dormouse_proto::model::ModelError;

use crate::wire::excerpt::{beginning, invalid};

/// The path of a model. The name becomes part of the URL, so it is checked.
///
/// # Errors
/// The name is not a valid model name, such as `gemini-2.5-pro`, `models/gemini-2.5-pro` or
/// `tunedModels/x`.
pub(super) fn model_path(model: &str) -> Result<String, ModelError> {
    let path = if model.contains('/') {
        model.to_owned()
    } else {
        format!("models/{model}")
    };
    let is_word = |word: &str| {
        !word.starts_with('.')
            && !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if path.split('/').all(is_word) {
        return Ok(path);
    }
    Err(invalid(format!(
        "'{}' is not the name of a Gemini model, such as gemini-2.5-pro",
        beginning(model)
    )))
}

/// Generates an id for a call without one, from the id of the response and the index of the part.
pub(super) fn generated_call_id(response: &str, index: usize) -> String {
    format!("{GENERATED_PREFIX}{response}_{index}")
}

/// The id of a call in a request; none if the provider sent the call without an id.
pub(super) fn sent_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.starts_with(GENERATED_PREFIX))
}

const GENERATED_PREFIX: &str = "unnamed_call_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_name_cannot_change_the_path() {
        let cases = [
            ("gemini-2.5-pro", Some("models/gemini-2.5-pro")),
            ("models/gemini-2.5-pro", Some("models/gemini-2.5-pro")),
            ("tunedModels/x_1", Some("tunedModels/x_1")),
            ("../files", None),
            ("models/../files", None),
            ("m:deleteModel?x=", None),
            ("m#", None),
            ("a//b", None),
            ("", None),
        ];
        for (model, path) in cases {
            assert_eq!(model_path(model).ok().as_deref(), path, "{model}");
        }
    }

    #[test]
    fn a_generated_id_is_not_sent() {
        assert_eq!(
            (sent_id(&generated_call_id("r", 3)), sent_id("abc")),
            (None, Some("abc"))
        );
    }
}
