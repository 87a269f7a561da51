//! Errors of opening a database, and what errors of the client become in the store port.

use std::error::Error as StdError;

use dormouse_actors::ports::StoreError;

/// Why a database cannot be used. No message contains a password.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The connection string cannot be used.
    #[error(
        "the connection string cannot be used: {why}. It has the form \
         postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full; special characters of a part are \
         written as %XX"
    )]
    Url {
        /// What is wrong with it.
        why: String,
    },
    /// The connection string contains a password where others may read it.
    #[error(
        "the connection string contains a password, which others can read on a command line and in \
         a file of settings. Leave it out, and set PGPASSWORD, or name a file with the password in \
         DORMOUSE_DATABASE_PASSWORD_FILE"
    )]
    PasswordInUrl,
    /// The name of the schema cannot be used.
    #[error(
        "{name:?} is no name of a schema: it has 1-63 letters a-z, digits and underscores, and \
         begins with a letter"
    )]
    Schema {
        /// The given name.
        name: String,
    },
    /// A file cannot be used.
    #[error("the file {path:?}, which {named_by} names, cannot be used: {why}")]
    File {
        /// The path of the file.
        path: String,
        /// Where the path comes from, such as a variable.
        named_by: &'static str,
        /// What is wrong with the file.
        why: String,
    },
    /// The schema was made by a later version. Nothing was changed.
    #[error(
        "the schema {schema} of the database has the version {found}, and this program knows the \
         versions up to {known}. Run the later version of the program, or name another schema"
    )]
    NewerSchema {
        /// The name of the schema.
        schema: String,
        /// The version of the schema in the database.
        found: i32,
        /// The latest version that this program knows.
        known: i32,
    },
    /// The schema has no tables yet, or those of an earlier version. Nothing was changed.
    #[error(
        "the schema {schema} of the database has the version {found} of the tables, and {known} is \
         needed. A program that writes brings them up to date when it connects; or name another schema"
    )]
    OlderSchema {
        /// The name of the schema.
        schema: String,
        /// The version of the schema in the database; 0 if it has no tables.
        found: i32,
        /// The version that this program reads.
        known: i32,
    },
    /// The database cannot be reached, or refuses what is necessary.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why one attempt of a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("{0}")]
    Statement(#[from] tokio_postgres::Error),
    #[error("{0}")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error("the server has not answered in time")]
    NoAnswer,
}

impl AttemptError {
    /// Whether another attempt may succeed: the connection was lost or not made, or the server asks
    /// for it. Whether the statement was executed is unknown.
    pub(crate) fn is_transient(&self) -> bool {
        use deadpool_postgres::PoolError;
        match self {
            Self::NoAnswer | Self::Pool(PoolError::Timeout(_)) => true,
            Self::Statement(error) | Self::Pool(PoolError::Backend(error)) => {
                is_transient_error(error)
            }
            Self::Pool(_) => false,
        }
    }
}

fn is_transient_error(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else {
        return error.is_closed() || is_lost_connection(error);
    };
    // Connection exceptions, an operator's intervention (except a statement that took too long), a
    // transaction that lost against another one, a server without free connections, and a former
    // primary that has become a standby.
    match code.code() {
        "57014" => false,
        "25006" | "53300" => true,
        code => ["08", "57", "40"]
            .iter()
            .any(|class| code.starts_with(class)),
    }
}

/// Whether the operating system reports the error, or TLS does so because the connection ended.
fn is_lost_connection(error: &tokio_postgres::Error) -> bool {
    let io_error = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    // A refused certificate is an error of TLS, and no attempt changes it.
    io_error.is_some_and(|error| {
        !error
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>())
    })
}

/// Converts an error of the database. `doing` names the failed operation as a verb with its object.
pub(crate) fn store_error(doing: &str, error: &AttemptError) -> StoreError {
    StoreError::Io {
        doing: doing.to_owned(),
        source: std::io::Error::other(with_causes(error)),
    }
}

/// An error that no attempt of a statement reported.
pub(crate) fn other_error(doing: &str, why: impl Into<String>) -> StoreError {
    StoreError::Io {
        doing: doing.to_owned(),
        source: std::io::Error::other(why.into()),
    }
}

/// The message of an error with those of its causes: the client's own messages leave them out.
fn with_causes(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}
