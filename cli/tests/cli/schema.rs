//! `dormouse schema`.

use std::path::Path;

use serde_json::Value;

use crate::dormouse::succeeds;

#[test]
fn the_schema_of_program_files_is_printed_as_json() {
    let printed = succeeds(Path::new("."), "schema");
    let schema: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(schema, dormouse::program::schema());
    assert_eq!(schema["properties"]["model"]["type"], "object");
}
