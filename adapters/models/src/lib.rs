//! Models for the Dormouse kernel.
//!
//! Implementations of the port [`Model`](dormouse_actors::ports::Model): [`Scripted`] follows a
//! script, offline and deterministically; [`Anthropic`], [`OpenAi`], [`OpenAiChat`] and [`Gemini`]
//! call a provider, or a compatible server, over HTTP in the format that they are named after.
//!
//! These four, with HTTP and TLS, need the feature `http`, which is on by default. The features
//! `bedrock` and `vertex` add the same models as Amazon and Google serve them.
//!
//! A call is one attempt. This crate never retries a call and keeps no conversation: it classifies
//! failures by kind, and the kernel decides what to do.
//!
//! ```
//! use dormouse_models::Scripted;
//!
//! let model = Scripted::parse("[[turn]]\ntext = 'You said: {{ prompt }}'", "echo.toml")?;
//! # Ok::<(), dormouse_models::ScriptError>(())
//! ```

#[cfg(feature = "http")]
pub mod anthropic;
#[cfg(feature = "bedrock")]
pub mod bedrock;
#[cfg(feature = "http")]
pub mod chat;
#[cfg(feature = "http")]
pub mod gemini;
mod prices;
#[cfg(feature = "http")]
mod provider;
pub mod recording;
#[cfg(feature = "http")]
pub mod responses;
pub mod scripted;
#[cfg(all(test, feature = "http"))]
mod testing;
#[cfg(feature = "vertex")]
pub mod vertex;
#[cfg(feature = "http")]
pub mod wire;

pub use prices::prices;
pub use recording::{Recorder, ReplayError, Replayer};
pub use scripted::{ScriptError, Scripted, ScriptedProvider};

#[cfg(feature = "bedrock")]
pub use self::bedrock::Bedrock;
#[cfg(feature = "vertex")]
pub use self::vertex::{AnthropicVertex, GeminiVertex};
#[cfg(feature = "http")]
pub use self::{
    anthropic::Anthropic, chat::OpenAiChat, gemini::Gemini, provider::ServerProvider,
    responses::OpenAi,
};
