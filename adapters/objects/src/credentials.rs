//! The client of the services that give credentials to a machine inside of a cloud.

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};

/// Nothing has credentials: reported as such, and not as a server that does not answer.
#[derive(Debug)]
pub(crate) struct NoCredentials;

impl std::fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "there are no credentials: the environment and the files of the cloud's tools have \
             none, and this machine has no role in the cloud",
        )
    }
}

impl std::error::Error for NoCredentials {}

/// Asks the service of the machine. Outside of a cloud there is none, which need not be found out
/// more than once for each request.
#[derive(Debug)]
pub(crate) struct MachineCredentials(pub(crate) HttpClient);

#[async_trait]
impl HttpService for MachineCredentials {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.execute(request).await;
        answer.map_err(|error| match error.kind() {
            HttpErrorKind::Connect | HttpErrorKind::Timeout => {
                HttpError::new(HttpErrorKind::Unknown, NoCredentials)
            }
            _ => error,
        })
    }
}
