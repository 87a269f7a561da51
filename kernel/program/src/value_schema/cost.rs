//! What a check costs, counted before the check.
//!
//! A step is a schema that is applied to a part of a value; a comparison with many values, as in a
//! long `enum`, counts as several. Schemas that refer to each other can
//! apply the same schema to the same part again and again, so that the number of steps grows
//! exponentially, as in `{"allOf": [A, A]}` with a similar `A`. The count here remembers what each
//! pair of schema and part costs, so that counting takes bounded time itself. In this file a *part*
//! is always a part of the value: the value, a property, an item, or what is within them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::subschemas::{Subschema, Target, nested_schemas, reference};
use super::{SchemaError, Violation, schema_error};

/// The most steps of a check. A step takes some 100 ns.
const MAX_STEPS: u64 = 300_000;
/// The most steps that one schema, with all that it refers to, may take on one and the same part.
const MAX_STEPS_OF_PART: u64 = 2_000;
/// The most steps of a check whose violations are then listed, since listing takes some
/// microseconds per step. A check that applies each schema about once to each part is listed
/// however many steps it takes.
const MAX_LISTED_STEPS: u64 = 10_000;
/// The parts of the values in `enum` and `const` whose comparison takes as long as a step.
const PARTS_PER_STEP: u64 = 64;
/// The bytes of a text whose comparison takes as long as that of one more part.
const BYTES_PER_PART: usize = 64;
/// The deepest nesting of steps. It bounds the stack.
const MAX_LEVELS: usize = 400;

/// Why a check is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooCostly {
    Steps,
    Levels,
}

/// What is affordable for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Affordable {
    /// Only whether the value is valid.
    Verdict,
    /// Also what is wrong, and where.
    Violations,
}

/// Checks that following references never returns to this schema on the same part of the value, and
/// takes at most [`MAX_STEPS_OF_PART`] steps.
pub(super) fn check_references(root: &Value, subschema: &Subschema<'_>) -> Result<(), SchemaError> {
    let refused = |why| match why {
        TooCostly::Levels => schema_error(
            &subschema.at,
            "the schema refers to itself without end",
            "Valid: a schema that refers to itself from a part that applies to a part of the \
             value, such as `properties` or `items`",
        ),
        TooCostly::Steps => schema_error(
            &subschema.at,
            "its references multiply: a value would be checked in too many steps",
            "Valid: a schema that names each alternative once",
        ),
    };
    let mut count = Count::new(root, MAX_STEPS_OF_PART);
    let counted = count.steps_of(subschema.fields, &Value::Null, 0);
    counted.map(drop).map_err(refused)
}

/// Counts the steps of the check of a value.
///
/// # Errors
/// The check would take too many steps or too much stack.
pub(super) fn affordable(root: &Value, value: &Value) -> Result<Affordable, Violation> {
    let mut count = Count::new(root, MAX_STEPS);
    let steps = count.steps(root, value, 0).map_err(|why| Violation {
        at: String::new(),
        message: match why {
            TooCostly::Steps => format!(
                "the value is too large for its schema: a check would take more than {MAX_STEPS} \
                 steps. Submit a smaller one, or one that is nested less"
            ),
            TooCostly::Levels => "the value is nested too deeply. Submit a flatter one".to_owned(),
        },
    })?;
    let can_be_listed = steps <= MAX_LISTED_STEPS.max(count.counted.saturating_mul(2));
    Ok(if can_be_listed {
        Affordable::Violations
    } else {
        Affordable::Verdict
    })
}

struct Count<'a> {
    root: &'a Value,
    /// Steps by schema and part. A schema is in `root`, so that its address identifies it.
    known: BTreeMap<(*const Map<String, Value>, *const Value), u64>,
    /// Steps that the comparison with the values of a schema takes, by schema.
    comparisons: BTreeMap<*const Map<String, Value>, u64>,
    /// Pairs of schema and part that were counted.
    counted: u64,
    max: u64,
}

impl<'a> Count<'a> {
    fn new(root: &'a Value, max: u64) -> Self {
        Self {
            root,
            known: BTreeMap::new(),
            comparisons: BTreeMap::new(),
            counted: 0,
            max,
        }
    }

    fn steps(&mut self, schema: &'a Value, value: &Value, level: usize) -> Result<u64, TooCostly> {
        match schema.as_object() {
            Some(fields) => self.steps_of(fields, value, level),
            None => Ok(1),
        }
    }

    fn steps_of(
        &mut self,
        fields: &'a Map<String, Value>,
        value: &Value,
        level: usize,
    ) -> Result<u64, TooCostly> {
        let key = (std::ptr::from_ref(fields), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        if level >= MAX_LEVELS {
            return Err(TooCostly::Levels);
        }
        self.counted += 1;
        if self.counted > self.max {
            return Err(TooCostly::Steps);
        }
        let comparison = self.comparison_steps(fields);
        let mut total = self.add(1, comparison)?;
        if let Some((_, Some(target))) = reference(self.root, fields) {
            let steps = self.steps(target, value, level + 1)?;
            total = self.add(total, steps)?;
        }
        for nested in nested_schemas(fields) {
            for part in targets(nested.target, value) {
                let steps = self.steps(nested.schema, part, level + 1)?;
                total = self.add(total, steps)?;
            }
        }
        // To learn which properties or items nobody evaluated, these keywords evaluate their
        // sibling keywords a second time.
        let repeats = ["unevaluatedProperties", "unevaluatedItems"];
        if repeats.iter().any(|keyword| fields.contains_key(*keyword)) {
            total = self.add(total, total)?;
        }
        self.known.insert(key, total);
        Ok(total)
    }

    /// The steps that a comparison with the values in `enum` and `const` takes, beyond the first.
    fn comparison_steps(&mut self, fields: &'a Map<String, Value>) -> u64 {
        let count = || {
            let values = ["enum", "const"]
                .into_iter()
                .filter_map(|key| fields.get(key));
            values.map(count_parts).sum::<u64>() / PARTS_PER_STEP
        };
        let key = std::ptr::from_ref(fields);
        *self.comparisons.entry(key).or_insert_with(count)
    }

    /// The sum of two numbers of steps, neither of which exceeds the maximum.
    fn add(&self, total: u64, steps: u64) -> Result<u64, TooCostly> {
        let sum = total.saturating_add(steps);
        if sum > self.max {
            return Err(TooCostly::Steps);
        }
        Ok(sum)
    }
}

/// The parts of a value of the schema that a comparison may look at.
fn count_parts(value: &Value) -> u64 {
    let within = match value {
        Value::Array(items) => items.iter().map(count_parts).sum(),
        Value::Object(fields) => fields.values().map(count_parts).sum(),
        Value::String(text) => (text.len() / BYTES_PER_PART) as u64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    within + 1
}

/// The parts of a value that a schema applies to. The name of a property has no [`Value`] of its
/// own: `null` stands for it, which costs the same.
fn targets<'a>(target: Target<'_>, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    let properties = || value.as_object().into_iter().flat_map(Map::values);
    let items = || value.as_array().into_iter().flatten();
    match target {
        Target::Nothing => Box::new(std::iter::empty()),
        Target::Same => Box::new(std::iter::once(value)),
        Target::Property(name) => Box::new(value.get(name).into_iter()),
        Target::EachProperty => Box::new(properties()),
        Target::Item(index) => Box::new(value.get(index).into_iter()),
        Target::EachItem => Box::new(items()),
        Target::EachName => Box::new(properties().map(|_| &Value::Null)),
    }
}
