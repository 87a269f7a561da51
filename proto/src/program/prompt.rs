//! `[prompt]`: what the model is told first.

use super::At;
use super::reader::Reader;

/// `[prompt]` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptSection {
    /// `system`, or its alias `system_prompt`.
    pub system: Option<String>,
    /// A file whose text follows `system`.
    pub system_prompt_file: Option<At<String>>,
    /// `user`, or its alias `user_prompt`: the first input where the caller gives none.
    pub user: Option<String>,
}

pub(super) fn read(root: &mut Reader<'_>) -> PromptSection {
    let Some(mut section) = root.section("prompt") else {
        return PromptSection::default();
    };
    let system = section.either("system", "system_prompt");
    let user = section.either("user", "user_prompt");
    let prompt = PromptSection {
        system: section.text(system).map(|text| text.value),
        system_prompt_file: section.text("system_prompt_file"),
        user: section.text(user).map(|text| text.value),
    };
    section.finish();
    prompt
}
