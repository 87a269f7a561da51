//! Calls of a played Bedrock, which computes each signature itself.

use dormouse_actors::ports::Model;
use dormouse_proto::model::{ModelErrorKind, TokenCount};
use serde_json::json;

use super::*;
use crate::testing::played_cloud::{PlayedCloud, asked, builder, request};
use crate::wire::Builder;

const MODEL: &str = "eu.anthropic.claude-haiku-4-5-20251001-v1:0";
const KEY: (&str, &str) = ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "s3cret-access-key");
const SESSION: (&str, &str) = ("AWS_SESSION_TOKEN", "s3cret-session");
const BEARER: (&str, &str) = ("AWS_BEARER_TOKEN_BEDROCK", "s3cret-bearer");
const REGION: (&str, &str) = ("AWS_REGION", "eu-central-1");

type Variables<'a> = &'a [(&'a str, &'a str)];

fn at(cloud: &PlayedCloud, variables: Variables<'_>) -> Builder<BedrockMessages> {
    builder(variables).base_url(&cloud.url)
}

#[tokio::test]
async fn a_signed_request_is_accepted_and_its_event_stream_is_read() {
    let cloud = PlayedCloud::start();
    let model = "/model/eu.anthropic.claude-haiku-4-5-20251001-v1%3A0";
    let cases: [(Variables<'_>, &str); 4] = [
        (&[KEY, SECRET, REGION], "signed"),
        (&[KEY, SECRET, SESSION, REGION], "signed in a session"),
        (&[BEARER], "bearer"),
        (&[BEARER, KEY, SECRET, REGION], "bearer"),
    ];
    for (variables, how) in cases {
        for (delivery, verb) in [
            (Delivery::Stream, "invoke-with-response-stream"),
            (Delivery::Whole, "invoke"),
        ] {
            let builder = at(&cloud, variables).delivery(delivery);
            let asked = asked(builder, request(MODEL)).await;
            let asked = asked.unwrap_or_else(|error| panic!("{error} with {variables:?}"));
            assert_eq!(asked["how"], how);
            assert_eq!(asked["path"], format!("{model}/{verb}"));
            assert_eq!(asked["body"]["anthropic_version"], "bedrock-2023-05-31");
            assert_eq!(asked["body"]["temperature"], json!(0.5));
            let breakpoint = &asked["body"]["system"][0]["cache_control"]["type"];
            assert_eq!(breakpoint, "ephemeral");
        }
    }
    // A region of the program comes before that of the environment, and an ARN is one segment.
    let location = CloudLocation {
        region: Some("eu-central-1".to_owned()),
        project: None,
    };
    let variables = [KEY, SECRET, ("AWS_REGION", "us-east-1")];
    let arn = "arn:aws:bedrock:eu-central-1:1:application-inference-profile/ab c";
    let builder = at(&cloud, &variables).location(location);
    let asked = asked(builder, request(arn)).await.unwrap();
    assert_eq!(asked["how"], "signed");
    let segment =
        "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Aapplication-inference-profile%2Fab%20c/";
    assert!(asked["path"].as_str().unwrap().starts_with(segment));
}

#[tokio::test]
async fn failures_of_bedrock_have_a_kind_and_show_no_secret() {
    use ModelErrorKind as Kind;
    let cloud = PlayedCloud::start();
    let good: Variables<'_> = &[KEY, SECRET, SESSION, REGION];
    let other_secret = ("AWS_SECRET_ACCESS_KEY", "s3cret-other");
    let other_session = ("AWS_SESSION_TOKEN", "s3cret-expired");
    let other_bearer = ("AWS_BEARER_TOKEN_BEDROCK", "s3cret-wrong");
    let other_region = ("AWS_REGION", "us-east-1");
    let cases: [(Variables<'_>, &str, Kind, &str); 11] = [
        (
            &[KEY, other_secret, REGION],
            MODEL,
            Kind::Authentication,
            "does not match",
        ),
        (
            &[KEY, SECRET, other_session, REGION],
            MODEL,
            Kind::Authentication,
            "session",
        ),
        (
            &[KEY, SECRET, other_region],
            MODEL,
            Kind::Authentication,
            "another key or scope",
        ),
        (&[other_bearer], MODEL, Kind::Authentication, "no signature"),
        (
            &[KEY, SECRET],
            MODEL,
            Kind::InvalidRequest,
            "`region` in [model]",
        ),
        (good, "throttled", Kind::Overloaded, "Too many requests"),
        (good, "too.long", Kind::ContextOverflow, "Input is too long"),
        (good, "throttled.later", Kind::Overloaded, "slow down"),
        (good, "failed.later", Kind::Transport, "fell over"),
        (good, "cut", Kind::CutStream, "eventstream"),
        (good, "corrupt", Kind::Malformed, "checksum"),
    ];
    for (variables, model, kind, expected) in cases {
        let error = asked(at(&cloud, variables), request(model)).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        let shown = error.to_string().to_lowercase();
        assert!(
            shown.contains(&expected.to_lowercase()),
            "{expected:?}: {error}"
        );
        assert!(!shown.contains("s3cret"), "{error}");
        assert!(!shown.contains("signature="), "{error}");
    }
    let asked = asked(at(&cloud, good), request("unknown.events")).await;
    assert!(
        asked.is_ok(),
        "a message of another kind is no part of the reply"
    );
}

#[tokio::test]
async fn the_region_decides_on_the_server_and_cannot_name_another() {
    let address = |region: &str| {
        let region = Some(region.to_owned());
        BedrockMessages { region }.base_url()
    };
    let frankfurt = address("eu-central-1").unwrap();
    assert_eq!(
        frankfurt,
        "https://bedrock-runtime.eu-central-1.amazonaws.com"
    );
    assert!(
        address("cn-north-1")
            .unwrap()
            .ends_with(".amazonaws.com.cn")
    );
    for region in ["", "x.evil.example/", "a@b", "eu_1"] {
        assert!(address(region).is_err(), "{region}");
    }
    let missing = builder::<BedrockMessages>(&[REGION]).build().unwrap_err();
    for name in ["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"] {
        assert!(missing.message.contains(name), "{missing}");
    }
    let model = builder::<BedrockMessages>(&[REGION, BEARER])
        .build()
        .unwrap();
    let counted = model.count_tokens(&request(MODEL)).await.unwrap();
    assert!(matches!(counted, TokenCount::Estimated(_)));
}
