//! Learns the protocol from its own types: a deserializer that reads no bytes.
//!
//! `serde` tells it the name of every struct, field, enum and variant, in the order of the
//! wire, and it answers with values of its choice. So a list made here is complete by
//! construction, and a variant that is added to the sources is in it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};

/// A field: its name and its type.
pub(crate) type Field = (&'static str, String);

/// One type of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Another type under a new name; the same bytes.
    Newtype(String),
    /// Fields in the order of the wire.
    Struct(Vec<Field>),
    /// Variants by number; a number without one has not been met.
    Enum(BTreeMap<usize, (&'static str, Vec<Field>)>),
}

/// Every named type that was met.
pub(crate) type Registry = BTreeMap<&'static str, Shape>;

/// Decides what is read where there is a choice.
pub(crate) trait Choices {
    /// Any number.
    fn number(&mut self) -> u64;
    /// The number of a variant, below `variants`.
    fn variant(&mut self, name: &'static str, variants: usize) -> usize;
    /// Whether an option is there.
    fn is_some(&mut self) -> bool;
    /// The length of a list.
    fn list(&mut self) -> usize;
    /// A run of bytes.
    fn bytes(&mut self) -> Vec<u8>;
}

/// Reads a value by these choices and notes every type on the way.
pub(crate) fn read<'de, T: Deserialize<'de>, C: Choices>(
    choices: &mut C,
    registry: &mut Registry,
) -> T {
    let mut kind = String::new();
    T::deserialize(Walker {
        choices,
        registry,
        kind: &mut kind,
    })
    .expect("every type of the protocol can be read from nothing")
}

/// Every type that can be part of a `T`.
pub(crate) fn learn<'de, T: Deserialize<'de>>() -> Registry {
    let mut registry = Registry::new();
    let mut turns = Turns::default();
    // Each pass shows the next variant of each enum that it meets.
    for _ in 0..100_000 {
        let _: T = read(&mut turns, &mut registry);
        let is_whole = turns
            .counts
            .iter()
            .all(|(name, (_, all))| match registry.get(name) {
                Some(Shape::Enum(variants)) => variants.len() == *all,
                Some(Shape::Newtype(_) | Shape::Struct(_)) | None => false,
            });
        if is_whole {
            return registry;
        }
    }
    panic!("some variant was not met: {registry:?}")
}

/// Takes the variants of each enum in turn.
#[derive(Default)]
struct Turns {
    counts: BTreeMap<&'static str, (usize, usize)>,
}

impl Choices for Turns {
    fn number(&mut self) -> u64 {
        1
    }

    fn variant(&mut self, name: &'static str, variants: usize) -> usize {
        let (turn, _) = self.counts.entry(name).or_insert((0, variants));
        *turn += 1;
        (*turn - 1) % variants
    }

    fn is_some(&mut self) -> bool {
        true
    }

    fn list(&mut self) -> usize {
        1
    }

    fn bytes(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

struct Walker<'a, C> {
    choices: &'a mut C,
    registry: &'a mut Registry,
    /// The type of the value that was read last.
    kind: &'a mut String,
}

impl<C: Choices> Walker<'_, C> {
    fn again(&mut self) -> Walker<'_, C> {
        Walker {
            choices: self.choices,
            registry: self.registry,
            kind: self.kind,
        }
    }

    fn is(&mut self, kind: &str) {
        kind.clone_into(self.kind);
    }
}

impl<'de, C: Choices> Deserializer<'de> for Walker<'_, C> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom(
            "a type that the protocol does not have",
        ))
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is("bool");
        visitor.visit_bool(self.choices.number() % 2 == 1)
    }

    fn deserialize_i32<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is("i32");
        let [a, b, c, d, ..] = self.choices.number().to_le_bytes();
        visitor.visit_i32(i32::from_le_bytes([a, b, c, d]))
    }

    fn deserialize_u32<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is("u32");
        let [a, b, c, d, ..] = self.choices.number().to_le_bytes();
        visitor.visit_u32(u32::from_le_bytes([a, b, c, d]))
    }

    fn deserialize_u64<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is("u64");
        visitor.visit_u64(self.choices.number())
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is("Bytes");
        visitor.visit_byte_buf(self.choices.bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        if !self.choices.is_some() {
            return visitor.visit_none();
        }
        let value = visitor.visit_some(self.again())?;
        *self.kind = format!("Option<{}>", self.kind);
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let mut left = self.choices.list();
        let value = visitor.visit_seq(Elements {
            walker: self.again(),
            left: &mut left,
        })?;
        *self.kind = format!("Vec<{}>", self.kind);
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = visitor.visit_newtype_struct(self.again())?;
        self.registry
            .insert(name, Shape::Newtype(self.kind.clone()));
        self.is(name);
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut seen = Vec::new();
        let walker = self.again();
        let value = visitor.visit_seq(Fields {
            walker,
            names: fields.iter(),
            seen: &mut seen,
        })?;
        self.registry.insert(name, Shape::Struct(seen));
        self.is(name);
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let number = self.choices.variant(name, variants.len());
        let mut seen = Vec::new();
        let walker = self.again();
        let value = visitor.visit_enum(Variant {
            walker,
            number,
            seen: &mut seen,
        })?;
        let shape = self
            .registry
            .entry(name)
            .or_insert_with(|| Shape::Enum(BTreeMap::new()));
        if let Shape::Enum(known) = shape {
            let variant = variants
                .get(number)
                .expect("the number is below their count");
            known.insert(number, (variant, seen));
        }
        self.is(name);
        Ok(value)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i64 i128 u8 u16 u128 f32 f64 char str string byte_buf unit unit_struct tuple
        tuple_struct map identifier ignored_any
    }
}

struct Elements<'a, C> {
    walker: Walker<'a, C>,
    left: &'a mut usize,
}

impl<'de, C: Choices> SeqAccess<'de> for Elements<'_, C> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if *self.left == 0 {
            return Ok(None);
        }
        *self.left -= 1;
        seed.deserialize(self.walker.again()).map(Some)
    }
}

struct Fields<'a, C> {
    walker: Walker<'a, C>,
    names: std::slice::Iter<'static, &'static str>,
    seen: &'a mut Vec<Field>,
}

impl<'de, C: Choices> SeqAccess<'de> for Fields<'_, C> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.next() else {
            return Ok(None);
        };
        let value = seed.deserialize(self.walker.again())?;
        self.seen.push((name, self.walker.kind.clone()));
        Ok(Some(value))
    }
}

struct Variant<'a, C> {
    walker: Walker<'a, C>,
    number: usize,
    seen: &'a mut Vec<Field>,
}

impl<'de, C: Choices> EnumAccess<'de> for Variant<'_, C> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let number = u32::try_from(self.number).map_err(serde::de::Error::custom)?;
        let tag: U32Deserializer<Error> = number.into_deserializer();
        Ok((seed.deserialize(tag)?, self))
    }
}

impl<'de, C: Choices> VariantAccess<'de> for Variant<'_, C> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Error> {
        let value = seed.deserialize(self.walker.again())?;
        self.seen.push(("0", self.walker.kind.clone()));
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom(
            "the protocol has no variant with several unnamed fields",
        ))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self { walker, seen, .. } = self;
        visitor.visit_seq(Fields {
            walker,
            names: fields.iter(),
            seen,
        })
    }
}
