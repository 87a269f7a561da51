//! The addresses of Vertex AI: a host for each region, and the project in the path.

use dormouse_proto::model::ModelError;

use crate::wire::CloudLocation;
use crate::wire::cloud_name::{checked, path_segment};
use crate::wire::excerpt::invalid;

const PROJECT_HELP: &str = "`project_id` in [model], or GOOGLE_CLOUD_PROJECT";
const REGION_HELP: &str = "`region` in [model] (such as \"global\"), or CLOUD_ML_REGION";

/// A project and a region, which are checked when they are used.
#[derive(Clone, Debug, Default)]
pub(super) struct VertexLocation(CloudLocation);

impl VertexLocation {
    pub(super) fn new(location: &CloudLocation) -> Self {
        Self(location.clone())
    }

    /// The base URL of the region.
    pub(super) fn base_url(&self) -> Result<String, ModelError> {
        let host = match self.region()? {
            "global" => "aiplatform.googleapis.com".to_owned(),
            several @ ("us" | "eu") => format!("aiplatform.{several}.rep.googleapis.com"),
            region => format!("{region}-aiplatform.googleapis.com"),
        };
        Ok(format!("https://{host}/v1"))
    }

    /// The path of a request to a model of `publisher`.
    pub(super) fn path(
        &self,
        publisher: &str,
        model: &str,
        verb: &str,
    ) -> Result<String, ModelError> {
        let project = self.0.project.as_deref();
        let project = checked("project", project, &['.', ':', '_'], PROJECT_HELP)?;
        let region = self.region()?;
        // A name of dots would be another path.
        if model.is_empty() || model.starts_with('.') {
            return Err(invalid(
                "the name of the model is not one that Vertex AI can have",
            ));
        }
        let model = path_segment(model);
        Ok(format!(
            "/projects/{project}/locations/{region}/publishers/{publisher}/models/{model}:{verb}"
        ))
    }

    fn region(&self) -> Result<&str, ModelError> {
        checked("region", self.0.region.as_deref(), &[], REGION_HELP)
    }
}
