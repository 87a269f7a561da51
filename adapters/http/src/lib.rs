//! The configuration of every HTTP client in Dormouse, and what its servers share (`server`).
//!
//! TLS is rustls on ring, with compiled-in root certificates, those of the user and those of a
//! program ([`CaCertificates`]). Redirects are not followed: they would send the key in the headers
//! to a server that was not permitted. Servers on this machine are never reached through a proxy.

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "client")]
mod trust;

#[cfg(feature = "client")]
pub use self::client::{client, is_local, is_unencrypted};
#[cfg(feature = "client")]
pub use self::trust::{
    CERTIFICATES_VARIABLE, CaCertificates, CertificateError, advice_on_certificate,
};
