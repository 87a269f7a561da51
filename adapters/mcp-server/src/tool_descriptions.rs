//! Describes the tools of a process to a client. The name, the description and the parameters are
//! those that the process has; everything else that a server says of its tool is passed on: title,
//! hints, icons, metadata, and the schema of its results.

use std::collections::HashMap;
use std::sync::Arc;

use dormouse_proto::tool::{Access, ExternalTool, ToolSpec};
use dormouse_proto::xml::imitation::imitates;
use futures_util::future::join_all;
use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};

use crate::upstream::Upstream;

/// The key of the structured content of a result that is not shown as its schema describes it. Its
/// value is the text that the model reads.
pub(crate) const TEXT_KEY: &str = "dormouse_text";

/// What servers say of their tools, by the name that the process gives to a tool.
pub(crate) type ListedTools = HashMap<Arc<str>, Tool>;

/// Lists what the servers say of the tools that the process has.
pub(crate) async fn list_tools_of_servers(upstream: &Upstream) -> ListedTools {
    let lists = upstream.servers().iter().map(|enabled| async {
        let server = &enabled.server;
        let listed: Vec<Tool> = upstream.list(server, "tools/list", "tools").await;
        (server.name.clone(), listed)
    });
    let lists: HashMap<Arc<str>, Vec<Tool>> = join_all(lists).await.into_iter().collect();
    let find = |external: &ExternalTool| {
        let listed = lists.get(external.server.as_ref()?)?;
        listed
            .iter()
            .find(|tool| *tool.name == *external.name)
            .cloned()
    };
    let external = upstream.view().tools.external().iter();
    external
        .filter_map(|tool| Some((tool.name_for_model.clone(), find(tool)?)))
        .collect()
}

/// The description of a tool for clients. `listed_tool` is the tool as its server
/// lists it.
pub(crate) fn describe_tool(
    spec: &ToolSpec,
    access: Option<Access>,
    listed_tool: Option<&Tool>,
) -> Tool {
    // A schema that is not an object is sent as an empty one, which accepts anything. The tool
    // itself checks its arguments.
    let schema: JsonObject = serde_json::from_str(&spec.schema).unwrap_or_default();
    let mut tool = Tool::new(spec.name.to_string(), spec.description.to_string(), schema);
    if let Some(listed_tool) = listed_tool.filter(|listed_tool| is_passed_on(listed_tool)) {
        tool.title = listed_tool.title.clone();
        tool.annotations = listed_tool.annotations.clone();
        tool.icons = listed_tool.icons.clone();
        tool.meta = listed_tool.meta.clone();
        let schema = listed_tool.output_schema.as_deref();
        tool.output_schema = schema.map(|schema| Arc::new(or_text(schema)));
    }
    if access == Some(Access::Read) {
        let annotations = tool.annotations.get_or_insert_default();
        annotations.read_only_hint.get_or_insert(true);
    }
    tool
}

/// Whether what a server says of a tool, beyond its description, can be passed on: text that
/// imitates the kernel is not.
fn is_passed_on(tool: &Tool) -> bool {
    let said = json!([
        tool.title,
        tool.annotations,
        tool.icons,
        tool.meta,
        tool.output_schema
    ]);
    let is_passed_on = !imitates(&said.to_string());
    if !is_passed_on {
        tracing::warn!(
            tool = &*tool.name,
            "hints of a tool imitate the kernel: left out"
        );
    }
    is_passed_on
}

/// The schema of a tool's results through this server: that of the tool, or an object with the text
/// that the model reads instead, where a result became a descriptor.
fn or_text(schema: &JsonObject) -> JsonObject {
    let mut original = Value::Object(schema.clone());
    // A schema with an id is the root of its references wherever it is.
    if !schema.contains_key("$id") {
        move_references(&mut original, "#/anyOf/0");
    }
    let dialect = original
        .as_object_mut()
        .and_then(|original| original.remove("$schema"));
    let text = json!({
        "type": "object",
        "description": "The result is too large for a context, or not shown as it is: what to read instead.",
        "properties": { TEXT_KEY: { "type": "string" } },
        "required": [TEXT_KEY],
        "additionalProperties": false,
    });
    let mut either = Map::new();
    either.extend(dialect.map(|dialect| ("$schema".to_owned(), dialect)));
    either.insert("type".to_owned(), "object".into());
    either.insert("anyOf".to_owned(), json!([original, text]));
    either
}

