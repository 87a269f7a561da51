//! Names that this format has its own rules for.

use dormouse_proto::model::ModelError;

use crate::wire::excerpt::{beginning, invalid};

/// The path of a model: its name stands in the address, so that nothing else may.
///
/// # Errors
/// Where the name is none of a model: `gemini-2.5-pro`, `models/gemini-2.5-pro`, `tunedModels/x`.
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
        "'{}' is no name of a Gemini model, such as gemini-2.5-pro",
        beginning(model)
    )))
}

/// A name for a call that came without: its response, and its number there.
pub(super) fn call_without_id(response: &str, index: usize) -> String {
    format!("{OURS}{response}_{index}")
}

/// The id of a call as it goes back: none, where it came without.
pub(super) fn sent_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.starts_with(OURS))
}

const OURS: &str = "unnamed_call_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_model_leads_nowhere_else() {
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
    fn an_id_that_is_ours_is_not_sent() {
        assert_eq!(
            (sent_id(&call_without_id("r", 3)), sent_id("abc")),
            (None, Some("abc"))
        );
    }
}
