//! The shape of JSON: keys, types and counts, so that a preview says what is in a large content.
//!
//! ```text
//! array of 1204 {id: number, name: string | null, tags: array of 0-9 string, owner?: {…}}
//! ```
//!
//! A key with `?` is not in every object. Work is one pass; memory and the length of the result are
//! bounded whatever the text contains.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Reader, Unreadable, pretty};

/// Keys of one object that are told apart; further ones are counted.
const MAX_KEYS: usize = 30;

/// Keys of all objects together that are told apart, which bounds the memory.
const MAX_ALL_KEYS: usize = 10_000;

/// Levels of objects and arrays that are inspected.
const MAX_DEPTH: usize = 5;

/// Characters of a key that are shown.
const MAX_KEY_CHARS: usize = 40;

/// Texts above this size are not inspected.
const MAX_BYTES: usize = 64 << 20;

impl Reader<'_> {
    /// The shape of a content that is JSON or JSON Lines, in at most about `max_chars` characters.
    /// `None` for other content, for content above 64 MiB, and for a single value that is neither
    /// an object nor an array. One pass at about 200 MB/s.
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn json_shape(&self, max_chars: usize) -> Result<Option<String>, Unreadable> {
        if self.is_binary()? || self.shown_bytes()? > MAX_BYTES {
            return Ok(None);
        }
        let beginning = self.slice(0..self.byte_at(256)?)?.text;
        if !pretty::may_be_json(&beginning) {
            return Ok(None);
        }
        let text = self.text()?;
        // The read quota counts parsing as eight passes over the text, like reformatting.
        self.charge(text.len().saturating_mul(8))?;
        Ok(shape_of(&text).map(|shape| shape.describe(max_chars)))
    }
}

/// The merged shape of all values of a text.
fn shape_of(text: &str) -> Option<Shape> {
    let mut shape = Shape::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut values = 0;
    let mut keys_left = MAX_ALL_KEYS;
    loop {
        let seed = ShapeSeed {
            shape: &mut shape,
            depth: 0,
            keys_left: &mut keys_left,
        };
        match seed.deserialize(&mut deserializer) {
            Ok(()) => values += 1,
            Err(error) if error.is_eof() && values > 0 && deserializer.end().is_ok() => break,
            Err(_) => return None,
        }
        if deserializer.end().is_ok() {
            break;
        }
    }
    shape.values = values;
    Some(shape)
}

/// What values at one place are.
#[derive(Debug, Default)]
struct Shape {
    /// Values of a text, if there are several.
    values: u64,
    numbers: u64,
    strings: u64,
    booleans: u64,
    nulls: u64,
    arrays: Option<Box<Arrays>>,
    objects: Option<Box<Objects>>,
}

#[derive(Debug)]
struct Arrays {
    min_len: u64,
    max_len: u64,
    item: Shape,
}

#[derive(Debug, Default)]
struct Objects {
    count: u64,
    /// Keys in the order of their first occurrence, how many objects have them, and their values.
    keys: Vec<(Box<str>, u64, Shape)>,
    /// Occurrences of further keys.
    other_keys: u64,
}

/// Adds a value to a shape.
struct ShapeSeed<'s> {
    shape: &'s mut Shape,
    depth: usize,
    /// How many further keys are told apart.
    keys_left: &'s mut usize,
}