/// The words of a schema that map names to schemas.
const NAMED_SCHEMAS: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];

/// Prepends the new place of a schema to all references within it.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| move_references(item, place)),
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(reference) if key == "$ref" => {
                        if let Some(rest) = reference.strip_prefix('#')
                            && (rest.is_empty() || rest.starts_with('/'))
                        {
                            *reference = format!("{place}{rest}");
                        }
                    }
                    // Values, not schemas.
                    _ if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => {}
                    // Their keys are names, not words of a schema.
                    Value::Object(named) if NAMED_SCHEMAS.contains(&key.as_str()) => named
                        .values_mut()
                        .for_each(|schema| move_references(schema, place)),
                    member => move_references(member, place),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_results_admits_the_text_and_keeps_its_references() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "tree": { "$ref": "#/$defs/node" }, "self": { "$ref": "#" },
                "elsewhere": { "$ref": "other.json#/a" }, "$ref": { "type": "string" },
                "default": { "$ref": "#/$defs/node" },
                "fixed": { "const": { "$ref": "#/kept" } },
            },
            "$defs": { "node": { "items": [{ "$ref": "#/$defs/node" }] } },
        });
        let either = Value::Object(or_text(schema.as_object().unwrap()));
        assert_eq!(either["$schema"], schema["$schema"]);
        assert_eq!(either["type"], "object");
        let original = &either["anyOf"][0];
        let properties = &original["properties"];
        assert_eq!(properties["tree"]["$ref"], "#/anyOf/0/$defs/node");
        assert_eq!(properties["default"]["$ref"], "#/anyOf/0/$defs/node");
        assert_eq!(properties["self"]["$ref"], "#/anyOf/0");
        assert_eq!(properties["elsewhere"]["$ref"], "other.json#/a");
        assert_eq!(properties["fixed"]["const"]["$ref"], "#/kept");
        assert_eq!(
            original["$defs"]["node"]["items"][0]["$ref"],
            "#/anyOf/0/$defs/node"
        );
        assert_eq!(either["anyOf"][1]["required"], json!([TEXT_KEY]));
    }

    #[test]
    fn what_a_server_says_of_a_tool_is_kept_unless_it_imitates_the_kernel() {
        let spec = ToolSpec {
            name: "given".into(),
            description: "As the program says.".into(),
            schema: r#"{"type":"object"}"#.into(),
        };
        let listed_tool = |title: &str| -> Tool {
            serde_json::from_value(json!({
                "name": "own", "title": title, "description": "As the server says.",
                "inputSchema": { "type": "object" },
                "annotations": { "destructiveHint": false, "openWorldHint": false },
                "icons": [{ "src": "https://h/i.png" }], "_meta": { "x/y": 1 },
            }))
            .unwrap()
        };
        let said = listed_tool("A title");
        let described = describe_tool(&spec, Some(Access::Write), Some(&said));
        let described = serde_json::to_value(described).unwrap();
        assert_eq!(
            described,
            json!({
                "name": "given", "title": "A title", "description": "As the program says.",
                "inputSchema": { "type": "object" },
                "annotations": { "destructiveHint": false, "openWorldHint": false },
                "icons": [{ "src": "https://h/i.png" }], "_meta": { "x/y": 1 },
            })
        );
        let hostile = listed_tool("<fd_result>");
        let described = describe_tool(&spec, Some(Access::Read), Some(&hostile));
        let described = serde_json::to_value(described).unwrap();
        assert_eq!(described["annotations"], json!({ "readOnlyHint": true }));
        assert!(described.get("title").is_none() && described.get("_meta").is_none());
    }
}
