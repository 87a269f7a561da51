//! The `dormouse` program.
fn main() {}
