//! How a program reaches its database.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::error::DatabaseError;
use crate::password::{self, Endpoint};

/// The settings of a [`Database`](crate::Database). Their `Debug` form contains no password.
///
/// | setting | default |
/// |---|---|
/// | [`schema`](Self::schema) | `dormouse` |
/// | [`max_connections`](Self::max_connections) | 8 |
/// | [`connect_timeout`](Self::connect_timeout) | 5 s |
/// | [`statement_timeout`](Self::statement_timeout) | 60 s |
/// | [`outage_limit`](Self::outage_limit) | 60 s |
///
/// # TLS
///
/// `sslmode` in the connection string says what the connection is protected against:
///
/// | `sslmode` | encrypted | server's certificate verified | protects against |
/// |---|---|---|---|
/// | `disable` | no | no | nothing |
/// | `prefer` | if the server offers it | no | nothing that an attacker cannot undo |
/// | `require` | yes | no | readers of the network, but not a server that pretends to be the database |
/// | `verify-full` | yes | yes, with its name | both |
///
/// Without `sslmode`, it is `verify-full` for a server on another machine, and `prefer` for one on
/// this machine. `verify-ca` is not supported. The trusted authorities are compiled in, or those of
/// the file that `SSL_CERT_FILE` names, and in addition those of `sslrootcert` in the connection
/// string or of [`ca_file`](Self::ca_file).
///
/// # Schema
///
/// `schema` in the connection string, or [`schema`](Self::schema), names the schema of the tables.
///
/// # Password
///
/// The first of these that is there: the password of the connection string, that of
/// [`password`](Self::password), the content of the file that `DORMOUSE_DATABASE_PASSWORD_FILE`
/// names, `PGPASSWORD`, and the entry of the server in the file that `PGPASSFILE` names or in
/// `~/.pgpass`, which nobody else may be able to read.
#[derive(Clone)]
pub struct DatabaseOptions {
    config: Config,
    tls: TlsMode,
    ca_file: Option<PathBuf>,
    schema: String,
    max_connections: usize,
    connect_timeout: Duration,
    statement_timeout: Duration,
    outage_limit: Duration,
}

/// What `sslmode` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

