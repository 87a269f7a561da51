//! The provider `scripted`: gives each program the model that follows the script it names.

use std::sync::Arc;

use dormouse_actors::ports::{Model, Provider, ProviderRequest};
use dormouse_proto::model::ModelError;

use super::{Scripted, unavailable};

/// The provider of scripted models. A program gets a model for the script that it names, or
/// [`Scripted::without_script`] if it names none. The script is parsed for each call, and nothing
/// is kept between calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptedProvider;

impl Provider for ScriptedProvider {
    fn model(&self, request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        let Some(script) = request.program.script(request.model) else {
            return Ok(Arc::new(Scripted::without_script()));
        };
        let model = Scripted::parse(script.text, script.name);
        let model = model.map_err(|error| unavailable(error.to_string()))?;
        Ok(Arc::new(model))
    }
}
