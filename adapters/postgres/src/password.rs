//! Where the password comes from if the program does not give it.

use std::path::{Path, PathBuf};

use crate::error::DatabaseError;

/// The environment variable that names a file with nothing but the password.
pub const PASSWORD_FILE_VARIABLE: &str = "DORMOUSE_DATABASE_PASSWORD_FILE";

/// What an entry of a password file is found by.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) user: String,
}

/// The password of the environment; `None` if there is none, since a server may need none.
///
/// # Errors
/// [`DatabaseError::File`].
pub(crate) fn from_environment(endpoint: &Endpoint) -> Result<Option<String>, DatabaseError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable(PASSWORD_FILE_VARIABLE) {
        let text = read(Path::new(&path), PASSWORD_FILE_VARIABLE)?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if let Ok(password) = std::env::var("PGPASSWORD")
        && !password.is_empty()
    {
        return Ok(Some(password));
    }
    if let Some(path) = variable("PGPASSFILE") {
        return read_entry(Path::new(&path), "PGPASSFILE", endpoint);
    }
    let Some(home) = variable("HOME") else {
        return Ok(None);
    };
    let path = PathBuf::from(home).join(".pgpass");
    if !path.exists() {
        return Ok(None);
    }
    read_entry(&path, "HOME", endpoint)
}

fn read_entry(
    path: &Path,
    named_by: &'static str,
    endpoint: &Endpoint,
) -> Result<Option<String>, DatabaseError> {
    check_private(path, named_by)?;
    let text = read(path, named_by)?;
    Ok(text.lines().find_map(|line| password_of(line, endpoint)))
}

fn read(path: &Path, named_by: &'static str) -> Result<String, DatabaseError> {
    std::fs::read_to_string(path).map_err(|error| file_error(path, named_by, error.to_string()))
}

/// Refuses a file that other users can read.
fn check_private(path: &Path, named_by: &'static str) -> Result<(), DatabaseError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|error| file_error(path, named_by, error.to_string()))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let why = "other users can read it. Run `chmod 600` on it".to_owned();
            return Err(file_error(path, named_by, why));
        }
    }
    Ok(())
}

fn file_error(path: &Path, named_by: &'static str, why: String) -> DatabaseError {
    DatabaseError::File {
        path: path.display().to_string(),
        named_by,
        why,
    }
}

/// The password of a line `host:port:database:user:password` for this endpoint. `*` stands for any
/// value, and a backslash precedes a colon or a backslash of a value.
fn password_of(line: &str, endpoint: &Endpoint) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let fields = split_line(line);
    let [host, port, database, user, password] = fields.as_slice() else {
        return None;
    };
    let port_number = endpoint.port.to_string();
    let wanted = [
        (host, &endpoint.host),
        (port, &port_number),
        (database, &endpoint.database),
        (user, &endpoint.user),
    ];
    let is_match = wanted
        .iter()
        .all(|(field, value)| *field == "*" || field == value);
    is_match.then(|| password.clone())
}

fn split_line(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' => fields.push(String::new()),
            '\\' => fields
                .last_mut()
                .into_iter()
                .for_each(|field| field.extend(characters.next())),
            _ => fields
                .last_mut()
                .into_iter()
                .for_each(|field| field.push(character)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            host: "db".into(),
            port: 5432,
            database: "agents".into(),
            user: "anna".into(),
        }
    }

    #[test]
    fn a_line_gives_the_password_of_its_endpoint() {
        for (line, expected) in [
            ("db:5432:agents:anna:s3cret", Some("s3cret")),
            ("*:*:*:*:s3cret", Some("s3cret")),
            (r"db:*:*:anna:a\:b\\c", Some(r"a:b\c")),
            ("other:*:*:*:s3cret", None),
            ("db:5433:*:*:s3cret", None),
            ("# db:5432:agents:anna:s3cret", None),
            ("db:5432", None),
        ] {
            let password = password_of(line, &endpoint());
            assert_eq!(password.as_deref(), expected, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("pgpass");
        std::fs::write(&path, "*:*:*:*:s3cret\n").expect("it can be written");
        let set_mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("it is ours");
        };
        set_mode(0o640);
        let refused = read_entry(&path, "PGPASSFILE", &endpoint()).expect_err("it is not private");
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
        set_mode(0o600);
        let password = read_entry(&path, "PGPASSFILE", &endpoint()).expect("it is private");
        assert_eq!(password.as_deref(), Some("s3cret"));
    }
}
