//! Keys that come twice in an object of a JSON document: a parser keeps one of the two values.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// How many keys of a document come again in the same object; 0 for what is no JSON.
pub(super) fn repeated(document: &str) -> u64 {
    serde_json::from_str(document).map_or(0, |Repeated(count)| count)
}

/// The number on its way through the document.
struct Repeated(u64);

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Repeated, D::Error> {
        deserializer.deserialize_any(Repeated(0))
    }
}

impl<'de> Visitor<'de> for Repeated {
    type Value = Repeated;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Repeated, A::Error> {
        let mut keys = HashSet::new();
        while let Some((key, Repeated(inside))) = map.next_entry::<String, Repeated>()? {
            self.0 += inside + u64::from(!keys.insert(key));
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Repeated, A::Error> {
        while let Some(Repeated(inside)) = list.next_element()? {
            self.0 += inside;
        }
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Repeated, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Repeated, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Repeated, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Repeated, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Repeated, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Repeated, E> {
        Ok(self)
    }
}
