use super::*;

fn parsed(schema: Value) -> ValueSchema {
    ValueSchema::parse(schema.clone()).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn violations(schema: &ValueSchema, value: &Value) -> Vec<String> {
    let found = schema.check(value).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn violations_are_reported_with_their_place_and_without_the_value() {
    let schema = parsed(json!({
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
    }));
    assert_eq!(
        schema.check(&json!({"name": "x", "day": "2024-02-29", "tags": ["a"]})),
        Ok(())
    );
    let cases = [
        (json!({}), "\"name\" is a required property"),
        (json!({"name": 7}), "/name: value is not of type \"string\""),
        (
            json!({"name": "secret"}),
            "/name: value is longer than 5 characters",
        ),
        (
            json!({"name": "x", "day": "2023-02-29"}),
            "/day: value is not a \"date\"",
        ),
        (
            json!({"name": "x", "tags": ["a", "c"]}),
            "/tags/1: value is not one of \"a\" or \"b\"",
        ),
        (json!({"name": "x", "other": 1}), "'other' was unexpected"),
        (json!([]), "value is not of type \"object\""),
    ];
    for (value, expected) in cases {
        let found = violations(&schema, &value);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{value}: {found:?}"
        );
    }
    let many = json!({"name": "x", "tags": vec!["c"; 100]});
    assert_eq!(violations(&schema, &many).len(), MAX_VIOLATIONS);
}

#[test]
fn bad_schemas_are_refused_with_the_place_and_what_is_valid() {
    let long = "x".repeat(MAX_SCHEMA_BYTES);
    let cases = [
        (json!(true), "", "not an object"),
        (
            json!({"description": long}),
            "",
            "more than the maximum of 65536",
        ),
        (
            json!({"properties": {"a/b": {"type": "strin"}}}),
            "/properties/a~1b/type",
            "boolean, integer",
        ),
        (
            json!({"items": {"type": ["null", 3]}}),
            "/items/type",
            "3 is no type",
        ),
        (json!({"minimum": "3"}), "/minimum", "\"3\" is not of type"),
        (
            json!({"$ref": "https://example.com/s.json"}),
            "/$ref",
            "Nothing is read from elsewhere",
        ),
        (
            json!({"anyOf": [{"$ref": "file:///etc/passwd"}]}),
            "/anyOf/0/$ref",
            "Nothing is read",
        ),
        (
            json!({"$ref": "#/$defs/none"}),
            "/$ref",
            "names no part of this schema",
        ),
        (
            json!({"$ref": "#/x", "x": {"$ref": "other.json"}}),
            "/x/$ref",
            "names no part",
        ),
        (
            json!({"items": {"$id": "a.json"}}),
            "/items",
            "`$id` is not supported",
        ),
        (
            json!({"$dynamicRef": "#a"}),
            "",
            "`$dynamicRef` is not supported",
        ),
        (
            json!({"$schema": "https://example.com/mine"}),
            "",
            "no known version",
        ),
        (json!({"pattern": "(a+)+$(?=x)"}), "/pattern", "regex"),
        (json!({"pattern": "(a{1000}){1000}"}), "/pattern", "regex"),
    ];
    for (schema, at, words) in cases {
        let error = ValueSchema::parse(schema.clone()).expect_err(&schema.to_string());
        let text = error.to_string();
        assert!(
            error.at == at && text.contains(words),
            "{schema}: {error:?}"
        );
        assert!(
            text.contains("alid") || text.contains("Leave out") || text.contains("$defs"),
            "{text}"
        );
    }
}

#[test]
fn a_schema_may_have_an_address_of_its_own_and_names_like_keywords() {
    let schema = parsed(json!({
        "$id": "https://example.com/mine.json",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"$id": {"type": "string"}, "$ref": {"type": "integer"}},
        "const": {"$ref": 1, "$id": "x"},
    }));
    assert_eq!(schema.check(&json!({"$ref": 1, "$id": "x"})), Ok(()));
    assert_eq!(violations(&schema, &json!({"$ref": "a"})).len(), 2);
}

