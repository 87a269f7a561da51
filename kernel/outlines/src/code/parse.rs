//! Parsing: a tree of syntax for any text, within a bound of work.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::language::Language;
use super::nesting;

/// Steps that the parser may take, in hundreds: it asks once for every hundred. A text takes one to
/// nine steps a byte, most if it is all mistakes, since several readings of it are then tried side
/// by side.
fn hundreds_of_steps(len: usize) -> usize {
    1000 + len / 10
}

/// The syntax of a text. None if it is nested too deeply or takes too much work: no clock is asked,
/// so that it is the same every time.
pub(super) fn parse(text: &str, language: Language) -> Option<Tree> {
    if nesting::is_too_deep(text, language) {
        return None;
    }
    let mut parser = Parser::new();
    parser
        .set_language(&language.grammar())
        .expect("grammars are of a version that the parser takes");
    let mut left = hundreds_of_steps(text.len());
    let mut progress = |_: &ParseState| match left.checked_sub(1) {
        Some(fewer) => {
            left = fewer;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let read = &mut |at: usize, _| text.as_bytes().get(at..).unwrap_or_default();
    parser.parse_with_options(read, None, Some(options))
}

/// Every node that this chooses to enter, from the outside in and in the order of the text. Takes
/// no stack.
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