impl<'de> DeserializeSeed<'de> for ShapeSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.shape.booleans += 1;
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.shape.numbers += 1;
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.shape.numbers += 1;
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.shape.numbers += 1;
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.shape.strings += 1;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.shape.nulls += 1;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        let mut item = match self.shape.arrays.as_mut() {
            Some(arrays) => std::mem::take(&mut arrays.item),
            None => Shape::default(),
        };
        let mut len = 0;
        while match depth <= MAX_DEPTH {
            true => {
                let seed = ShapeSeed {
                    shape: &mut item,
                    depth,
                    keys_left: &mut *self.keys_left,
                };
                items.next_element_seed(seed)?.is_some()
            }
            false => items.next_element::<IgnoredAny>()?.is_some(),
        } {
            len += 1;
        }
        let lens = self.shape.arrays.as_ref();
        let (min_len, max_len) = lens.map_or((len, len), |seen| {
            (seen.min_len.min(len), seen.max_len.max(len))
        });
        self.shape.arrays = Some(Box::new(Arrays {
            min_len,
            max_len,
            item,
        }));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        let objects = self.shape.objects.get_or_insert_default();
        objects.count += 1;
        while let Some(key) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            match objects.value_shape(&key, depth, self.keys_left) {
                Some(shape) => entries.next_value_seed(ShapeSeed {
                    shape,
                    depth,
                    keys_left: &mut *self.keys_left,
                })?,
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl Objects {
    /// The shape of the values of a key; `None` if they are not inspected.
    fn value_shape(
        &mut self,
        key: &str,
        depth: usize,
        keys_left: &mut usize,
    ) -> Option<&mut Shape> {
        let known = self.keys.iter().position(|(known, ..)| **known == *key);
        let at = match known {
            Some(at) => at,
            None if self.keys.len() < MAX_KEYS && depth <= MAX_DEPTH && *keys_left > 0 => {
                *keys_left -= 1;
                self.keys.push((key.into(), 0, Shape::default()));
                self.keys.len() - 1
            }
            None => {
                self.other_keys += 1;
                return None;
            }
        };
        let (_, count, shape) = &mut self.keys[at];
        *count += 1;
        Some(shape)
    }

    fn write(&self, out: &mut Limited) {
        out.push("{");
        for (index, (key, count, shape)) in self.keys.iter().enumerate() {
            if out.is_full() {
                out.ellipsis();
                break;
            }
            out.push(if index > 0 { ", " } else { "" });
            let shown = key.chars().take(MAX_KEY_CHARS);
            out.text
                .extend(shown.map(|c| if c.is_control() { ' ' } else { c }));
            out.push(if key.chars().nth(MAX_KEY_CHARS).is_some() {
                "…"
            } else {
                ""
            });
            out.push(if *count < self.count { "?: " } else { ": " });
            shape.write(out);
        }
        match (self.other_keys, self.count) {
            (0, _) => {}
            (more, 1) => out.push(&format!(", and {more} more keys")),
            _ if self.keys.is_empty() => out.push("…"),
            _ => out.push(", …"),
        }
        out.push("}");
    }
}

impl Shape {
    fn describe(&self, max_chars: usize) -> String {
        let mut out = Limited {
            text: String::new(),
            max_chars,
        };
        if self.values > 1 {
            out.push(&format!("{} values, each ", self.values));
        }
        self.write(&mut out);
        out.text
    }

    /// Writes the types, the most structured first.
    fn write(&self, out: &mut Limited) {
        let mut separator = "";
        if let Some(objects) = &self.objects {
            objects.write(out);
            separator = " | ";
        }
        if let Some(arrays) = &self.arrays {
            out.push(separator);
            arrays.write(out);
            separator = " | ";
        }
        let scalars = [
            ("string", self.strings),
            ("number", self.numbers),
            ("boolean", self.booleans),
            ("null", self.nulls),
        ];
        for (name, _) in scalars.into_iter().filter(|(_, count)| *count > 0) {
            out.push(separator);
            out.push(name);
            separator = " | ";
        }
    }
}

impl Arrays {
    fn write(&self, out: &mut Limited) {
        out.push("array of ");
        // Writing to a string cannot fail.
        let _ = match (self.min_len, self.max_len) {
            (min, max) if min == max => write!(out.text, "{min}"),
            (min, max) => write!(out.text, "{min}-{max}"),
        };
        if out.is_full() {
            return out.ellipsis();
        }
        let before = out.text.len();
        out.push(" ");
        self.item.write(out);
        if out.text.len() == before + 1 {
            out.text.truncate(before);
        }
    }
}

/// A text that is not extended beyond a limit, except to close brackets.
struct Limited {
    text: String,
    max_chars: usize,
}

impl Limited {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn is_full(&self) -> bool {
        self.text.len() >= self.max_chars
    }

    fn ellipsis(&mut self) {
        if !self.text.ends_with('…') {
            self.text.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_ALL_KEYS, Shape, shape_of};
    use crate::Content;

    fn shape(text: &str, max_chars: usize) -> Option<String> {
        let content = Content::new(text.to_owned());
        content.unlimited_reader().json_shape(max_chars).unwrap()
    }

    #[test]
    fn keys_types_and_counts_are_stated() {
        let cases = [
            (
                r#"{"a":1.0,"b":[10,20]}"#,
                "{a: number, b: array of 2 number}",
            ),
            (
                r#"[{"id":1,"n":"x","t":[]},{"id":2,"n":null,"t":["a","b"],"o":{"deep":true}}]"#,
                "array of 2 {id: number, n: string | null, t: array of 0-2 string, o?: {deep: boolean}}",
            ),
            ("[]", "array of 0"),
            ("{}", "{}"),
            (
                "[1,\"a\",[2],{\"k\":3}]",
                "array of 4 {k: number} | array of 1 number | string | number",
            ),
            (
                "{\"a\":1}\n{\"a\":2,\"b\":1}\n",
                "2 values, each {a: number, b?: number}",
            ),
            (
                "[[[[[[7]]]]]]",
                "array of 1 array of 1 array of 1 array of 1 array of 1 array of 1",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(shape(text, 1000).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "7",
            "\"x\"",
            "[prose]",
            "{\"a\":1} tail",
            "[1,",
            "{a: 1}",
        ] {
            assert_eq!(shape(text, 1000), None, "{text}");
        }
    }

    #[test]
    fn the_shape_is_bounded_whatever_the_text_contains() {
        let keys: Vec<_> = (0..5000).map(|n| format!("\"key{n}\":{n}")).collect();
        let map = format!("{{{}}}", keys.join(","));
        let shown = shape(&map, 1000).unwrap();
        assert!(shown.starts_with("{key0: number, ") && shown.contains("and 4970 more keys}"));
        let nested = keys.iter().take(30).fold("1".to_owned(), |inner, key| {
            let name = key.split(':').next().unwrap();
            format!("{{{name}:{inner}}}")
        });
        assert!(shape(&nested, 1000).unwrap().len() < 200);
        let wide = format!("[{}]", vec![map; 20].join(","));
        assert!(shape(&wide, 100).unwrap().len() < 200);
        let long_key = format!("{{\"{}\":1}}", "k".repeat(100_000));
        assert!(shape(&long_key, 1000).unwrap().len() < 100);
        assert_eq!(shape(&"[".repeat(10_000), 1000), None);
    }

    /// 20 keys at each of 4 levels are 168,420 keys.
    #[test]
    fn the_keys_of_all_levels_together_are_bounded() {
        fn nested(levels: usize) -> String {
            let inner = match levels {
                0 => return "1".to_owned(),
                _ => nested(levels - 1),
            };
            let entries: Vec<_> = (0..20).map(|key| format!("\"k{key}\":{inner}")).collect();
            format!("{{{}}}", entries.join(","))
        }
        fn count(shape: &Shape) -> usize {
            let objects = shape.objects.iter();
            let keys = objects.flat_map(|objects| &objects.keys);
            keys.map(|(_, _, value)| 1 + count(value)).sum()
        }
        assert_eq!(count(&shape_of(&nested(4)).unwrap()), MAX_ALL_KEYS);
        assert_eq!(count(&shape_of(&nested(2)).unwrap()), 420);
    }
}
