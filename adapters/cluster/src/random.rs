//! Random ids and tokens, of the operating system's generator.

use dormouse::ports::StoreError;

/// An id that nobody else has, in 32 hexadecimal digits.
///
/// # Errors
/// [`StoreError::Io`] if the operating system has no random numbers.
pub(crate) fn id() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::getrandom(&mut bytes).map_err(|error| StoreError::Io {
        doing: "draw a random number".to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
