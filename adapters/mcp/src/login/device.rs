//! The device authorization grant (RFC 8628), for machines without a browser: the user opens an
//! address on another machine and enters a code there, while this program asks for the token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::Url;
use rmcp::transport::auth::{AuthorizationMetadata, OAuthTokenResponse, StoredCredentials};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::oauth_http::{DEFAULT_TIMEOUT, OAuthHttp};
use super::stored_login::{LoginFile, StoredLogin};
use super::{LoginError, refusal};

/// The grant, as requests name it.
const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The seconds between two requests for the token, if the authorization server names none, and what
/// its answer `slow_down` adds to them.
const INTERVAL_SECS: u64 = 5;
/// The longest time that a code is waited for, whatever the authorization server says.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);
/// The longest pause between two requests for the token.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// A login that waits for the user, who grants access on any machine.
pub struct DeviceLogin {
    pub(super) http: OAuthHttp,
    pub(super) login: StoredLogin,
    pub(super) file: LoginFile,
    pub(super) scopes: Vec<String>,
    codes: DeviceCodes,
    deadline: Instant,
}

/// The answer to the request for a code.
#[derive(Deserialize)]
struct DeviceCodes {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// The error of an authorization server.
#[derive(Deserialize)]
struct Refused {
    error: String,
    error_description: Option<String>,
}

/// Where a code is asked for, if the authorization server offers this grant.
pub(super) fn device_endpoint(metadata: &AuthorizationMetadata) -> Option<&str> {
    let endpoint = metadata
        .additional_fields
        .get("device_authorization_endpoint");
    endpoint.and_then(Value::as_str)
}

/// Registers this program as a client without redirects. Returns its id, and its secret if it gets
/// one.
///
/// # Errors
/// [`LoginError::Refused`].
pub(super) async fn register(
    http: &OAuthHttp,
    metadata: &AuthorizationMetadata,
    scopes: &[String],
) -> Result<(String, Option<String>), LoginError> {
    #[derive(Deserialize)]
    struct Registered {
        client_id: String,
        client_secret: Option<String>,
    }
    let Some(endpoint) = &metadata.registration_endpoint else {
        return Err(LoginError::Refused(
            "the authorization server registers no clients: register this program there by hand, \
             and give the id that it gets (--client-id)"
                .to_owned(),
        ));
    };
    let mut client = json!({
        "client_name": "Dormouse",
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": [],
        "redirect_uris": [],
        "token_endpoint_auth_method": "none",
    });
    if !scopes.is_empty() {
        client["scope"] = scopes.join(" ").into();
    }
    let request = http::Request::post(endpoint)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(client.to_string().into_bytes());
    let registered: Registered = answer_of(http, request).await?.map_err(refused)?;
    let secret = registered.client_secret;
    Ok((
        registered.client_id,
        secret.filter(|secret| !secret.is_empty()),
    ))
}

impl DeviceLogin {
    /// Asks for a code.
    ///
    /// # Errors
    /// [`LoginError::Refused`].
    pub(super) async fn begin(
        http: OAuthHttp,
        login: StoredLogin,
        file: LoginFile,
        scopes: Vec<String>,
    ) -> Result<Self, LoginError> {
        let Some(endpoint) = device_endpoint(&login.metadata) else {
            return Err(LoginError::Refused(
                "the authorization server offers no login by a code (device authorization): log in \
                 with a browser"
                    .to_owned(),
            ));
        };
        let scope = scopes.join(" ");
        let mut form = vec![("resource", login.resource.as_str())];
        form.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        let request = form_request(endpoint, &login, form);
        let codes: DeviceCodes = answer_of(&http, request).await?.map_err(refused)?;
        let address = Url::parse(&codes.verification_uri);
        if !address.is_ok_and(|address| matches!(address.scheme(), "http" | "https")) {
            return Err(LoginError::Refused(
                "the authorization server names no address at which a code can be entered"
                    .to_owned(),
            ));
        }
        let deadline = Instant::now() + Duration::from_secs(codes.expires_in).min(MAX_WAIT);
        Ok(Self {
            http,
            login,
            file,
            scopes,
            codes,
            deadline,
        })
    }

    /// The address that the user opens, on any machine.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.codes.verification_uri
    }

    /// The code that the user enters there.
    #[must_use]
    pub fn user_code(&self) -> &str {
        &self.codes.user_code
    }

    /// The address with the code in it, if the authorization server has one.
    #[must_use]
    pub fn address_with_code(&self) -> Option<&str> {
        self.codes.verification_uri_complete.as_deref()
    }

    /// Waits until the user has decided, and keeps the login.
    ///
    /// # Errors
    /// [`LoginError`]: the user refused, the code expired, or the login cannot be kept.
    pub async fn finish(self) -> Result<(), LoginError> {
        let token = self.wait_for_token().await?;
        let granted = granted_scopes(&token, &self.scopes);
        let received = SystemTime::now().duration_since(UNIX_EPOCH);
        let received = received.unwrap_or_default().as_secs();
        let Self {
            mut login, file, ..
        } = self;
        let client_id = login.client_id.clone();
        let issuer = login.metadata.issuer.clone();
        let credentials = StoredCredentials::new(client_id, Some(token), granted, Some(received));
        login.credentials = Some(credentials.with_issuer(issuer));
        Ok(file.keep(login).await?)
    }

