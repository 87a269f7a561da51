//! Definitions in a syntax tree: the captures of a query, with names and lines.
//!
//! `definition_name.rs` finds the name of a definition, `leading.rs` the comments and attributes
//! above it, and `neighbours.rs` says whether it is shown in whole lines.

use std::collections::HashSet;

use tree_sitter::{Node, QueryCursor, StreamingIterator, Tree};

use super::super::name::normalise;
use super::super::{OutlineEntry, Unit, checked_count};
use super::language::{Language, Patterns};
use super::leading::{LeadingNodes, lines};
use super::neighbours::Neighbours;
use super::parse::{parse, walk};
use super::{Definitions, definition_name};

/// Maximum number of enclosing names in a qualified name: the nearest ones.
const MAX_SCOPES: usize = 7;

/// A captured definition.
struct Definition<'t> {
    unit: Unit,
    node: Node<'t>,
    name: Node<'t>,
    scope: Option<Node<'t>>,
    block: Option<ImplBlock<'t>>,
}

/// The kind of an `impl` block: of a type alone, or of a trait for a type.
enum ImplBlock<'t> {
    Inherent,
    Trait { implements: Node<'t> },
}

/// A definition that encloses others.
struct Enclosing {
    unit: Unit,
    lines: (u64, u64),
    end: usize,
    name: String,
}

/// The functions and classes of a text. `None` if the parser gives up.
pub(super) fn find_definitions(text: &str, language: Language) -> Option<Definitions> {
    let tree = parse(text, language)?;
    let (definitions, leading) = capture_definitions(text, &tree, language);
    let mut outlined = outline_definitions(text, definitions, &leading);
    let functions = outlined
        .extract_if(.., |(unit, _)| *unit == Unit::Function)
        .map(|(_, unit)| unit)
        .collect();
    let classes = outlined.into_iter().map(|(_, unit)| unit).collect();
    Some(Definitions {
        functions: checked_count(Unit::Function, functions),
        classes: checked_count(Unit::Class, classes),
    })
}

/// All definitions, outermost first in the order of the text, and the nodes that may belong to a
/// definition below them.
fn capture_definitions<'t>(
    text: &str,
    tree: &'t Tree,
    language: Language,
) -> (Vec<Definition<'t>>, LeadingNodes) {
    let Patterns {
        query,
        definition_kinds,
    } = language.patterns();
    let names = query.capture_names();
    let mut definitions = Vec::new();
    let mut leading = LeadingNodes::default();
    let mut cursor = QueryCursor::new();
    // Run the query at each node for that node alone: run at the root, its time grows with the
    // depth of the tree.
    cursor.set_max_start_depth(Some(0));
    walk(tree, |node| {
        let mut matches = cursor.matches(query, node, text.as_bytes());
        while let Some(matched) = definition_kinds
            .contains(&node.kind_id())
            .then(|| matches.next())
            .flatten()
        {
            let captures = matched.captures().iter();
            let node = |name: &str| {
                captures
                    .clone()
                    .find(|found| names[found.index as usize] == name)
                    .map(|found| found.node)
            };
            match node("above") {
                Some(node) => leading.push(text, node),
                None => definitions.extend(definition_from(node)),
            }
        }
        true
    });
    let mut named = HashSet::new();
    definitions.retain(|definition: &Definition<'_>| named.insert(definition.name.start_byte()));
    (definitions, leading)
}

/// Builds a definition from the captures of one match, which `node` looks up by name.
fn definition_from<'t>(node: impl Fn(&str) -> Option<Node<'t>>) -> Option<Definition<'t>> {
    let function = node("function").map(|node| (Unit::Function, node));
    let (unit, definition) = function.or_else(|| node("class").map(|node| (Unit::Class, node)))?;
    let implemented = node("implemented");
    let block = implemented.map(|_| {
        node("trait").map_or(ImplBlock::Inherent, |implements| ImplBlock::Trait {
            implements,
        })
    });
    Some(Definition {
        unit,
        node: definition,
        name: node("name").or(implemented)?,
        scope: node("scope"),
        block,
    })
}

fn outline_definitions(
    text: &str,
    definitions: Vec<Definition<'_>>,
    leading: &LeadingNodes,
) -> Vec<(Unit, OutlineEntry)> {
    let mut enclosing: Vec<Enclosing> = Vec::new();
    let neighbours = Neighbours::new(text, definitions.iter().map(|found| found.node));
    // The line of the last definition, and where definitions on that line begin.
    let mut begins_at = (0, 0);
    let units = definitions.into_iter().map(|definition| {
        let lines = lines(definition.node);
        let within_lines = neighbours.range_within_lines(definition.node);
        // Only the first definition on a line searches for comments above it, and only if it is
        // shown in whole lines; other definitions on that line start with it.
        if begins_at.0 != lines.0 {
            let first_line = match within_lines {
                Some(_) => lines.0,
                None => leading.first_line(lines.0),
            };
            begins_at = (lines.0, first_line);
        }
        while enclosing
            .pop_if(|outer| !outer.encloses(&definition, lines))
            .is_some()
        {}
        let parts = definition.qualified_name_parts(text, &enclosing);
        let (name, implemented) = definition.names(text, &parts);
        enclosing.push(Enclosing {
            unit: definition.unit,
            lines,
            end: definition.node.end_byte(),
            name: parts.last().cloned().unwrap_or_default(),
        });
        // What is above the first line belongs to the whole line.
        let first_line = within_lines.as_ref().map_or(begins_at.1, |_| lines.0);
        (
            definition.unit,
            OutlineEntry {
                name,
                implemented,
                first_line,
                last_line: lines.1,
                within_lines,
            },
        )
    });
    units.collect()
}

impl Enclosing {
    /// Whether `inner` is nested in this definition. A type on exactly the same lines is only a
    /// second name, as in `typedef struct node { … } Node;`.
    fn encloses(&self, inner: &Definition<'_>, lines: (u64, u64)) -> bool {
        let is_same = self.lines == lines && (self.unit, inner.unit) == (Unit::Class, Unit::Class);
        inner.node.start_byte() < self.end && !is_same
    }
}

impl Definition<'_> {
    /// The qualified name: enclosing names, outermost first, then its own.
    fn qualified_name_parts(&self, text: &str, enclosing: &[Enclosing]) -> Vec<String> {
        let nearest = enclosing.len().saturating_sub(MAX_SCOPES);
        let outer = enclosing[nearest..].iter().map(|outer| outer.name.clone());
        let scope = self
            .scope
            .iter()
            .flat_map(|scope| definition_name::name_parts(*scope, text));
        outer
            .chain(scope)
            .chain(definition_name::name_parts(self.name, text))
            .collect()
    }

    /// The name, and the implemented type of an `impl` block.
    fn names(&self, text: &str, parts: &[String]) -> (Box<str>, Box<str>) {
        let path = parts.join(".").into();
        let written = |node: Node<'_>| normalise(&text[node.byte_range()]);
        match self.block {
            None => (path, Box::default()),
            Some(ImplBlock::Inherent) => (format!("impl {}", written(self.name)).into(), path),
            Some(ImplBlock::Trait { implements }) => (
                format!("impl {} for {}", written(implements), written(self.name)).into(),
                path,
            ),
        }
    }
}
