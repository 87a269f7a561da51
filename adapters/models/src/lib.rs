//! Models for the Dormouse kernel.
//!
//! Implementations of the port [`Model`](dormouse_actors::ports::Model): [`Scripted`] follows a file of turns, offline and
//! deterministic; [`Anthropic`], [`OpenAi`], [`OpenAiChat`] and [`Gemini`] speak over HTTP the format that they are named
//! after, each with its provider or with a compatible server.
//!
//! A call is one attempt. This crate never repeats a call, keeps no conversation and decides nothing about one: what
//! went wrong is told by kind, and the kernel decides.
//!
//! ```
//! use dormouse_models::Scripted;
//!
//! let model = Scripted::parse("[[turn]]\ntext = 'You said: {{ prompt }}'", "echo.toml")?;
//! # Ok::<(), dormouse_models::ScriptError>(())
//! ```

pub mod anthropic;
pub mod chat;
pub mod gemini;
mod prices;
mod provider;
pub mod recording;
pub mod responses;
pub mod scripted;
#[cfg(test)]
mod testing;
pub mod wire;

pub use anthropic::Anthropic;
pub use chat::OpenAiChat;
pub use gemini::Gemini;
pub use prices::prices;
pub use provider::{ScriptedProvider, ServerProvider};
pub use recording::{Recorder, ReplayError, Replayer};
pub use responses::OpenAi;
pub use scripted::{ScriptError, Scripted};
