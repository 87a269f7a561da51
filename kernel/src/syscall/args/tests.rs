use super::*;

const PARAMETERS: [Parameter; 4] = [
    Parameter::text("fd", "Which"),
    Parameter::integer("page", "A page")
        .also(&["sheet"])
        .suggested_for(&["leaf"])
        .hinting(" Everything is read_all."),
    Parameter::flag("read_all", "All"),
    Parameter::range("part").hidden(),
];

fn parse(json: &str) -> Result<Args, FdError> {
    Args::parse_with("t", &PARAMETERS, OfferedParameters::ALL, json)
}

#[test]
fn quoted_integers_and_flags_are_accepted() {
    let integers = [
        ("2", 2),
        ("\"2\"", 2),
        ("-1", -1),
        ("\"-1\"", -1),
        ("2.0", 2),
        ("1e3", 1000),
        ("100000000000000000000", i64::MAX),
        ("\"100000000000000000000\"", i64::MAX),
        ("\"-100000000000000000000\"", i64::MIN),
    ];
    for (json, number) in integers {
        let args = parse(&format!(r#"{{"fd": "fd:1", "page": {json}}}"#)).unwrap();
        assert_eq!(args.integer("page"), Some(number), "{json}");
    }
    for (json, flag) in [
        ("true", true),
        ("\"true\"", true),
        ("false", false),
        ("\"false\"", false),
        ("\"True\"", true),
        ("\"FALSE\"", false),
    ] {
        let args = parse(&format!(r#"{{"fd": "fd:1", "read_all": {json}}}"#)).unwrap();
        assert_eq!(args.flag("read_all"), Some(flag), "{json}");
    }
}

#[test]
fn an_invalid_argument_is_an_error_that_names_it() {
    let cases = [
        ("", None, "not JSON"),
        ("[]", None, "must be a JSON object"),
        (r#"{"fd": 1}"#, Some("1"), "'fd' must be a string, not 1"),
        (
            r#"{"fd": "fd:1", "page": "two"}"#,
            Some("fd:1"),
            "'page' must be an integer, not \"two\"",
        ),
        (
            r#"{"fd": "fd:1", "page": "+2"}"#,
            Some("fd:1"),
            "'page' must be an integer",
        ),
        (
            r#"{"fd": "fd:1", "page": ""}"#,
            Some("fd:1"),
            "'page' must be an integer",
        ),
        (
            r#"{"fd": "fd:1", "page": "-"}"#,
            Some("fd:1"),
            "'page' must be an integer",
        ),
        (
            r#"{"fd": "fd:1", "page": 1.5}"#,
            Some("fd:1"),
            "'page' must be an integer, not 1.5",
        ),
        (
            r#"{"fd": "fd:1", "page": true}"#,
            Some("fd:1"),
            "'page' must be an integer, not true",
        ),
        (
            r#"{"fd": "fd:1", "read_all": "yes"}"#,
            Some("fd:1"),
            "'read_all' must be true or false",
        ),
        (
            r#"{"fd": "fd:1", "read_all": 1}"#,
            Some("fd:1"),
            "'read_all' must be true or false",
        ),
        (
            r#"{"fd": "fd:1", "pages": 1}"#,
            Some("fd:1"),
            "Did you mean 'page'? t accepts: fd, page, read_all.",
        ),
        (
            r#"{"fd": "fd:1", "zzz": 1}"#,
            Some("fd:1"),
            "Unknown parameter 'zzz'. t accepts:",
        ),
        (
            r#"{"fd": "fd:1", "zzz": 1, "pages": null}"#,
            Some("fd:1"),
            "'zzz'. Unknown parameter 'pages'. Did you mean 'page'? t accepts:",
        ),
        (
            r#"{"fd": "fd:1", "sheet": 2, "page": 1}"#,
            Some("fd:1"),
            "'page' is given twice, under two names",
        ),
        (
            r#"{"fd": "fd:1", "leaf": 2}"#,
            Some("fd:1"),
            "Unknown parameter 'leaf'. Did you mean 'page'?",
        ),
        (
            r#"{"fd": "fd:1", "page": "all"}"#,
            Some("fd:1"),
            "not \"all\". Everything is read_all.",
        ),
        (
            r#"{"fd": "fd:1", "part": "x-2"}"#,
            Some("fd:1"),
            "'part' must be a range, such as \"10-40\", not \"x-2\"",
        ),
    ];
    for (json, fd, message) in cases {
        let error = parse(json).unwrap_err();
        assert_eq!(
            (error.kind, error.fd.as_deref()),
            (FdErrorKind::InvalidParameter, fd),
            "{json}"
        );
        assert!(error.message.contains(message), "{json}: {}", error.message);
    }
}

#[test]
fn a_null_is_an_absent_parameter() {
    let args = parse(r#"{"fd": null, "page": null, "read_all": null}"#).unwrap();
    assert!(!args.contains("page") && args.flag("read_all").is_none());
    assert!(args.fd().unwrap_err().message.contains("'fd' is missing"));
}

#[test]
fn a_parameter_is_found_under_its_other_names_and_spellings() {
    for (json, page) in [
        (r#"{"fd": "fd:1", "sheet": 2}"#, 2),
        (r#"{"fd": "fd:1", "Page": "2"}"#, 2),
        (r#"{"fd": "fd:1", "page": 2, "sheet": 2}"#, 2),
        (r#"{"fd": "fd:1", "page": 2, "sheet": null}"#, 2),
    ] {
        assert_eq!(parse(json).unwrap().integer("page"), Some(page), "{json}");
    }
    for spelling in ["readAll", "read-all", "READ_ALL"] {
        let json = format!(r#"{{"fd": "fd:1", "{spelling}": true}}"#);
        assert_eq!(parse(&json).unwrap().flag("read_all"), Some(true), "{json}");
    }
}

#[test]
fn a_range_is_a_text_a_list_or_a_number() {
    for (json, range) in [
        ("\"10-40\"", (10, Some(40))),
        ("\"10 - 40\"", (10, Some(40))),
        ("\"10:40\"", (10, Some(40))),
        ("\"10-\"", (10, None)),
        ("\"10\"", (10, Some(10))),
        ("10", (10, Some(10))),
        ("[10, \"40\"]", (10, Some(40))),
        ("[10, -1]", (10, None)),
        ("[10]", (10, None)),
        ("\"[10, 40]\"", (10, Some(40))),
    ] {
        let args = parse(&format!(r#"{{"fd": "fd:1", "part": {json}}}"#)).unwrap();
        assert_eq!(args.range("part"), Some(range), "{json}");
    }
    for json in ["\"-5\"", "[]", "[1, 2, 3]", "\"\"", "true", "\"a-b\""] {
        assert!(parse(&format!(r#"{{"part": {json}}}"#)).is_err(), "{json}");
    }
}

#[test]
fn a_missing_parameter_is_reported_with_the_accepted_ones() {
    let args = parse("{}").unwrap();
    let message = "Parameter 'fd' is missing: the descriptor, such as \"fd:1\". t accepts: fd, \
         page, read_all.";
    assert_eq!(args.fd().unwrap_err().message, message);
    let args = parse(r#"{"fd": "fd:1"}"#).unwrap();
    assert_eq!(args.fd().unwrap(), "fd:1");
    assert!(
        args.required_text("page", "the page")
            .unwrap_err()
            .message
            .starts_with("Parameter 'page' is missing")
    );
}

#[test]
fn a_label_is_short_and_has_no_control_characters() {
    let label = |text: &str| {
        let args = parse(&serde_json::json!({ "fd": text }).to_string()).unwrap();
        args.label("fd", "a name")
            .map(str::to_owned)
            .map_err(|error| error.message)
    };
    for text in ["a", "error logs", "é😀", &"é".repeat(64)] {
        assert_eq!(label(text), Ok(text.to_owned()));
    }
    let cases = [
        ("", "'fd' is missing: its text is empty. Give a name."),
        (&"é".repeat(65), "has 65 characters"),
        ("a\nb", "holds a control character"),
        (" a", "white space"),
        ("a\u{a0}", "white space"),
    ];
    for (text, message) in cases {
        assert!(label(text).unwrap_err().contains(message), "{text:?}");
    }
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let json = format!(r#"{{"fd": {}}}"#, "[".repeat(100_000));
    assert_eq!(
        parse(&json).unwrap_err().kind,
        FdErrorKind::InvalidParameter
    );
}

/// Rules about arguments, and the fence, see every accepted spelling of a call as one.
#[test]
fn each_accepted_spelling_of_a_call_has_one_canonical_form() {
    let cases = [
        (
            "fd_to_file",
            r#"{"fd": "fd:1", "path": "/etc/x"}"#,
            r#"{"fd":"fd:1","file_path":"/etc/x"}"#,
        ),
        (
            "fd_to_file",
            r#"{"descriptor": "fd:1", "outputFile": "a", "overwrite": "False", "page": null}"#,
            r#"{"exist_ok":false,"fd":"fd:1","file_path":"a"}"#,
        ),
        (
            "read_fd",
            r#"{"fd": 1, "page": "2", "lines": [10, 40]}"#,
            r#"{"fd":"1","lines":"10-40","page":2}"#,
        ),
        // What the tool refuses stays as it is.
        (
            "read_fd",
            r#"{"page": "two", "colour": "red"}"#,
            r#"{"colour":"red","page":"two"}"#,
        ),
    ];
    for (tool, args, expected) in cases {
        let tool = TOOL_SET.find(tool).unwrap();
        let args: Map<String, Value> = serde_json::from_str(args).unwrap();
        let expected: Map<String, Value> = serde_json::from_str(expected).unwrap();
        assert_eq!(tool.canonical_arguments(&args), expected, "{args:?}");
    }
}