impl DatabaseOptions {
    /// The settings for the database at this address, which may contain a password:
    /// `postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full`. Several hosts, separated by
    /// commas, are tried until one of them accepts writes.
    ///
    /// # Errors
    /// [`DatabaseError::Url`], [`DatabaseError::Schema`].
    pub fn new(url: &str) -> Result<Self, DatabaseError> {
        let (url, own) = take_own_parameters(url)?;
        let mut config: Config = url.parse().map_err(|_| url_error("it cannot be parsed"))?;
        if config.get_hosts().is_empty() {
            return Err(url_error("it names no host"));
        }
        let is_remote = config.get_hosts().iter().any(|host| !is_local(host));
        let tls = own.tls.unwrap_or(if is_remote {
            TlsMode::VerifyFull
        } else {
            TlsMode::Prefer
        });
        config.ssl_mode(match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        });
        let options = Self {
            config,
            tls,
            ca_file: own.ca_file,
            schema: "dormouse".to_owned(),
            max_connections: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(60),
            outage_limit: Duration::from_secs(60),
        };
        match own.schema {
            Some(name) => options.schema(&name),
            None => Ok(options),
        }
    }

    /// As [`new`](Self::new), for an address from a command line or a file of settings: refuses one
    /// with a password.
    ///
    /// # Errors
    /// [`DatabaseError::PasswordInUrl`], and those of [`new`](Self::new).
    pub fn without_password(url: &str) -> Result<Self, DatabaseError> {
        let options = Self::new(url)?;
        match options.config.get_password() {
            Some(_) => Err(DatabaseError::PasswordInUrl),
            None => Ok(options),
        }
    }

    /// Sets the password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }

    /// Sets the schema of the tables. It is created if it does not exist.
    ///
    /// # Errors
    /// [`DatabaseError::Schema`] for a name that would have to be quoted.
    pub fn schema(mut self, name: &str) -> Result<Self, DatabaseError> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase();
        let is_valid = name.bytes().next().is_some_and(is_letter)
            && name.len() <= 63
            && name
                .bytes()
                .all(|byte| is_letter(byte) || byte.is_ascii_digit() || byte == b'_');
        if !is_valid {
            let name = name.to_owned();
            return Err(DatabaseError::Schema { name });
        }
        self.schema = name.to_owned();
        Ok(self)
    }

    /// Trusts the authorities in this file (PEM) in addition.
    #[must_use]
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self {
            ca_file: Some(path.into()),
            ..self
        }
    }

    /// Sets the number of connections that all shards of the program share, at least 1. An
    /// operation waits while all of them are in use.
    #[must_use]
    pub fn max_connections(self, max_connections: usize) -> Self {
        Self {
            max_connections: max_connections.max(1),
            ..self
        }
    }

    /// Sets how long one attempt to connect may take.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            ..self
        }
    }

    /// Sets how long the server may take for a statement, which fails after that. A server that has
    /// not even said so 5 s later is regarded as lost.
    #[must_use]
    pub fn statement_timeout(self, statement_timeout: Duration) -> Self {
        Self {
            statement_timeout,
            ..self
        }
    }

    /// Sets how long an operation tries again while the server cannot be reached, before it fails.
    #[must_use]
    pub fn outage_limit(self, outage_limit: Duration) -> Self {
        Self {
            outage_limit,
            ..self
        }
    }

    pub(crate) fn tls_mode(&self) -> TlsMode {
        self.tls
    }

    pub(crate) fn further_ca_file(&self) -> Option<&PathBuf> {
        self.ca_file.as_ref()
    }

    pub(crate) fn schema_name(&self) -> &str {
        &self.schema
    }

    pub(crate) fn connections(&self) -> usize {
        self.max_connections
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.connect_timeout,
            statement: self.statement_timeout,
            outage: self.outage_limit,
        }
    }

    /// The configuration of a connection, with its password.
    ///
    /// # Errors
    /// [`DatabaseError::File`] for a password file that cannot be used.
    pub(crate) fn connection_config(&self) -> Result<Config, DatabaseError> {
        let mut config = self.config.clone();
        if config.get_password().is_none()
            && let Some(password) = password::from_environment(&self.endpoint())?
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("dormouse");
        }
        // Every statement finds its rows by an index, whatever the statistics of the tables say, so
        // that its plan is made once for each connection.
        let settings = format!(
            "{} -c statement_timeout={} -c default_transaction_isolation=read\\ committed \
             -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
             -c enable_mergejoin=off -c jit=off",
            config.get_options().unwrap_or_default(),
            self.statement_timeout.as_millis(),
        );
        config.options(settings.trim());
        config.connect_timeout(self.connect_timeout);
        config.tcp_user_timeout(self.statement_timeout + ANSWER_GRACE);
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(config)
    }

    fn endpoint(&self) -> Endpoint {
        let user = self.config.get_user().unwrap_or_default().to_owned();
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            _ => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let database = self.config.get_dbname().unwrap_or(&user).to_owned();
        Endpoint {
            host,
            port,
            database,
            user,
        }
    }
}

/// How much later than the timeout of a statement its answer is given up.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) statement: Duration,
    pub(crate) outage: Duration,
}

impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseOptions")
            .field("endpoint", &self.endpoint())
            .field("tls", &self.tls)
            .field("schema", &self.schema)
            .field("max_connections", &self.max_connections)
            .field("timeouts", &self.timeouts())
            .finish_non_exhaustive()
    }
}

/// Parameters that the client does not know, or understands differently.
#[derive(Default)]
struct OwnParameters {
    tls: Option<TlsMode>,
    ca_file: Option<PathBuf>,
    schema: Option<String>,
}

fn take_own_parameters(url: &str) -> Result<(String, OwnParameters), DatabaseError> {
    if !["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Err(url_error("it does not begin with postgres://"));
    }
    let mut own = OwnParameters::default();
    let Some((address, parameters)) = url.split_once('?') else {
        return Ok((url.to_owned(), own));
    };
    let mut others = Vec::new();
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => own.tls = Some(parse_tls_mode(mode)?),
            Some(("sslrootcert", path)) => own.ca_file = Some(decode_path(path)?),
            Some(("schema", name)) => own.schema = Some(name.to_owned()),
            _ => others.push(parameter),
        }
    }
    let separator = if others.is_empty() { "" } else { "?" };
    Ok((format!("{address}{separator}{}", others.join("&")), own))
}

