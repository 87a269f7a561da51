//! A serde deserializer for bincode's format that trusts no length in its input.
//!
//! * A length that exceeds the remaining bytes is refused, since each element takes at least one
//!   byte.
//! * The memory that a list reserves in advance is bounded by the remaining bytes.
//! * Texts and bytes are borrowed from the payload, so that each is copied once, at its real
//!   length.
//! * The memory of decoded values is charged to an [`Allowance`].
//!
//! Each value is charged exactly once. Its slot, the place in a list or struct that holds it, is
//! charged before the value is read. A value that fits its slot is inline and costs nothing more; a
//! larger one must be boxed, and the box is charged.

use bincode::de::read::Reader;
use bincode::de::{Decode, Decoder, DecoderImpl};
use bincode::error::DecodeError;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::allowance::Allowance;
use super::{ADDED_FIELDS, BincodeConfig, CodecError, bincode_config, fields_in_version};

/// Overhead of an allocation: the allocator's header and the counters of an `Arc`.
const ALLOCATION_BYTES: usize = 24;
/// A list reserves room for at most one element per this many remaining bytes.
const INPUT_BYTES_PER_RESERVED_ELEMENT: usize = 16;
/// Maximum number of elements that a list reserves room for at once.
const MAX_RESERVED: usize = 1 << 16;
/// Number of elements that a list may always reserve room for. A growing vector starts with as
/// many.
const MIN_RESERVED: usize = 4;
/// Maximum number of bytes that serde reserves for a vector at once, whatever the size hint says.
const MAX_SERDE_RESERVED_BYTES: usize = 1 << 20;

/// A record that is being decoded.
pub(super) struct RecordDeserializer<'de, 'a> {
    /// Version of the encoding.
    version: u8,
    decoder: DecoderImpl<Remaining<'de>, BincodeConfig, ()>,
    allowance: &'a mut Allowance,
    /// Size of the slot for the next value, which is charged already.
    slot_bytes: usize,
}

impl<'de, 'a> RecordDeserializer<'de, 'a> {
    /// A deserializer for a value that is stored in a slot of this size.
    pub(super) fn new(
        version: u8,
        bytes: &'de [u8],
        allowance: &'a mut Allowance,
        slot_bytes: usize,
    ) -> Self {
        Self {
            version,
            decoder: DecoderImpl::new(Remaining(bytes), bincode_config(), ()),
            allowance,
            slot_bytes,
        }
    }

    /// Number of bytes that are not read yet.
    pub(super) fn bytes_left(&mut self) -> usize {
        self.decoder.reader().0.len()
    }

    fn read_number<T: Decode<()>>(&mut self) -> Result<T, CodecError> {
        T::decode(&mut self.decoder).map_err(|error| CodecError::Decode(error.to_string()))
    }

    /// Reads a length and checks it against the remaining bytes.
    fn read_length(&mut self) -> Result<usize, CodecError> {
        let claimed = self.read_number::<u64>()?;
        let left = self.bytes_left();
        let length = usize::try_from(claimed)
            .ok()
            .filter(|length| *length <= left);
        length.ok_or(CodecError::Claim {
            claimed,
            left: left as u64,
        })
    }

    /// Reads bytes preceded by their length, and charges one copy of them.
    fn read_bytes(&mut self) -> Result<&'de [u8], CodecError> {
        let length = self.read_length()?;
        self.charge(length + ALLOCATION_BYTES)?;
        let (bytes, rest) = self.decoder.reader().0.split_at(length);
        self.decoder.reader().0 = rest;
        Ok(bytes)
    }

    fn read_text(&mut self) -> Result<&'de str, CodecError> {
        std::str::from_utf8(self.read_bytes()?).map_err(CodecError::custom)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), CodecError> {
        self.allowance.charge(bytes as u64)
    }

    /// Starts a compound value of `size` bytes. If its slot is smaller, the value is boxed, and the
    /// box is charged.
    fn start_value(&mut self, size: usize) -> Result<(), CodecError> {
        if size > self.slot_bytes {
            self.charge(size + ALLOCATION_BYTES)?;
            self.slot_bytes = size;
        }
        Ok(())
    }

    /// Reads a part of a value, which has a slot of its own size.
    fn read_part<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, CodecError> {
        let outer = std::mem::replace(&mut self.slot_bytes, size_of::<S::Value>());
        let value = seed.deserialize(&mut *self);
        self.slot_bytes = outer;
        value
    }

    fn read_fields<V: Visitor<'de>>(
        &mut self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.start_value(size_of::<V::Value>())?;
        visitor.visit_seq(Fields {
            deserializer: self,
            count,
        })
    }

    fn start_elements(&mut self) -> Result<Elements<'_, 'de, 'a>, CodecError> {
        let count = self.read_length()?;
        if count > 0 {
            self.charge(ALLOCATION_BYTES)?;
        }
        let reserved = count
            .min(MAX_RESERVED)
            .min((self.bytes_left() / INPUT_BYTES_PER_RESERVED_ELEMENT).max(MIN_RESERVED));
        Ok(Elements {
            deserializer: self,
            total: count,
            count,
            reserved,
        })
    }
}

