//! Where contents are: the cloud, the bucket and the prefix of an address.

use std::path::PathBuf;

use dormouse_actors::ports::StoreError;
use object_store::path::Path;
use url::Url;

use crate::error::invalid_options;
use crate::options::without_credentials;

/// An address that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) place: Place,
    /// What the keys of all objects begin with; may be empty.
    pub(crate) prefix: Path,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    S3 { bucket: String },
    GoogleCloud { bucket: String },
    Azure { container: String },
    Folder(PathBuf),
}

const VALID: &str = "Valid are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX and \
                     file:///FOLDER";

impl Location {
    /// Reads an address.
    ///
    /// # Errors
    /// [`StoreError::Io`] that shows no credentials of the address, should it have any.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let invalid =
            |why: &str| invalid_options(format!("'{}' {why}. {VALID}", without_credentials(url)));
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("is not an address of an object store"))?;
        if scheme == "file" {
            return Self::parse_folder(url).ok_or_else(|| invalid("names no absolute folder"));
        }
        if rest.contains(['?', '#']) {
            return Err(invalid("must have no '?' and no '#'"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            return Err(invalid(
                "was given with a user. Credentials come from the environment or from files",
            ));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if bucket.is_empty() || !bucket.chars().all(is_name) || bucket.starts_with('.') {
            return Err(invalid("names no bucket"));
        }
        let bucket = bucket.to_owned();
        let place = match scheme {
            "s3" => Place::S3 { bucket },
            "gs" => Place::GoogleCloud { bucket },
            "az" => Place::Azure { container: bucket },
            _ => return Err(invalid("has an unknown scheme")),
        };
        let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|_| {
            invalid(
                "has a prefix that not every store takes. Use names of letters, digits and spaces \
                 with one '/' between them, and neither '.' nor '..'",
            )
        })?;
        Ok(Self { place, prefix })
    }

    fn parse_folder(url: &str) -> Option<Self> {
        let has_dots = url.split('/').any(|part| part == ".." || part == ".");
        let url = Url::parse(url).ok().filter(|_| !has_dots)?;
        let is_plain = url.query().is_none() && url.fragment().is_none();
        let folder = url.to_file_path().ok().filter(|_| is_plain)?;
        let prefix = Path::default();
        Some(Self {
            place: Place::Folder(folder),
            prefix,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_place_and_a_prefix() {
        for (url, place, prefix) in [
            ("s3://my-bucket", "S3 { bucket: \"my-bucket\" }", ""),
            ("s3://b1/a/b c/ü/", "S3 { bucket: \"b1\" }", "a/b c/ü"),
            ("gs://b1/a", "GoogleCloud { bucket: \"b1\" }", "a"),
            ("az://b1/a", "Azure { container: \"b1\" }", "a"),
            ("file:///tmp/a%20b", "Folder(\"/tmp/a b\")", ""),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!(format!("{:?}", location.place), place);
            assert_eq!(location.prefix.as_ref(), prefix);
        }
    }

    #[test]
    fn a_hostile_address_is_refused_and_its_credentials_are_not_shown() {
        for url in [
            "",
            "bucket",
            "ftp://bucket/a",
            "s3://",
            "s3:///a",
            "s3://..",
            "s3://bucket/..",
            "s3://bucket/a/../b",
            "s3://bucket/./b",
            "s3://bucket/a//b",
            "s3://bucket/a\nb",
            "s3://bucket/a?sig=secret",
            "s3://bucket/a#secret",
            "s3://key:secret@bucket/a",
            "s3://bucket:80/a",
            "file://relative/folder",
            "file:///a/../b",
            "file:///a?secret",
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains("Valid are s3://"), "{url}: {error}");
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }
}