    async fn wait_for_token(&self) -> Result<OAuthTokenResponse, LoginError> {
        let interval = self.codes.interval.unwrap_or(INTERVAL_SECS).max(1);
        let mut interval = Duration::from_secs(interval).min(MAX_INTERVAL);
        loop {
            if Instant::now() + interval >= self.deadline {
                return Err(LoginError::Refused(
                    "nobody granted access before the code expired: log in again".to_owned(),
                ));
            }
            tokio::time::sleep(interval).await;
            let form = vec![
                ("grant_type", DEVICE_CODE),
                ("device_code", self.codes.device_code.as_str()),
                ("resource", self.login.resource.as_str()),
            ];
            let request = form_request(&self.login.metadata.token_endpoint, &self.login, form);
            let slower = (interval + Duration::from_secs(INTERVAL_SECS)).min(MAX_INTERVAL);
            match answer_of(&self.http, request).await {
                Ok(Ok(token)) => return Ok(token),
                Ok(Err(Refused { error, .. })) if error == "authorization_pending" => {}
                Ok(Err(Refused { error, .. })) if error == "slow_down" => interval = slower,
                Ok(Err(error)) => return Err(refused(error)),
                // The code stays valid while the network is down.
                Err(LoginError::Refused(_)) => interval = slower,
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for DeviceLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceLogin").finish_non_exhaustive()
    }
}

/// The scopes of a token: if it names none, those that were asked for.
fn granted_scopes(token: &OAuthTokenResponse, asked: &[String]) -> Vec<String> {
    let named = serde_json::to_value(token).ok();
    let named = named.as_ref().and_then(|token| token["scope"].as_str());
    named.map_or_else(
        || asked.to_vec(),
        |scopes| scopes.split(' ').map(str::to_owned).collect(),
    )
}

/// A request with a form, in the name of the client of `login`. A secret is sent as the
/// authorization server says.
fn form_request<'a>(
    endpoint: &str,
    login: &'a StoredLogin,
    mut form: Vec<(&'a str, &'a str)>,
) -> http::Result<http::Request<Vec<u8>>> {
    form.push(("client_id", &login.client_id));
    let mut request = http::Request::post(endpoint)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json");
    if let Some(secret) = &login.client_secret {
        if takes_secret_in_form(&login.metadata) {
            form.push(("client_secret", secret));
        } else {
            let pair = format!("{}:{}", encoded(&login.client_id), encoded(secret));
            let basic = format!("Basic {}", STANDARD.encode(pair));
            request = request.header(AUTHORIZATION, basic);
        }
    }
    request.body(form_text(&form).into_bytes())
}

fn takes_secret_in_form(metadata: &AuthorizationMetadata) -> bool {
    let methods = metadata
        .additional_fields
        .get("token_endpoint_auth_methods_supported");
    let has = |name: &str| {
        let methods = methods.and_then(Value::as_array);
        methods.is_some_and(|methods| methods.iter().any(|method| method == name))
    };
    has("client_secret_post") && !has("client_secret_basic")
}

/// A form as the body of a request.
fn form_text(form: &[(&str, &str)]) -> String {
    let mut url = Url::parse("https://form.invalid").expect("the address is a constant");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

/// A text as a form writes it.
fn encoded(text: &str) -> String {
    form_text(&[(text, "")]).trim_end_matches('=').to_owned()
}

/// The answer to a request: what was asked for, or the error of the authorization server.
///
/// # Errors
/// [`LoginError::Refused`] if the authorization server cannot be reached, or answers neither.
async fn answer_of<T: DeserializeOwned>(
    http: &OAuthHttp,
    request: http::Result<http::Request<Vec<u8>>>,
) -> Result<Result<T, Refused>, LoginError> {
    let request = request.map_err(|_| {
        LoginError::Refused("the authorization server has an address that is none".to_owned())
    })?;
    let answer = http.send(request, DEFAULT_TIMEOUT).await;
    let answer = answer.map_err(|error| LoginError::Refused(error.to_string()))?;
    let status = answer.status();
    let unexpected = || {
        LoginError::Refused(format!(
            "the authorization server answered {status} without what the protocol asks for"
        ))
    };
    if status.is_success() {
        let parsed = serde_json::from_slice(answer.body());
        return parsed.map(Ok).map_err(|_| unexpected());
    }
    let parsed = serde_json::from_slice(answer.body());
    parsed.map(Err).map_err(|_| unexpected())
}

fn refused(
    Refused {
        error,
        error_description,
    }: Refused,
) -> LoginError {
    LoginError::Refused(refusal(&error, error_description.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(
            form_text(&[("a", "x y&z"), ("b", "é")]),
            "a=x+y%26z&b=%C3%A9"
        );
        assert_eq!(encoded("s=1 %"), "s%3D1+%25");
    }
}
