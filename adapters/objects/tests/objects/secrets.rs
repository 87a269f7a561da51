//! Credentials come from where the cloud's tools have them, and are shown nowhere.

use std::env;
use std::fs;

use dormouse_objects::{ObjectContents, ObjectOptions};

use crate::child;
use crate::fake_server::FakeServer;
use crate::faults::errors;
use crate::stores::{content, name, put, read, servers};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYSECRET";

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set. Run .ci/objects"))
}

/// What users and logs can see of a store, and of all its errors.
fn shown(contents: &ObjectContents) -> String {
    let mut shown = format!("{contents:?} {:?}", contents.list());
    for error in errors(contents) {
        shown += &format!("\n{error} {error:?}");
    }
    shown
}

#[test]
fn credentials_are_in_no_error() {
    let body = format!(
        "<Error><Code>SignatureDoesNotMatch</Code><Key>{SECRET}</Key><AWSAccessKeyId>the-key-id\
         </AWSAccessKeyId></Error>"
    );
    for status in ["403 Forbidden", "400 Bad Request", "503 Slow Down"] {
        let server = FakeServer::answering(status, &body);
        let variables = [
            ("ENDPOINT", server.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "the-key-id"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_SESSION_TOKEN", "the-session-token"),
        ];
        child::run(
            "secrets::errors_of_the_child_contain_no_credentials",
            &variables,
        );
    }
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn errors_of_the_child_contain_no_credentials() {
    let endpoint = variable("ENDPOINT");
    let shown = shown(&crate::fake_server::impatient(&endpoint));
    for secret in ["the-key-id", SECRET, "the-session-token", "wJalr"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn wrong_credentials_are_refused_and_not_shown() {
    // Of the two servers only one verifies signatures.
    let store = servers().swap_remove(0);
    let variables = [
        ("URL", store.url.as_str()),
        ("ENDPOINT", store.endpoint.as_deref().unwrap()),
        ("AWS_ACCESS_KEY_ID", &variable("AWS_ACCESS_KEY_ID")),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    child::run("secrets::the_child_is_refused", &variables);
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn the_child_is_refused() {
    let options = ObjectOptions::new(variable("URL")).endpoint(variable("ENDPOINT"));
    let shown = shown(&ObjectContents::open(options).unwrap());
    assert!(
        shown.contains("answered 403 (SignatureDoesNotMatch)"),
        "{shown}"
    );
    assert!(
        !shown.contains(SECRET) && !shown.contains("wJalr"),
        "{shown}"
    );
}

#[test]
fn keys_of_a_profile_and_an_endpoint_of_the_environment_are_used() {
    let store = servers().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let (key, secret) = (
        variable("AWS_ACCESS_KEY_ID"),
        variable("AWS_SECRET_ACCESS_KEY"),
    );
    let profile = format!(
        "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n\n[mine]\n\
         aws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
    );
    fs::write(&file, profile).unwrap();
    let variables = [
        ("URL", store.url.as_str()),
        ("AWS_ENDPOINT_URL_S3", store.endpoint.as_deref().unwrap()),
        ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap()),
        ("AWS_PROFILE", "mine"),
    ];
    child::run("secrets::the_child_has_access", &variables);
    let variables = [&variables[..3], &[("AWS_PROFILE", "other")]].concat();
    let printed = child::run("secrets::the_child_has_no_profile", &variables);
    assert!(!printed.contains(&secret), "{printed}");
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn the_child_has_access() {
    let contents = ObjectContents::open(ObjectOptions::new(variable("URL"))).unwrap();
    let bytes = content(1000, 1);
    assert_eq!(read(&contents, put(&contents, &bytes, "")), bytes);
    contents.delete(&[name(&bytes)]).unwrap();
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn the_child_has_no_profile() {
    let error = ObjectContents::open(ObjectOptions::new(variable("URL"))).unwrap_err();
    assert!(error.to_string().contains("the profile 'other'"), "{error}");
}

#[test]
fn that_there_are_no_credentials_is_said() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let variables = [
        ("AWS_METADATA_ENDPOINT", format!("http://{closed}")),
        ("HOME", "/nowhere".to_owned()),
    ];
    let variables = variables
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    child::run("secrets::the_child_has_no_credentials", &variables);
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn the_child_has_no_credentials() {
    let contents = ObjectContents::open(ObjectOptions::new("s3://bucket")).unwrap();
    for error in errors(&contents) {
        let error = error.to_string();
        assert!(error.contains("there are no credentials"), "{error}");
        assert!(error.contains("Check the credentials"), "{error}");
    }
}

#[test]
fn an_endpoint_of_the_environment_without_encryption_is_refused() {
    let variables = [
        ("AWS_ENDPOINT_URL", "http://192.0.2.1"),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    child::run("secrets::the_child_refuses_its_endpoint", &variables);
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn the_child_refuses_its_endpoint() {
    let options = ObjectOptions::new("s3://bucket");
    let error = ObjectContents::open(options.clone()).unwrap_err();
    assert!(error.to_string().contains("without encryption"), "{error}");
    ObjectContents::open(options.allow_http()).unwrap();
}