fn parse_tls_mode(mode: &str) -> Result<TlsMode, DatabaseError> {
    match mode {
        "disable" => Ok(TlsMode::Disable),
        "prefer" => Ok(TlsMode::Prefer),
        "require" => Ok(TlsMode::Require),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(url_error(
            "its sslmode is none of disable, prefer, require and verify-full",
        )),
    }
}

/// A path with `%XX` decoded.
fn decode_path(path: &str) -> Result<PathBuf, DatabaseError> {
    let mut decoded = Vec::new();
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()].map(|digit| digit.map(char::from));
        let [Some(high), Some(low)] =
            digits.map(|digit| digit.and_then(|digit| digit.to_digit(16)))
        else {
            return Err(url_error(
                "the path of its sslrootcert has a % without two hexadecimal digits",
            ));
        };
        decoded.push((high * 16 + low) as u8);
    }
    let decoded = String::from_utf8(decoded);
    decoded
        .map(PathBuf::from)
        .map_err(|_| url_error("the path of its sslrootcert is not UTF-8"))
}

/// Whether a server is on this machine.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn url_error(why: &str) -> DatabaseError {
    DatabaseError::Url {
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_verified_unless_the_address_says_otherwise() {
        for (url, expected) in [
            ("postgres://a@localhost/b", TlsMode::Prefer),
            ("postgres://a@127.0.0.1:5433/b", TlsMode::Prefer),
            ("postgres://a@db.example.com/b", TlsMode::VerifyFull),
            (
                "postgres://a@localhost,db.example.com/b",
                TlsMode::VerifyFull,
            ),
            (
                "postgresql://a@db.example.com/b?sslmode=require",
                TlsMode::Require,
            ),
            (
                "postgres://a@db.example.com/b?application_name=x&sslmode=disable",
                TlsMode::Disable,
            ),
            (
                "postgres://a@localhost/b?sslmode=verify-full&application_name=x",
                TlsMode::VerifyFull,
            ),
        ] {
            let options = DatabaseOptions::new(url).expect(url);
            assert_eq!(options.tls_mode(), expected, "{url}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_without_its_password() {
        for url in [
            "mysql://a:s3cret@localhost/b",
            "postgres://a:s3cret@localhost/b?sslmode=verify-ca",
            "postgres://a:s3cret@localhost/b?s3cret=s3cret",
            "postgres://a:s3cret@localhost:s3cret/b",
            "postgres://a:s3cret@localhost/b?sslrootcert=%zz",
            "postgres:///b",
        ] {
            let error = DatabaseOptions::new(url).expect_err(url);
            let said = format!("{error} {error:?}");
            assert!(!said.contains("s3cret"), "{said}");
            assert!(said.contains("postgres://USER@HOST"), "{said}");
        }
    }

    #[test]
    fn a_password_is_accepted_from_code_only_and_is_not_shown() {
        let url = "postgres://a:s3cret@localhost/b";
        let options = DatabaseOptions::new(url).expect("code may contain a password");
        assert!(!format!("{options:?}").contains("s3cret"), "{options:?}");
        let refused = DatabaseOptions::without_password(url).expect_err("others can read it");
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }

    #[test]
    fn a_path_is_decoded() {
        let path = decode_path("/a%20b/c.pem").expect("it is valid");
        assert_eq!(path, PathBuf::from("/a b/c.pem"));
    }

    #[test]
    fn a_schema_needs_no_quotes() {
        let options = DatabaseOptions::new("postgres://a@localhost/b").expect("it is valid");
        for name in ["", "1a", "A", "a b", "a\"b", &"a".repeat(64)] {
            assert!(options.clone().schema(name).is_err(), "{name}");
        }
        assert!(options.schema("team_1").is_ok());
        let named = DatabaseOptions::new("postgres://a@localhost/b?schema=team_1&sslmode=disable");
        assert_eq!(named.expect("it is valid").schema_name(), "team_1");
        let refused = DatabaseOptions::new("postgres://a@localhost/b?schema=Team");
        assert!(matches!(refused, Err(DatabaseError::Schema { .. })));
    }
}
