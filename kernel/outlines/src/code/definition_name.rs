//! Names of definitions: finds the name within the node that a query captures.

use tree_sitter::Node;

use super::super::name::normalise;

/// The parts of a name, outermost first: `Circle` and `area` for `double *Circle::area() const`,
/// `Stack` for `Stack<T>`. Iterative, since declarators can nest deeply.
pub(super) fn name_parts(name: Node<'_>, text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut node = name;
    while let Some(inner) = inner_node(node) {
        if let ("qualified_identifier", Some(scope)) =
            (node.kind(), node.child_by_field_name("scope"))
        {
            parts.push(name_text(innermost_node(scope), text));
        }
        node = inner;
    }
    parts.push(name_text(node, text));
    parts
}

fn innermost_node(mut node: Node<'_>) -> Node<'_> {
    while let Some(inner) = inner_node(node) {
        node = inner;
    }
    node
}

/// The child that contains the name, without C declarators and generic arguments around it.
fn inner_node(node: Node<'_>) -> Option<Node<'_>> {
    match node.kind() {
        "operator_cast" => None,
        "reference_declarator" | "parenthesized_declarator" => {
            node.named_child(node.named_child_count().checked_sub(1)? as u32)
        }
        _ => ["declarator", "name", "type"]
            .into_iter()
            .find_map(|field| node.child_by_field_name(field)),
    }
}

/// The name as written; a C++ conversion operator without its parameters.
fn name_text(node: Node<'_>, text: &str) -> String {
    let name = &text[node.byte_range()];
    match node.kind() {
        "operator_cast" => normalise(name.split('(').next().unwrap_or(name)),
        _ => normalise(name),
    }
}