/// The bytes that are not read yet.
struct Remaining<'de>(&'de [u8]);

impl Reader for Remaining<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), DecodeError> {
        let additional = bytes.len().saturating_sub(self.0.len());
        let (read, rest) = self
            .0
            .split_at_checked(bytes.len())
            .ok_or(DecodeError::UnexpectedEnd { additional })?;
        bytes.copy_from_slice(read);
        self.0 = rest;
        Ok(())
    }

    fn peek_read(&mut self, count: usize) -> Option<&[u8]> {
        self.0.get(..count)
    }

    fn consume(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident)*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
            visitor.$visit(self.read_number()?)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut RecordDeserializer<'de, '_> {
    type Error = CodecError;

    numbers! {
        deserialize_bool visit_bool deserialize_char visit_char deserialize_f32 visit_f32 deserialize_f64 visit_f64
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_i128 visit_i128 deserialize_u128 visit_u128
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_str(self.read_text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_str(self.read_text()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_bytes(self.read_bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_bytes(self.read_bytes()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.read_number::<u8>()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            other => Err(CodecError::Decode(format!(
                "{other} is not the tag of an option"
            ))),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.start_value(size_of::<V::Value>())?;
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(self.start_elements()?)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.read_fields(count, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.read_fields(count, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_map(self.start_elements()?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        let count = fields_in_version(ADDED_FIELDS, self.version, name, fields.len());
        self.read_fields(count, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.start_value(size_of::<V::Value>())?;
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        Err(CodecError::custom("the format is not self-describing"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The fields of a struct, a tuple or a variant, which are stored inline.
struct Fields<'r, 'de, 'a> {
    deserializer: &'r mut RecordDeserializer<'de, 'a>,
    count: usize,
}

impl<'de> SeqAccess<'de> for Fields<'_, 'de, '_> {
    type Error = CodecError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, CodecError> {
        let Some(count) = self.count.checked_sub(1) else {
            return Ok(None);
        };
        self.count = count;
        self.deserializer.read_part(seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count)
    }
}

/// The elements of a list, or the entries of a map.
struct Elements<'r, 'de, 'a> {
    deserializer: &'r mut RecordDeserializer<'de, 'a>,
    total: usize,
    /// Number of remaining elements.
    count: usize,
    /// Number of elements for which room may be reserved at once.
    reserved: usize,
}

impl<'de> Elements<'_, 'de, '_> {
    fn read_element<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, CodecError> {
        let size = size_of::<S::Value>();
        let may_grow = self.reserved < self.total
            || self.total.saturating_mul(size) > MAX_SERDE_RESERVED_BYTES;
        // A growing list may have capacity for twice its elements.
        self.deserializer
            .charge(if may_grow { 2 * size } else { size })?;
        self.deserializer.read_part(seed)
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de, '_> {
    type Error = CodecError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, CodecError> {
        let Some(count) = self.count.checked_sub(1) else {
            return Ok(None);
        };
        self.count = count;
        self.read_element(seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.reserved.min(self.count))
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de, '_> {
    type Error = CodecError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, CodecError> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, CodecError> {
        self.read_element(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.reserved.min(self.count))
    }
}

impl<'de> EnumAccess<'de> for &mut RecordDeserializer<'de, '_> {
    type Error = CodecError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), CodecError> {
        let variant: u32 = self.read_number()?;
        Ok((
            seed.deserialize(IntoDeserializer::<CodecError>::into_deserializer(variant))?,
            self,
        ))
    }
}

impl<'de> VariantAccess<'de> for &mut RecordDeserializer<'de, '_> {
    type Error = CodecError;

    fn unit_variant(self) -> Result<(), CodecError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, CodecError> {
        self.read_part(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.read_fields(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.read_fields(fields.len(), visitor)
    }
}

impl Error for CodecError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Decode(message.to_string())
    }
}
