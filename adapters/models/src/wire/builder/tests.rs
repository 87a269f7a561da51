//! Tests of keys, addresses and debug output.

use super::*;
use crate::Anthropic;

fn check<C: Codec>(url: &str, key: Option<&str>, expected: Result<&str, ModelErrorKind>) {
    let builder = key
        .into_iter()
        .fold(Client::<C>::builder(), Builder::api_key);
    let built = builder
        .base_url(url)
        .build()
        .map(|model| model.address.base().to_owned())
        .map_err(|error| error.kind);
    assert_eq!(built, expected.map(str::to_owned), "{url}");
}

#[test]
fn a_key_is_required_unless_the_server_is_this_machine() {
    use ModelErrorKind as Kind;
    let cases = [
        ("https://api.anthropic.com", None, Err(Kind::Authentication)),
        (
            "https://api.anthropic.com",
            Some("k"),
            Ok("https://api.anthropic.com/v1"),
        ),
        (
            "https://api.anthropic.com",
            Some("k\n k"),
            Err(Kind::Authentication),
        ),
        (
            "https://api.anthropic.com",
            Some(" \n"),
            Err(Kind::Authentication),
        ),
        (
            "http://127.0.0.1:80/",
            Some(""),
            Ok("http://127.0.0.1:80/v1"),
        ),
        (
            "https://proxy.example/v1/",
            Some("k"),
            Ok("https://proxy.example/v1"),
        ),
        ("http://proxy.example", Some("k"), Err(Kind::InvalidRequest)),
        ("http://127.0.0.1:80/", None, Ok("http://127.0.0.1:80/v1")),
        ("http://[::1]:9/proxy/", None, Ok("http://[::1]:9/proxy/v1")),
        ("http://localhost:9", None, Ok("http://localhost:9/v1")),
        (
            "http://127.0.0.1.example.com",
            None,
            Err(Kind::Authentication),
        ),
        ("file:///etc", Some("k"), Err(Kind::InvalidRequest)),
        (
            "https://host?to=elsewhere",
            Some("k"),
            Err(Kind::InvalidRequest),
        ),
        ("api.anthropic.com", Some("k"), Err(Kind::InvalidRequest)),
    ];
    for (url, key, expected) in cases {
        check::<crate::anthropic::Messages>(url, key, expected);
    }
    let open = Anthropic::builder()
        .base_url("http://models.example")
        .without_api_key()
        .build();
    assert!(open.is_ok_and(|model| model.secrets.is_empty()));
}

#[test]
fn the_api_version_is_appended_to_an_address_without_it() {
    let chat = check::<crate::chat::Completions>;
    chat(
        "https://api.openai.com",
        Some("k"),
        Ok("https://api.openai.com/v1"),
    );
    chat(
        "https://openrouter.example/api/v1/",
        Some("k"),
        Ok("https://openrouter.example/api/v1"),
    );
    chat(
        "https://other.example/api/paas/v4",
        Some("k"),
        Ok("https://other.example/api/paas/v4"),
    );
    check::<crate::responses::Responses>(
        "http://localhost:4000",
        None,
        Ok("http://localhost:4000/v1"),
    );
    check::<crate::gemini::GenerateContent>(
        "http://localhost:1",
        None,
        Ok("http://localhost:1/v1beta"),
    );
    check::<crate::gemini::GenerateContent>(
        "http://localhost:1/v1beta",
        None,
        Ok("http://localhost:1/v1beta"),
    );
}

#[test]
fn a_token_is_sent_as_bearer_where_no_key_is_set_and_azure_gets_its_own_header() {
    use crate::anthropic::Messages;
    use crate::chat::Completions;

    fn sent<C: Codec>(variables: &[(&str, &str)], url: &str) -> (&'static str, String) {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let builder = Builder::<C>::from_variables(value);
        let Key::Set(credential) = &builder.key else {
            panic!("a variable is set")
        };
        let address = Address::parse(url, C::SERVICE.version).unwrap();
        key_header(&C::SERVICE, &address, credential)
    }
    let url = "https://h";
    let (key, token) = (("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", " t\n"));
    let bearer = ("authorization", "Bearer t".to_owned());
    assert_eq!(sent::<Messages>(&[token], url), bearer);
    let blank = ("ANTHROPIC_API_KEY", " ");
    assert_eq!(sent::<Messages>(&[blank, token], url), bearer);
    let own = ("x-api-key", "k".to_owned());
    assert_eq!(sent::<Messages>(&[key, token], url), own);
    let azure = "https://n.openai.azure.com/openai/v1";
    let key = [("OPENAI_API_KEY", "k")];
    let expected = ("api-key", "k".to_owned());
    assert_eq!(sent::<Completions>(&key, azure), expected);
    let expected = ("authorization", "Bearer k".to_owned());
    assert_eq!(sent::<Completions>(&key, url), expected);
}

#[test]
fn debug_output_does_not_contain_the_key() {
    fn shown<C: Codec>() -> String {
        let builder = Client::<C>::builder().api_key("sk-canary");
        let builder = builder.base_url("http://u:sk-canary@127.0.0.1:1/sk-canary");
        let model = builder.clone().build().unwrap();
        format!("{builder:?} {model:?} {:?}", model.http)
    }
    let shown = [
        shown::<crate::anthropic::Messages>(),
        shown::<crate::chat::Completions>(),
        shown::<crate::responses::Responses>(),
        shown::<crate::gemini::GenerateContent>(),
    ];
    assert!(!shown.concat().contains("sk-canary"), "{shown:?}");
    assert!(shown.iter().all(|shown| shown.contains("127.0.0.1")));
}
