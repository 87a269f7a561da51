//! The server in `tests/clouds/server.py`, which checks how requests authenticate themselves.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use dormouse_actors::ports::Model;
use dormouse_proto::message::{Message, text_of};
use dormouse_proto::model::{ModelError, Request};
use serde_json::{Value, json};

use crate::testing;
use crate::wire::{Builder, Codec};

/// The server. Dropping it ends it.
pub(crate) struct PlayedCloud {
    process: Child,
    pub(crate) url: String,
}

impl PlayedCloud {
    pub(crate) fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clouds/server.py");
        let mut process = Command::new("python3")
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut port = String::new();
        let stdout = process.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut port)
            .expect("the server prints its port");
        let url = format!("http://127.0.0.1:{}", port.trim());
        Self { process, url }
    }
}

impl Drop for PlayedCloud {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A builder in an environment with only these variables.
pub(crate) fn builder<C: Codec>(variables: &[(&str, &str)]) -> Builder<C> {
    Builder::from_variables(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

pub(crate) fn request(model: &str) -> Request {
    let mut request = testing::request(vec![Message::user("hi")], json!({"temperature": 0.5}));
    request.model = model.into();
    request
}

/// What the server says that it was asked: `path`, `how` (it was authenticated) and `body`.
pub(crate) async fn asked<C: Codec>(
    builder: Builder<C>,
    request: Request,
) -> Result<Value, ModelError> {
    let reply = builder.build()?.call(request, &|_| ()).await?;
    Ok(serde_json::from_str(&text_of(&reply.blocks)).expect("the server describes the request"))
}
