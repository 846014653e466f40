//! One string of a JSON object replaced, every other byte of the line kept: numbers keep their digits and
//! fields their order.

use std::ops::Range;

/// `line`, an object that was read without fault and has the string `key`, with `text` in its place.
pub(super) fn replace_text(line: &str, key: &str, text: &str) -> String {
    let place = place_of(line, key).expect("a line that was read has the key it was read for");
    let text = serde_json::Value::from(text).to_string();
    [&line[..place.start], &text, &line[place.end..]].concat()
}

/// The bytes of the value of `key`, of the last one where it comes twice.
fn place_of(line: &str, key: &str) -> Option<Range<usize>> {
    let bytes = line.as_bytes();
    let (mut at, mut depth, mut name, mut found) = (0, 0, None, None);
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b',' if depth == 1 => name = None,
            b'"' => {
                let end = string_end(bytes, at);
                match &name {
                    _ if depth != 1 => {}
                    None => name = serde_json::from_str::<String>(&line[at..end]).ok(),
                    Some(name) if name == key => found = Some(at..end),
                    Some(_) => {}
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Behind the closing quote of the string that opens at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn everything_else_stays_as_it_was() {
        let line = r#"{"n": 1.50e3, "meta": {"text": "inner", "l": ["text", {}]}, "te\u0078t": "a\"}\\", "z": null}"#;
        let expected =
            r#"{"n": 1.50e3, "meta": {"text": "inner", "l": ["text", {}]}, "te\u0078t": "new\n", "z": null}"#;
        assert_eq!(replace_text(line, "text", "new\n"), expected);
        assert_eq!(replace_text(r#"{"text":"a","text":"b"}"#, "text", "c"), r#"{"text":"a","text":"c"}"#);
    }

    proptest! {
        #[test]
        fn equals_the_parsers_view(text: String, new: String, other: String, number: f64) {
            let object = serde_json::json!({
                "a": [number, {"text": other, "b": [[], {}]}], other.clone() + "x": "text", "text": text, "z": [null]
            });
            // The parser itself may round a number; what it makes of the line before is what must come after.
            let mut expected: Value = serde_json::from_str(&object.to_string()).unwrap();
            expected["text"] = Value::from(new.clone());
            let replaced: Value = serde_json::from_str(&replace_text(&object.to_string(), "text", &new)).unwrap();
            prop_assert_eq!(replaced, expected);
        }
    }
}
