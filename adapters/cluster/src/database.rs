//! Calls the database from tasks: its methods block.

use dormouse::ports::StoreError;

/// Runs `operation` on a blocking thread.
///
/// # Errors
/// Those of the operation; [`StoreError::Failed`] if it panicked.
pub(crate) async fn on_database<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(operation).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Io {
            doing: "ask the database".to_owned(),
            source: std::io::Error::other(error.to_string()),
        }),
    }
}
