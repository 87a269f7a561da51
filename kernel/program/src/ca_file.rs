//! Reads the certificates that a program names (`ca_file`).
//!
//! They become part of the bundle, as every file that a program names. The compiler only looks for
//! the header of a certificate in PEM; whether the certificates are valid is found out by the HTTP
//! client, at the first request.

use dormouse_proto::program::{RelativeTo, WithSpan};
use dormouse_proto::server::CaFile;

use super::compile::Compilation;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// The end of the first line of each kind of private key in PEM.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// The file with the certificates at `path`. Reports a file that cannot be read, that holds no
/// certificate or that holds a private key.
pub(super) fn read(path: &WithSpan<String>, compilation: &mut Compilation<'_>) -> Option<CaFile> {
    let (name, bytes) = compilation.read_named_file(path, RelativeTo::Program)?;
    let pem = String::from_utf8_lossy(&bytes);
    let (wrong, help) = if pem.contains(PRIVATE_KEY) {
        (
            "holds a private key",
            "a program is stored and sent together with its files: name a file that holds only the \
             certificates of the certificate authority",
        )
    } else if !pem.contains(CERTIFICATE) {
        (
            "holds no certificate",
            "a certificate in PEM begins with `-----BEGIN CERTIFICATE-----`; to convert a DER file: \
             `openssl x509 -inform der -in FILE`",
        )
    } else {
        let path = path.value.clone();
        let pem = pem.into();
        return Some(CaFile { path, pem });
    };
    let error = path.error(format!("{name} {wrong}"), "named here");
    compilation.diagnostics.push(error.help(help));
    None
}
