//! Models for the Dormouse kernel.
//!
//! Two implementations of the port [`Model`](dormouse_actors::ports::Model): [`Scripted`] follows a file of turns, offline
//! and deterministic; [`Anthropic`] speaks the Messages API over HTTP.
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
mod provider;
pub mod scripted;

pub use anthropic::Anthropic;
pub use provider::{AnthropicProvider, ScriptedProvider};
pub use scripted::{ScriptError, Scripted};
