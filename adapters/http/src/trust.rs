//! The certificates of authorities that a client trusts.
//!
//! They are compiled in. A file that the environment variable `SSL_CERT_FILE` names replaces them,
//! as it does in OpenSSL; it is read once. [`CaCertificates`] are trusted in addition, by one
//! client.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The environment variable that names the file of the authorities that every client trusts.
pub const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// Certificates of authorities, from a file in PEM. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaCertificates(Arc<[CertificateDer<'static>]>);

/// Why certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file that the environment names cannot be read.
    #[error("the file {path:?}, which {CERTIFICATES_VARIABLE} names, cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the operating system.
        why: String,
    },
    /// A file holds no certificate.
    #[error(
        "{0} holds no certificate in PEM, which begins with `-----BEGIN CERTIFICATE-----`: name a \
         file with the certificate of the authority"
    )]
    Empty(String),
    /// A certificate cannot be decoded.
    #[error("the certificate {number} of {file} cannot be used: {why}")]
    Invalid {
        /// The file.
        file: String,
        /// Its number in the file, from 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl CaCertificates {
    /// Parses the certificates of a file in PEM. `file` names the file in errors.
    ///
    /// # Errors
    /// [`CertificateError`] if there is none, or if one cannot be used.
    pub fn parse(pem: &[u8], file: &str) -> Result<Self, CertificateError> {
        let mut certificates = Vec::new();
        for (certificate, number) in CertificateDer::pem_slice_iter(pem).zip(1..) {
            let invalid = |why: String| CertificateError::Invalid {
                file: file.to_owned(),
                number,
                why,
            };
            let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
            // A store of its own, so that the error says which certificate is wrong.
            RootCertStore::empty()
                .add(certificate.clone())
                .map_err(|error| invalid(error.to_string()))?;
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            return Err(CertificateError::Empty(file.to_owned()));
        }
        Ok(Self(certificates.into()))
    }
}

/// The authorities that a client trusts: those of every client, and `further`.
///
/// # Errors
/// [`CertificateError`] if the environment names a file that cannot be used.
pub(crate) fn roots(further: Option<&CaCertificates>) -> Result<RootCertStore, CertificateError> {
    let mut roots = match certificates_of_environment()? {
        None => RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        },
        Some(certificates) => store_of(&certificates),
    };
    if let Some(further) = further {
        roots.roots.extend(store_of(further).roots);
    }
    Ok(roots)
}

fn store_of(certificates: &CaCertificates) -> RootCertStore {
    let mut store = RootCertStore::empty();
    let (_, unusable) = store.add_parsable_certificates(certificates.0.iter().cloned());
    debug_assert_eq!(unusable, 0, "each certificate was checked");
    store
}

/// The certificates of the file that the environment names; `None` if it names none.
fn certificates_of_environment() -> Result<Option<CaCertificates>, CertificateError> {
    static CERTIFICATES: OnceLock<Result<Option<CaCertificates>, CertificateError>> =
        OnceLock::new();
    let read = || {
        let path = std::env::var_os(CERTIFICATES_VARIABLE).filter(|path| !path.is_empty());
        path.map(|path| read_certificates(Path::new(&path)))
            .transpose()
    };
    CERTIFICATES.get_or_init(read).clone()
}

fn read_certificates(path: &Path) -> Result<CaCertificates, CertificateError> {
    let pem = std::fs::read(path).map_err(|error| CertificateError::Unreadable {
        path: path.display().to_string(),
        why: error.to_string(),
    })?;
    let file = format!("the file {path:?}, which {CERTIFICATES_VARIABLE} names,");
    CaCertificates::parse(&pem, &file)
}

/// What to do about a server whose certificate was refused; `None` if `error` has another cause.
#[must_use]
pub fn advice_on_certificate(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.filter_map(tls_error).find_map(|error| match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => Some(
            "No authority that is trusted has issued the server's certificate. If it is your \
                 own authority, name the file of its certificate (PEM) in `ca_file`, or in the \
                 environment variable SSL_CERT_FILE",
        ),
        rustls::Error::InvalidCertificate(_) => Some(
            "The server's certificate is not valid for it: look at its names and its dates, \
                 and at the clock of this machine",
        ),
        _ => None,
    })
}

/// The error of TLS in `error` itself. `io::Error` does not show its contents as a source.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut error = error;
    while let Some(inner) = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        error = inner;
    }
    error.downcast_ref()
}
