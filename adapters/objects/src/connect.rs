//! Clients of the object stores, with credentials from where the cloud's own tools have them.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use dormouse_actors::ports::StoreError;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::aws_profile;
use crate::credentials::MachineCredentials;
use crate::error::{invalid_options, request_failed};
use crate::location::{Location, Place};
use crate::options::{ObjectOptions, PlainHttp, without_credentials};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For a service on the machine's own network.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of the store at a location. No request is made.
///
/// # Errors
/// [`StoreError::Io`] if the endpoint or what the environment configures cannot be used.
pub(crate) fn connect(
    location: &Location,
    options: &ObjectOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    match &location.place {
        Place::S3 { bucket } => connect_s3(bucket, options),
        Place::GoogleCloud { bucket } => connect_google_cloud(bucket, options),
        Place::Azure { container } => connect_azure(container, options),
        Place::Folder(folder) => open_folder(folder),
    }
}

fn connect_s3(bucket: &str, options: &ObjectOptions) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let mut builder = aws_profile::apply(AmazonS3Builder::from_env())?
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry(options));
    if let Some(endpoint) = &options.endpoint {
        // The endpoint of S3 alone precedes the one for all services.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    let connector = Connector::new(endpoint.as_deref(), options)?;
    let store = builder
        .with_allow_http(connector.is_plain_http())
        .with_http_connector(connector)
        .build();
    Ok(Arc::new(store.map_err(cannot_connect)?))
}

fn connect_google_cloud(
    bucket: &str,
    options: &ObjectOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let connector = Connector::new(endpoint.as_deref(), options)?;
    let client = ClientOptions::new().with_allow_http(connector.is_plain_http());
    let store = builder
        .with_client_options(client)
        .with_http_connector(connector)
        .build();
    Ok(Arc::new(store.map_err(cannot_connect)?))
}

fn connect_azure(
    container: &str,
    options: &ObjectOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_retry(retry(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let connector = Connector::new(endpoint.as_deref(), options)?;
    let store = builder
        .with_allow_http(connector.is_plain_http())
        .with_http_connector(connector)
        .build();
    Ok(Arc::new(store.map_err(cannot_connect)?))
}

/// The store in a folder, which syncs the files that it writes and their folders.
fn open_folder(folder: &FsPath) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let store = LocalFileSystem::new_with_prefix(folder).map_err(cannot_connect)?;
    Ok(Arc::new(store.with_fsync(true)))
}

fn cannot_connect(error: object_store::Error) -> StoreError {
    request_failed("open the object store".to_owned(), &error)
}

fn retry(options: &ObjectOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        // The time decides: waits are random, and twenty of them can end long before it.
        max_retries: usize::MAX,
        retry_timeout: options.retry_for,
    }
}

/// Makes the HTTP clients for an object store, as all of Dormouse has them.
#[derive(Debug)]
struct Connector {
    /// The compatible server; `None` for the cloud itself.
    endpoint: Option<Url>,
    request_timeout: Duration,
}

impl Connector {
    fn new(endpoint: Option<&str>, options: &ObjectOptions) -> Result<Self, StoreError> {
        let endpoint = match endpoint {
            Some(endpoint) => Some(checked_endpoint(endpoint, options.plain_http)?),
            None => None,
        };
        let request_timeout = options.request_timeout;
        Ok(Self {
            endpoint,
            request_timeout,
        })
    }

    fn is_plain_http(&self) -> bool {
        self.endpoint
            .as_ref()
            .is_some_and(|url| url.scheme() == "http")
    }
}

/// Reads the address of a server.
fn checked_endpoint(endpoint: &str, plain_http: PlainHttp) -> Result<Url, StoreError> {
    let invalid = |why: &str| {
        let shown = without_credentials(endpoint);
        invalid_options(format!("the endpoint '{shown}' {why}"))
    };
    let example = "is not an address such as https://minio.example.com";
    let url = Url::parse(endpoint).map_err(|_| invalid(example))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none() {
        return Err(invalid(example));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(invalid(
            "was given with credentials or a query. Credentials come from the environment or from \
             files",
        ));
    }
    if dormouse_http::is_unencrypted(&url) && plain_http == PlainHttp::Loopback {
        return Err(invalid(
            "is reached without encryption. Use https, or permit it with \
             ObjectOptions::allow_http",
        ));
    }
    Ok(url)
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_plain = options
            .get_config_value(&ClientConfigKey::AllowHttp)
            .is_some_and(|allowed| allowed == "true");
        // Without encryption, and not for the store: a service on the machine's own network that
        // gives credentials.
        let is_for_credentials = is_plain && !self.is_plain_http();
        let cloud = || Url::parse("https://cloud.invalid").expect("it is an address");
        let url = self.endpoint.clone().unwrap_or_else(cloud);
        let failed = |source| object_store::Error::Generic {
            store: "HTTP",
            source,
        };
        let mut builder = dormouse_http::client(&url, None)
            .map_err(|error| failed(error.into()))?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(self.request_timeout)
            .https_only(!is_plain);
        if is_for_credentials {
            builder = builder.no_proxy().connect_timeout(MACHINE_TIMEOUT);
        }
        let client = HttpClient::new(builder.build().map_err(|error| failed(error.into()))?);
        Ok(if is_for_credentials {
            HttpClient::new(MachineCredentials(client))
        } else {
            client
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_on_another_machine_is_encrypted_unless_asked_for() {
        for (endpoint, is_valid) in [
            ("https://minio.example.com", true),
            ("http://127.0.0.1:8333", true),
            ("http://[::1]:8333", true),
            ("http://minio.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("https://u:secret@minio.example.com", false),
            ("https://minio.example.com?token=secret", false),
            ("ftp://minio.example.com", false),
            ("minio", false),
        ] {
            let checked = checked_endpoint(endpoint, PlainHttp::Loopback);
            assert_eq!(checked.is_ok(), is_valid, "{endpoint}");
            if let Err(error) = checked {
                assert!(!error.to_string().contains("secret"), "{error}");
            }
        }
        assert!(checked_endpoint("http://minio.example.com", PlainHttp::Anywhere).is_ok());
    }
}
