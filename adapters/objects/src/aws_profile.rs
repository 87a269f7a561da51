//! Keys and the region of a profile in the files of the AWS tools.
//!
//! Keys in the environment, a web identity and a container's credentials precede them, and the
//! credentials of the machine (its instance role) come after them. Profiles that sign in elsewhere
//! (`sso_session`, `credential_process`, `role_arn`) are not read: the tool that signs in can export
//! keys (`aws configure export-credentials`).

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_actors::ports::StoreError;
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};

use crate::error::invalid_options;

/// Adds what the profile of the environment (`AWS_PROFILE`, or `default`) has and the environment
/// has not.
///
/// # Errors
/// [`StoreError::Io`] if a profile that the environment names does not exist.
pub(crate) fn apply(builder: AmazonS3Builder) -> Result<AmazonS3Builder, StoreError> {
    let is_set = |key| builder.get_config_value(&key).is_some();
    let has_keys = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ]
    .into_iter()
    .any(is_set);
    let has_region = is_set(AmazonS3ConfigKey::Region);
    let profile = Profile::of_environment();
    let mut builder = builder;
    if !has_region && let Some(region) = profile.region() {
        builder = builder.with_region(region);
    }
    if has_keys {
        return Ok(builder);
    }
    match profile.read_keys() {
        Some(_) => Ok(builder.with_credentials(Arc::new(profile))),
        None if env::var_os("AWS_PROFILE").is_some() => Err(invalid_options(format!(
            "the profile '{}' of AWS_PROFILE has no aws_access_key_id and aws_secret_access_key in \
             {}. Name another profile, or export keys into the environment",
            profile.name,
            profile.credentials_file.display()
        ))),
        None => Ok(builder),
    }
}

/// A profile, read from its file for each request, because keys that expire are replaced there.
#[derive(Debug)]
struct Profile {
    name: String,
    credentials_file: PathBuf,
    config_file: PathBuf,
}

impl Profile {
    fn of_environment() -> Self {
        let home = env::home_dir().unwrap_or_default().join(".aws");
        let file = |variable: &str, name: &str| {
            env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from)
        };
        Self {
            name: env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned()),
            credentials_file: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config_file: file("AWS_CONFIG_FILE", "config"),
        }
    }

    fn region(&self) -> Option<String> {
        let config = fs::read_to_string(&self.config_file).ok()?;
        let section = match self.name.as_str() {
            "default" => "default".to_owned(),
            name => format!("profile {name}"),
        };
        value(&config, &section, "region").map(str::to_owned)
    }

    fn read_keys(&self) -> Option<AwsCredential> {
        let file = fs::read_to_string(&self.credentials_file).ok()?;
        let value = |key| value(&file, &self.name, key).map(str::to_owned);
        Some(AwsCredential {
            key_id: value("aws_access_key_id")?,
            secret_key: value("aws_secret_access_key")?,
            token: value("aws_session_token"),
        })
    }
}

#[async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let keys = self
            .read_keys()
            .ok_or_else(|| object_store::Error::Generic {
                store: "S3",
                source: "the file of AWS credentials has no keys for the profile any more".into(),
            })?;
        Ok(Arc::new(keys))
    }
}

/// The value of a key in a section of a file with lines such as `key = value`.
fn value<'a>(file: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut is_inside = false;
    for line in file.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            is_inside = name.split(']').next().map(str::trim) == Some(section);
        } else if is_inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_section() {
        let file = "# keys\n[other]\na = 1\n[default]\n a=2\nb = x = y \n[ last ]\na = 3\n";
        for (section, key, expected) in [
            ("default", "a", Some("2")),
            ("default", "b", Some("x = y")),
            ("other", "a", Some("1")),
            ("last", "a", Some("3")),
            ("other", "b", None),
            ("none", "a", None),
        ] {
            assert_eq!(value(file, section, key), expected, "{section} {key}");
        }
    }

    #[test]
    fn the_keys_of_a_profile_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let credentials_file = folder.path().join("credentials");
        let text = "[a]\naws_access_key_id = id\naws_secret_access_key = hidden\n";
        fs::write(&credentials_file, text).unwrap();
        let profile = |name: &str| Profile {
            name: name.to_owned(),
            credentials_file: credentials_file.clone(),
            config_file: folder.path().join("config"),
        };
        let keys = profile("a").read_keys().unwrap();
        assert_eq!(
            (keys.key_id.as_str(), keys.secret_key.as_str()),
            ("id", "hidden")
        );
        assert!(!format!("{:?} {keys:?}", profile("a")).contains("hidden"));
        assert!(profile("b").read_keys().is_none());
    }
}
