//! The providers that programs select with the key `provider`, one for each wire format.
//!
//! A program may name a server, and a variable that holds a key; the host checks that the user
//! permits both. The key that the environment holds for a provider is sent only to the provider's
//! own server, or to the server that the environment names, never to a server that a program names.
//!
//! The model of a program is a `Client` (`wire/client.rs`), which `wire/builder.rs` builds from the
//! program's `[model]` section and the environment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_actors::ports::{Host, HostError, Model, Provider, ProviderRequest};
use dormouse_kernel::program::ModelChoice;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::program::CacheTtl;
use dormouse_proto::server::{CaFile, ServerValue};

use crate::wire::address::host_and_port;
use crate::wire::{Builder, Client, CloudLocation, Codec, Credential, Header};

/// The provider for a wire format. It has one client for each combination of server, key, headers,
/// timeout and cache lifetime. A client is created when it is first needed, so a kernel that never
/// uses the provider needs no key.
pub struct ServerProvider<C> {
    clients: Mutex<HashMap<ClientKey, Client<C>>>,
}

/// The most clients that are kept. For a further combination, each call creates a client.
const MAX_CLIENTS: usize = 64;

/// Identifies a client. It contains an API key, so it has no debug output.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    server: Server,
    /// The key that the program names. `None`: with the default server, the key from the
    /// environment; with a server that the program names, no key.
    key: Option<Credential>,
    headers: Vec<Header>,
    ca_file: Option<CaFile>,
    location: CloudLocation,
    idle_timeout: Option<Duration>,
    cache_ttl: Option<CacheTtl>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Server {
    /// The provider's own server, or the one that the environment names.
    Default,
    Named(String),
}

impl<C: Codec> ServerProvider<C> {
    fn client_key(model: &ModelChoice, host: &Arc<dyn Host>) -> Result<ClientKey, ModelError> {
        let server = match &model.base_url {
            None => Server::Default,
            Some(url) => {
                let (machine, port) = host_and_port(url)?;
                host.connect(&machine, port).map_err(unavailable)?;
                Server::Named(url.clone())
            }
        };
        let key = model
            .api_key_env
            .as_deref()
            .map(|name| {
                let value = read_api_key(host, name)?;
                Ok(Credential::of_variable(&C::SERVICE, name, value))
            })
            .transpose()?;
        let headers = model
            .headers
            .iter()
            .map(|(name, value)| fill_header(host, name, value))
            .collect::<Result<_, _>>()?;
        Ok(ClientKey {
            server,
            key,
            headers,
            ca_file: model.ca_file.clone(),
            location: CloudLocation {
                project: model.project_id.clone(),
                region: model.region.clone(),
            },
            idle_timeout: model.idle_timeout_ms.map(Duration::from_millis),
            cache_ttl: model.cache_ttl,
        })
    }

    fn build_client(client_key: &ClientKey) -> Result<Client<C>, ModelError> {
        let builder = match &client_key.server {
            Server::Default => Builder::from_env(),
            Server::Named(url) => Builder::default()
                .location_from(&|name| std::env::var(name).ok())
                .base_url(url)
                .without_api_key(),
        };
        let builder = match &client_key.key {
            Some(key) => builder.credential(key.clone()),
            None => builder,
        };
        let builder = match client_key.idle_timeout {
            Some(timeout) => builder.idle_timeout(timeout),
            None => builder,
        };
        builder
            .headers(client_key.headers.clone())
            .ca_file(client_key.ca_file.clone())
            .location(client_key.location.clone())
            .cache_ttl(client_key.cache_ttl)
            .build()
    }

    fn lock_clients(&self) -> MutexGuard<'_, HashMap<ClientKey, Client<C>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Codec> Provider for ServerProvider<C> {
    fn model(&self, request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        let client_key = Self::client_key(request.model, request.host)?;
        if let Some(client) = self.lock_clients().get(&client_key) {
            return Ok(Arc::new(client.clone()));
        }
        let client = Self::build_client(&client_key)?;
        let mut clients = self.lock_clients();
        if clients.len() >= MAX_CLIENTS {
            return Ok(Arc::new(client));
        }
        Ok(Arc::new(
            clients.entry(client_key).or_insert(client).clone(),
        ))
    }
}

impl<C> Default for ServerProvider<C> {
    fn default() -> Self {
        Self {
            clients: Mutex::default(),
        }
    }
}

impl<C> std::fmt::Debug for ServerProvider<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerProvider").finish_non_exhaustive()
    }
}

/// Reads the API key from the variable `name` of the host.
fn read_api_key(host: &Arc<dyn Host>, name: &str) -> Result<String, ModelError> {
    let value = host.variable(name).map_err(unavailable)?;
    let value = value.filter(|value| !value.trim().is_empty());
    value.ok_or_else(|| {
        let message =
            format!("no API key: the program names the variable {name}, which is not set");
        ModelError::new(ModelErrorKind::Authentication, message)
    })
}

/// Fills the variables of the host into the value of a header.
fn fill_header(
    host: &Arc<dyn Host>,
    name: &str,
    template: &ServerValue,
) -> Result<Header, ModelError> {
    let value = template
        .substitute_variables(|variable| host.variable(variable))
        .map_err(|why| {
            let message = format!("the header {name} of the model cannot be filled in: {why}");
            ModelError::new(ModelErrorKind::Unavailable, message)
        })?;
    Ok(Header {
        name: name.to_owned(),
        value,
        is_secret: template.literal().is_none(),
    })
}