/// What hostile schemas cost is counted before they are compiled or applied.
#[test]
fn schemas_that_multiply_or_never_end_are_refused() {
    let doubling = |level: usize| match level {
        30 => json!({"type": "integer"}),
        _ => {
            let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
            json!({"allOf": [next, next]})
        }
    };
    let defs: Map<_, _> = (0..=30)
        .map(|level| (format!("a{level}"), doubling(level)))
        .collect();
    let doubled = json!({"$ref": "#/$defs/a0", "$defs": defs});
    let chained: Map<_, _> = (0..1000)
        .map(|level| {
            (
                format!("a{level}"),
                json!({"$ref": format!("#/$defs/a{}", level + 1)}),
            )
        })
        .chain([("a1000".to_owned(), json!({"type": "null"}))])
        .collect();
    let unevaluated: Map<_, _> = (0..100)
        .map(|level| {
            let next = format!("#/$defs/a{}", level + 1);
            let schema = json!({"$ref": next, "unevaluatedProperties": false});
            (format!("a{level}"), schema)
        })
        .chain([("a100".to_owned(), json!({"type": "object"}))])
        .collect();
    let doubling_parts = |level: usize| match level {
        30 => json!({"type": "integer"}),
        _ => {
            let next = json!({"properties": {"p": {"$ref": format!("#/$defs/a{}", level + 1)}}});
            json!({"allOf": [next, next]})
        }
    };
    let defs: Map<_, _> = (0..=30)
        .map(|level| (format!("a{level}"), doubling_parts(level)))
        .collect();
    let by_parts = parsed(json!({"$ref": "#/$defs/a0", "$defs": defs}));
    let nested = (0..30).fold(json!(1), |inner, _| json!({"p": inner}));
    assert!(violations(&by_parts, &nested)[0].contains("too large for its schema"));
    let cases = [
        (json!({"$ref": "#"}), "without end"),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"not": {"$ref": "#/$defs/b"}}}}),
            "without end",
        ),
        (doubled, "multiply"),
        (
            json!({"$ref": "#/$defs/a0", "$defs": unevaluated}),
            "multiply",
        ),
        (
            json!({"$ref": "#/$defs/a0", "$defs": chained}),
            "without end",
        ),
    ];
    for (schema, words) in cases {
        let error = ValueSchema::parse(schema).unwrap_err();
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn values_that_would_be_checked_for_too_long_or_too_deeply_are_refused() {
    // Each level of such a value is checked by both alternatives.
    let expression = |op: &str| {
        json!({
            "type": "object", "required": ["op"],
            "properties": {"left": {"$ref": "#"}, "op": {"const": op}},
        })
    };
    let schema = parsed(json!({"oneOf": [expression("+"), expression("-"), {"type": "integer"}]}));
    let with_leaf = |levels: usize, leaf: Value| {
        (0..levels).fold(leaf, |inner, _| json!({"left": inner, "op": "-"}))
    };
    assert_eq!(schema.check(&with_leaf(8, json!(1))), Ok(()));
    assert!(violations(&schema, &with_leaf(5, json!("x")))[0].contains("oneOf"));
    assert!(violations(&schema, &with_leaf(12, json!("x")))[0].contains("Where cannot be said"));
    assert!(violations(&schema, &with_leaf(60, json!(1)))[0].contains("too large for its schema"));

    let list = parsed(json!({"items": {"$ref": "#"}}));
    let deep = |levels: usize| (0..levels).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(list.check(&deep(120)), Ok(()));
    assert!(violations(&list, &deep(500))[0].contains("nested too deeply"));

    let wide = parsed(json!({"items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}));
    assert_eq!(wide.check(&json!(vec![7; 20_000])), Ok(()));
    let mut one_wrong = json!(vec![7; 20_000]);
    one_wrong[19_999] = json!(null);
    assert!(violations(&wide, &one_wrong)[0].starts_with("/19999: "));
    assert!(violations(&wide, &json!(vec![7; 200_000]))[0].contains("too large"));

    // Each item is compared with each value.
    let words = |count: usize| (0..count).map(|word| json!(word)).collect::<Vec<_>>();
    let long_list = parsed(json!({"items": {"enum": words(5_000)}}));
    assert_eq!(long_list.check(&json!(vec![7; 1_000])), Ok(()));
    assert!(violations(&long_list, &json!(vec![7; 10_000]))[0].contains("too large"));
    let short_list = parsed(json!({"items": {"enum": words(50)}}));
    assert_eq!(short_list.check(&json!(vec![7; 10_000])), Ok(()));
}

#[test]
fn the_arguments_of_a_tool_contain_the_schema_and_its_references_hold() {
    let tree = parsed(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object", "required": ["size"], "additionalProperties": false,
        "properties": {
            "size": {"$ref": "#/$defs/size"},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "twin": {"$ref": "#/properties/size"},
            "default": {"$ref": "#/properties/size"},
        },
        "default": {"$ref": "#"},
        "$defs": {"size": {"type": "integer", "minimum": 1}},
    }));
    let parameters = tree.to_parameters();
    assert_eq!(parameters["$defs"]["size"]["minimum"], 1);
    let value = &parameters["properties"]["value"];
    assert_eq!(
        value["properties"]["children"]["items"]["$ref"],
        "#/properties/value"
    );
    assert_eq!(
        value["properties"]["default"]["$ref"],
        "#/properties/value/properties/size"
    );
    assert_eq!(value["default"]["$ref"], "#", "a plain value stays");
    let arguments = parsed(parameters);
    let good = json!({"value": {"size": 1, "children": [{"size": 2, "twin": 3}]}});
    assert_eq!(arguments.check(&good), Ok(()));
    for (wrong, at) in [
        (
            json!({"value": {"size": 1, "children": [{"size": 0}]}}),
            "/value/children/0/size",
        ),
        (json!({"value": {"size": 1, "twin": "x"}}), "/value/twin"),
        (json!({"size": 1}), ""),
    ] {
        assert_eq!(arguments.check(&wrong).unwrap_err()[0].at, at, "{wrong}");
    }
}
