//! What stands behind the word `provider` of a program.

use std::sync::{Arc, OnceLock};

use dormouse_actors::ports::{Model, Provider};
use dormouse_kernel::program::Program;
use dormouse_proto::model::{ModelError, ModelErrorKind};

use crate::{Anthropic, Scripted};

/// Behind `scripted`: the script that a program names, or silence where it names none. A script is parsed at each call of
/// the model, and nothing is kept between calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptedProvider;

impl Provider for ScriptedProvider {
    fn model(&self, program: &Program) -> Result<Arc<dyn Model>, ModelError> {
        let Some(script) = program.script() else { return Ok(Arc::new(Scripted::silent())) };
        let model = Scripted::parse(script.text, script.name);
        let model = model.map_err(|error| ModelError::new(ModelErrorKind::Unavailable, error.to_string()))?;
        Ok(Arc::new(model))
    }
}

/// Behind `anthropic`: one client for all programs, made from the environment when it is first asked for, so that a kernel
/// which never asks needs no key.
#[derive(Debug, Default)]
pub struct AnthropicProvider {
    client: OnceLock<Anthropic>,
}

impl Provider for AnthropicProvider {
    fn model(&self, _program: &Program) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(Arc::new(client.clone()));
        }
        let client = Anthropic::from_env()?;
        Ok(Arc::new(self.client.get_or_init(|| client).clone()))
    }
}