fn unavailable(error: HostError) -> ModelError {
    ModelError::new(ModelErrorKind::Unavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use dormouse_actors::ports::{NoHost, Tool};
    use dormouse_kernel::program::{Program, compile};
    use dormouse_proto::command::Command;
    use dormouse_proto::file::{FileError, FileWrite};
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::anthropic::Messages;
    use crate::chat::Completions;

    /// Permits one machine and one variable.
    struct Permitting;

    impl Host for Permitting {
        fn command(&self, command: &Command) -> Arc<dyn Tool> {
            NoHost.command(command)
        }

        fn variable(&self, name: &str) -> Result<Option<String>, HostError> {
            match name {
                "THEIR_KEY" | "ANTHROPIC_AUTH_TOKEN" => Ok(Some("sk-theirs".to_owned())),
                "UNSET" => Ok(None),
                _ => Err(HostError::Refused(format!("{name} is not permitted"))),
            }
        }

        fn connect(&self, machine: &str, port: u16) -> Result<(), HostError> {
            match (machine, port) {
                ("models.example", 443 | 8443) | ("localhost", 1) => Ok(()),
                _ => Err(HostError::Refused(format!(
                    "{machine}:{port} is not permitted"
                ))),
            }
        }

        fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
            NoHost.write(write)
        }

        fn read(&self, path: &Path) -> Result<Bytes, FileError> {
            NoHost.read(path)
        }
    }

    fn program(rest: &str) -> Program {
        let text = format!("[model]\nname = \"m\"\nprovider = \"openai-chat\"\n{rest}");
        compile(Path::new("p.toml"), &mut |_| Ok(text.clone().into()), &[])
            .unwrap()
            .program
    }

    fn client_key(rest: &str, host: impl Host) -> Result<ClientKey, ModelError> {
        ServerProvider::<Completions>::client_key(
            program(rest).model(),
            &(Arc::new(host) as Arc<dyn Host>),
        )
    }

    #[test]
    fn a_server_and_a_key_that_a_program_names_need_permission() {
        let allowed = [
            "base_url = \"https://models.example/api\"",
            "base_url = \"https://models.example:8443\"\napi_key_env = \"THEIR_KEY\"",
            "base_url = \"http://localhost:1/v1\"",
            "api_key_env = \"THEIR_KEY\"",
            "",
        ];
        for rest in allowed {
            assert!(client_key(rest, Permitting).is_ok(), "{rest}");
            assert_eq!(client_key(rest, NoHost).is_ok(), rest.is_empty(), "{rest}");
        }
        let refused = [
            (
                "base_url = \"https://models.example.org\"",
                "models.example.org:443 is not permitted",
            ),
            (
                "base_url = \"http://models.example\"",
                "models.example:80 is not permitted",
            ),
            ("base_url = \"http://[::1]:9\"", "[::1]:9 is not permitted"),
            (
                "api_key_env = \"OPENAI_API_KEY\"",
                "OPENAI_API_KEY is not permitted",
            ),
            ("api_key_env = \"UNSET\"", "UNSET, which is not set"),
            (
                "headers = { x-key = \"${OPENAI_API_KEY}\" }",
                "OPENAI_API_KEY is not permitted",
            ),
            (
                "headers = { x-key = \"${UNSET}\" }",
                "the environment variable UNSET is not set",
            ),
        ];
        for (rest, why) in refused {
            let error = client_key(rest, Permitting)
                .err()
                .expect("it is not permitted");
            assert!(error.message.contains(why), "{error}");
        }
    }

    #[test]
    fn a_server_that_a_program_names_gets_only_the_key_that_the_program_names() {
        let rest = "base_url = \"https://models.example/api\"";
        let client_key = client_key(rest, Permitting).ok().unwrap();
        assert!(
            client_key.key.is_none()
                && client_key.server == Server::Named("https://models.example/api".to_owned())
        );
        let client = ServerProvider::<Completions>::build_client(&client_key).unwrap();
        assert!(!client.has_key());
    }

    #[test]
    fn the_variable_of_a_token_is_sent_as_one_if_a_program_names_it() {
        let named = |variable: &str| {
            let program = program(&format!("api_key_env = \"{variable}\""));
            let host = Arc::new(Permitting) as Arc<dyn Host>;
            ServerProvider::<Messages>::client_key(program.model(), &host)
                .ok()
                .and_then(|client_key| client_key.key)
        };
        let value = || "sk-theirs".to_owned();
        assert!(named("ANTHROPIC_AUTH_TOKEN") == Some(Credential::Token(value())));
        assert!(named("THEIR_KEY") == Some(Credential::ApiKey(value())));
    }

    #[test]
    fn equal_requests_of_programs_share_a_client() {
        let provider = ServerProvider::<Completions>::default();
        let host: Arc<dyn Host> = Arc::new(Permitting);
        let model = |rest: &str| {
            let program = program(rest);
            provider
                .model(ProviderRequest {
                    program: &program,
                    model: program.model(),
                    host: &host,
                })
                .unwrap();
            provider.lock_clients().len()
        };
        let local = "base_url = \"http://localhost:1/v1\"";
        assert_eq!([model(local), model(local)], [1, 1]);
        assert_eq!(model(&format!("{local}\napi_key_env = \"THEIR_KEY\"")), 2);
        assert_eq!(
            model(&format!("{local}\ndisable_automatic_caching = true")),
            3
        );
        let header = |value: &str| model(&format!("{local}\nheaders = {{ x-beta = \"{value}\" }}"));
        assert_eq!([header("a"), header("a"), header("b")], [4, 4, 5]);
        assert_eq!(header("${THEIR_KEY}"), 6);
        assert_eq!(model(&format!("{local}\nidle_timeout = \"20m\"")), 7);
        assert!(!format!("{provider:?}").contains("theirs"));
    }
}
