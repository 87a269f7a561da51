//! A serializer adapter that masks every text of a record. Since it sees all texts, no field can be
//! forgotten.
//!
//! A mask must preserve the length of a text in bytes, since other fields count its bytes. Numbers,
//! hashes and variant names pass unchanged.

use std::collections::BTreeSet;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::codec;

/// Returns the masked text; `None` leaves it unchanged.
pub type Mask<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A value that is serialized with masked texts.
pub struct Masked<'a, T: ?Sized> {
    value: &'a T,
    mask: &'a Mask<'a>,
}

impl<'a, T: ?Sized> Masked<'a, T> {
    /// Wraps `value`, so that `mask` is applied to each of its texts.
    pub fn new(value: &'a T, mask: &'a Mask<'a>) -> Self {
        Self { value, mask }
    }
}

impl<T: Serialize + ?Sized> Serialize for Masked<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(MaskingSerializer {
            inner: serializer,
            mask: self.mask,
        })
    }
}

/// A serializer, or a part of one, that masks texts.
struct MaskingSerializer<'a, S> {
    inner: S,
    mask: &'a Mask<'a>,
}

macro_rules! forward_unchanged {
    ($($name:ident($type:ty))*) => {
        $(fn $name(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$name(value)
        })*
    };
}

impl<'a, S: Serializer> Serializer for MaskingSerializer<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = MaskingSerializer<'a, S::SerializeSeq>;
    type SerializeTuple = MaskingSerializer<'a, S::SerializeTuple>;
    type SerializeTupleStruct = MaskingSerializer<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = MaskingSerializer<'a, S::SerializeTupleVariant>;
    type SerializeMap = MaskingMap<'a, S::SerializeMap>;
    type SerializeStruct = MaskingSerializer<'a, S::SerializeStruct>;
    type SerializeStructVariant = MaskingSerializer<'a, S::SerializeStructVariant>;

    forward_unchanged! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_f32(f32) serialize_f64(f64) serialize_char(char) serialize_bytes(&[u8]) serialize_unit_struct(&'static str)
    }

    fn serialize_str(self, text: &str) -> Result<S::Ok, S::Error> {
        match (self.mask)(text) {
            Some(masked) => self.inner.serialize_str(&masked),
            None => self.inner.serialize_str(text),
        }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Masked::new(value, self.mask))
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        at: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, at, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner
            .serialize_newtype_struct(name, &Masked::new(value, self.mask))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        at: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner
            .serialize_newtype_variant(name, at, variant, &Masked::new(value, self.mask))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(MaskingSerializer {
            inner: self.inner.serialize_seq(len)?,
            mask: self.mask,
        })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(MaskingSerializer {
            inner: self.inner.serialize_tuple(len)?,
            mask: self.mask,
        })
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        Ok(MaskingSerializer {
            inner: self.inner.serialize_tuple_struct(name, len)?,
            mask: self.mask,
        })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        at: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Ok(MaskingSerializer {
            inner: self.inner.serialize_tuple_variant(name, at, variant, len)?,
            mask: self.mask,
        })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(MaskingMap {
            inner: self.inner.serialize_map(len)?,
            mask: self.mask,
            keys: BTreeSet::new(),
        })
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        Ok(MaskingSerializer {
            inner: self.inner.serialize_struct(name, len)?,
            mask: self.mask,
        })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        at: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Ok(MaskingSerializer {
            inner: self
                .inner
                .serialize_struct_variant(name, at, variant, len)?,
            mask: self.mask,
        })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! mask_parts {
    ($($part:ident::$add:ident($($key:ident)?))*) => {
        $(impl<S: $part> $part for MaskingSerializer<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $add<T: Serialize + ?Sized>(&mut self, $($key: &'static str,)? value: &T) -> Result<(), S::Error> {
                self.inner.$add($($key,)? &Masked::new(value, self.mask))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

mask_parts! {
    SerializeSeq::serialize_element()
    SerializeTuple::serialize_element()
    SerializeTupleStruct::serialize_field()
    SerializeTupleVariant::serialize_field()
    SerializeStruct::serialize_field(key)
    SerializeStructVariant::serialize_field(key)
}

/// A map serializer that refuses equal masked keys, since one of their values would be lost.
struct MaskingMap<'a, S> {
    inner: S,
    mask: &'a Mask<'a>,
    keys: BTreeSet<Vec<u8>>,
}

impl<S: SerializeMap> SerializeMap for MaskingMap<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        let masked = Masked::new(key, self.mask);
        if !self
            .keys
            .insert(codec::encode(&masked).map_err(S::Error::custom)?)
        {
            return Err(S::Error::custom(
                "two names are masked alike: change the mask so that they differ",
            ));
        }
        self.inner.serialize_key(&masked)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.inner.serialize_value(&Masked::new(value, self.mask))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::record::codec;

    #[derive(serde::Serialize)]
    enum Shape {
        Plain,
        One(Arc<str>),
        Two(u8, String),
        Named { text: Option<String>, number: u64 },
    }

    #[derive(serde::Serialize)]
    struct Wrapped(Vec<String>);

    #[test]
    fn keys_that_become_equal_when_masked_are_refused() {
        let record = BTreeMap::from([("key-1", 1), ("key-2", 2)]);
        let mask = |text: &str| Some(text.replace(['1', '2'], "x"));
        let refused = codec::encode(&Masked::new(&record, &mask))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("masked alike"), "{refused}");
        assert!(codec::encode(&Masked::new(&record, &|_: &str| None)).is_ok());
    }

    #[test]
    fn all_texts_are_masked_and_nothing_else_is() {
        let upper = |text: &str| (text != "two").then(|| text.to_uppercase());
        let record = |text: &dyn Fn(&str) -> String| {
            (
                vec![
                    Shape::Plain,
                    Shape::One(text("one").into()),
                    Shape::Two(2, text("two")),
                ],
                Shape::Named {
                    text: Some(text("named")),
                    number: 7,
                },
                Wrapped(vec![text("in a list")]),
                BTreeMap::from([(text("key"), [text("value")])]),
                ([b'a'; 4], 'c', 1.5_f64, false),
            )
        };
        let plain = record(&|text| text.to_owned());
        let masked = codec::encode(&Masked::new(&plain, &upper)).unwrap();
        assert_eq!(
            masked,
            codec::encode(&record(&|text| if text == "two" {
                text.into()
            } else {
                text.to_uppercase()
            }))
            .unwrap()
        );
    }
}
