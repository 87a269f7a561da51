//! The running kernel: actors that feed the pure machine and perform what it decides.

pub mod ports;
