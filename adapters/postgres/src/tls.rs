//! TLS of connections: rustls on ring, with compiled-in trust anchors.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::DatabaseError;
use crate::options::{DatabaseOptions, TlsMode};

/// The environment variable that names the file of the authorities that are trusted.
const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// Makes the TLS part of connections.
///
/// # Errors
/// [`DatabaseError::File`] for certificates that cannot be used.
pub(crate) fn connector(options: &DatabaseOptions) -> Result<MakeRustlsConnect, DatabaseError> {
    // Passed as a value, since the default provider of the whole program is the choice of the
    // embedder.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions");
    let config = match options.tls_mode() {
        TlsMode::VerifyFull => builder
            .with_root_certificates(trusted_roots(options)?)
            .with_no_client_auth(),
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn trusted_roots(options: &DatabaseOptions) -> Result<RootCertStore, DatabaseError> {
    let mut roots = RootCertStore::empty();
    match std::env::var_os(CERTIFICATES_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => add_certificates(&mut roots, Path::new(&path), CERTIFICATES_VARIABLE)?,
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    if let Some(path) = options.further_ca_file() {
        add_certificates(&mut roots, path, "sslrootcert or ca_file")?;
    }
    Ok(roots)
}

fn add_certificates(
    roots: &mut RootCertStore,
    path: &Path,
    named_by: &'static str,
) -> Result<(), DatabaseError> {
    let file_error = |why: String| DatabaseError::File {
        path: path.display().to_string(),
        named_by,
        why,
    };
    let pem = std::fs::read(path).map_err(|error| file_error(error.to_string()))?;
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| file_error(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| file_error(error.to_string()))?;
    }
    if roots.len() == before {
        let why = "it holds no certificate in PEM, which begins with `-----BEGIN CERTIFICATE-----`";
        return Err(file_error(why.to_owned()));
    }
    Ok(())
}

/// Accepts every certificate, as `sslmode=require` and `prefer` ask for: the connection is
/// encrypted, and whoever answers is taken for the server.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
