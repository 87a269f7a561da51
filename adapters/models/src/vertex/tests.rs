//! Calls of a played Vertex AI.

use dormouse_actors::ports::Model;
use dormouse_proto::model::{ModelErrorKind, TokenCount};

use super::*;
use crate::testing::played_cloud::{PlayedCloud, asked, builder, request};

const PROJECT: (&str, &str) = ("GOOGLE_CLOUD_PROJECT", "my-project");
const REGION: (&str, &str) = ("CLOUD_ML_REGION", "europe-west1");
const TOKEN: (&str, &str) = ("GOOGLE_OAUTH_ACCESS_TOKEN", "s3cret-bearer");

#[tokio::test]
async fn models_of_both_publishers_are_asked_at_their_paths() {
    let cloud = PlayedCloud::start();
    let url = format!("{}/v1", cloud.url);
    let variables = [PROJECT, REGION, TOKEN];
    let location = "/v1/projects/my-project/locations/europe-west1/publishers";

    let anthropic = builder::<VertexMessages>(&variables).base_url(&url);
    let seen = asked(anthropic.clone(), request("claude-sonnet-4-5@20250929")).await;
    let seen = seen.unwrap();
    let path = "anthropic/models/claude-sonnet-4-5%4020250929:streamRawPredict";
    assert_eq!(seen["path"], format!("{location}/{path}"));
    assert_eq!(seen["body"]["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(
        seen["body"]["system"][0]["cache_control"]["type"],
        "ephemeral"
    );
    assert!(
        seen["body"].get("cache_control").is_none(),
        "it is not automatic there"
    );
    let counted = anthropic
        .build()
        .unwrap()
        .count_tokens(&request("claude"))
        .await;
    assert_eq!(counted.unwrap(), TokenCount::Counted(6));

    let google = builder::<VertexGenerateContent>(&variables).base_url(&cloud.url);
    let location = CloudLocation {
        project: Some("example.com:other".to_owned()),
        region: Some("global".to_owned()),
    };
    let seen = asked(google.location(location), request("gemini-2.5-pro"))
        .await
        .unwrap();
    let path = "/v1/projects/example.com:other/locations/global/publishers/google/models/\
                gemini-2.5-pro:streamGenerateContent?alt=sse";
    assert_eq!(seen["path"], path);
    assert_eq!(seen["body"]["contents"][0]["parts"][0]["text"], "hi");
    assert!(seen["body"].get("model").is_none());
}

#[tokio::test]
async fn a_wrong_token_is_an_error_that_does_not_show_it() {
    let cloud = PlayedCloud::start();
    let wrong = ("GOOGLE_OAUTH_ACCESS_TOKEN", "s3cret-expired");
    let builder = builder::<VertexMessages>(&[PROJECT, REGION, wrong]).base_url(&cloud.url);
    let error = asked(builder, request("claude")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Authentication, "{error}");
    assert!(error.message.contains("UNAUTHENTICATED"), "{error}");
    assert!(!error.message.contains("s3cret"), "{error}");
}

#[test]
fn project_and_region_decide_on_the_address_and_cannot_name_another() {
    let location = |project: Option<&str>, region: Option<&str>| {
        VertexLocation::new(&CloudLocation {
            project: project.map(str::to_owned),
            region: region.map(str::to_owned),
        })
    };
    for (region, host) in [
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ] {
        let url = location(None, Some(region)).base_url().unwrap();
        assert_eq!(url, format!("https://{host}/v1"));
    }
    for region in [None, Some(""), Some("x.evil.example/"), Some("a@b")] {
        let error = location(None, region).base_url().unwrap_err();
        assert!(error.message.contains("`region` in [model]"), "{error}");
    }
    for project in [None, Some("a/b"), Some("p?x")] {
        let path = location(project, Some("eu")).path("google", "m", "v");
        let error = path.unwrap_err();
        assert!(error.message.contains("`project_id` in [model]"), "{error}");
    }
    let path = |model| location(Some("p"), Some("eu")).path("google", model, "v");
    assert!(path("a/../b").unwrap().ends_with("/models/a%2F..%2Fb:v"));
    assert!(path("..").is_err() && path("").is_err());
}

/// Gets a token in a process of its own, whose environment names the key of a service account.
#[tokio::test]
#[ignore = "the test below runs it in a process of its own, with another environment"]
async fn call_with_a_service_account() {
    let url = std::env::var("TEST_URL").expect("the test below sets it");
    let builder = crate::wire::Builder::<VertexMessages>::from_env().base_url(url);
    let seen = asked(builder, request("claude")).await;
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen["how"], "bearer");
}

#[tokio::test]
async fn a_service_account_gets_its_token_from_the_address_in_its_key() {
    let cloud = PlayedCloud::start();
    let folder = tempfile::tempdir().unwrap();
    let openssl = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .output();
    let Ok(key) = openssl else {
        return crate::testing::skip::skip("openssl", "openssl makes the key of an account");
    };
    let key = String::from_utf8(key.stdout).unwrap();
    let call = async |issuer: &str| {
        let account = serde_json::json!({
            "type": "service_account",
            "project_id": "my-project",
            "private_key": key,
            "client_email": issuer,
            "token_uri": format!("{}/token", cloud.url),
        });
        let file = folder.path().join("account.json");
        std::fs::write(&file, account.to_string()).unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "vertex::tests::call_with_a_service_account";
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env_remove("GOOGLE_OAUTH_ACCESS_TOKEN")
            .env("GOOGLE_APPLICATION_CREDENTIALS", file)
            .env("GOOGLE_CLOUD_PROJECT", "my-project")
            .env("CLOUD_ML_REGION", "eu")
            .env("TEST_URL", &cloud.url);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = output.await.unwrap();
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&shown).into_owned();
        (output.status.success(), shown)
    };
    let (succeeded, shown) = call("robot@example").await;
    assert!(succeeded, "{shown}");
    let (succeeded, shown) = call("other@example").await;
    assert!(
        !succeeded && shown.contains("no token of Google Cloud"),
        "{shown}"
    );
}
