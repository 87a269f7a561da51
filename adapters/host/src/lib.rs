//! An adapter.
