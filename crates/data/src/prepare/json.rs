//! The wanted fields of one JSON line, without building the rest of the object.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The strings of `keys` in the object `line`, in the order of `keys`.
///
/// Of a key that comes twice the last counts, as in most JSON readers.
///
/// # Errors
/// What is wrong with the line: no valid JSON, no object, a key missing or not a string.
pub(super) fn fields<'a>(line: &'a str, keys: &[String]) -> Result<Vec<Cow<'a, str>>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let found = Fields { keys }.deserialize(&mut deserializer).and_then(|found| {
        deserializer.end()?;
        Ok(found)
    });
    let found =
        found.map_err(|e| format!("broken JSON: {} (column {}); correct or remove the line", cause(&e), e.column()))?;
    found
        .into_iter()
        .zip(keys)
        .map(|(value, key)| {
            value.ok_or_else(|| format!("the object has no key {key:?}; name the key that holds the text"))
        })
        .collect()
}

/// serde_json's message without its own position, which counts lines from the start of this line.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line").map_or(text.clone(), |(cause, _)| cause.to_string())
}

struct Fields<'k> {
    keys: &'k [String],
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Vec<Option<Cow<'de, str>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Vec<Option<Cow<'de, str>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with text fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.keys.len()];
        while let Some(key) = map.next_key_seed(Text)? {
            match self.keys.iter().position(|wanted| *wanted == key) {
                Some(i) => found[i] = Some(map.next_value_seed(Text)?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// A string, borrowed from the line where it has no escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn takes_the_wanted_fields_in_order() {
        let line = r#"{"meta": {"text": 1, "b": [null, "]}"]}, "b": "two", "text": "a\n\u00e9\ud83d\ude00"}"#;
        assert_eq!(fields(line, &keys(&["text", "b"])).unwrap(), ["a\n\u{e9}\u{1f600}", "two"]);
        assert_eq!(fields(r#"{"text": "x", "text": "y"}"#, &keys(&["text"])).unwrap(), ["y"]);
    }

    #[test]
    fn says_what_is_wrong() {
        let fault = |line: &str| fields(line, &keys(&["text"])).unwrap_err();
        assert!(fault(r#"{"txt": "a"}"#).contains("no key \"text\""));
        assert!(fault(r#"{"text": 3}"#).contains("expected a string"));
        assert!(fault(r#"{"text": "a"#).contains("column 11"));
        assert!(fault(r#"{"text": "a"} x"#).contains("broken JSON"));
        assert!(fault(r#"["text"]"#).contains("an object"));
        assert!(fault(r#"{"text": "\ud800"}"#).contains("broken JSON"));
    }
}
