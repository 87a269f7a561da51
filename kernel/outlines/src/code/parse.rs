//! Parsing with bounded work.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::language::Language;
use super::nesting;

/// Maximum number of progress callbacks; the parser calls back every hundred steps. Text takes one
/// to nine steps per byte, most if it is full of errors, since several interpretations are then
/// tried in parallel.
fn max_callbacks(len: usize) -> usize {
    1000 + len / 10
}

/// Parses a text. `None` if it is nested too deeply or takes too much work, measured in steps
/// instead of time, so that the result is deterministic.
pub(super) fn parse(text: &str, language: Language) -> Option<Tree> {
    if nesting::is_too_deep(text, language) {
        return None;
    }
    let mut parser = Parser::new();
    parser
        .set_language(&language.grammar())
        .expect("the parser supports the ABI version of each grammar");
    let mut calls_left = max_callbacks(text.len());
    let mut progress = |_: &ParseState| match calls_left.checked_sub(1) {
        Some(fewer) => {
            calls_left = fewer;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let read = &mut |at: usize, _| text.as_bytes().get(at..).unwrap_or_default();
    parser.parse_with_options(read, None, Some(options))
}

/// Visits nodes in pre-order; `enter` decides whether to descend. Uses no recursion.
pub(super) fn walk<'t>(tree: &'t Tree, mut enter: impl FnMut(Node<'t>) -> bool) {
    let mut cursor = tree.walk();
    loop {
        if enter(cursor.node()) && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}
