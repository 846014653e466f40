//! One string of a JSON object too long to hold: decoded as it passes.
//!
//! Lines of ordinary length go through `serde_json`, which needs the whole line; a line beyond the
//! document buffer comes here. The grammar is checked as far as the one string needs it: the object's
//! own keys and separators, all strings and escapes, and the balance of nested values.

/// Where in the object the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BeforeObject,
    BeforeKey,
    Key,
    BeforeColon,
    BeforeValue,
    /// In the wanted string.
    Wanted,
    /// In another string value of the object.
    Other,
    /// In a number, `true`, `false` or `null`.
    Scalar,
    /// In a nested array or object.
    Nested,
    /// In a string inside one.
    NestedString,
    BeforeComma,
    AfterObject,
}

/// Where in an escape the next byte of a string stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Backslash,
    /// Digits still to come, value so far.
    Unicode(u8, u32),
}

/// A decoder of the string under one key.
pub(super) struct LongLine<'k> {
    wanted: &'k str,
    state: State,
    escape: Escape,
    /// First half of a surrogate pair.
    high: Option<u32>,
    key: Vec<u8>,
    depth: usize,
    found: bool,
}

impl<'k> LongLine<'k> {
    pub(super) fn new(wanted: &'k str) -> Self {
        LongLine {
            wanted,
            state: State::BeforeObject,
            escape: Escape::None,
            high: None,
            key: Vec::new(),
            depth: 0,
            found: false,
        }
    }

    /// Takes the next bytes of the line; those of the wanted string go to `text`.
    pub(super) fn feed(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Result<(), String> {
        let mut at = 0;
        while at < bytes.len() {
            // Most bytes are plain bytes of a string: passed on in runs.
            let run = self.plain_run(&bytes[at..]);
            match self.state {
                State::Wanted => text.extend_from_slice(&bytes[at..at + run]),
                State::Key => self.key.extend_from_slice(&bytes[at..at + run]),
                _ => {}
            }
            at += run;
            if let Some(&byte) = bytes.get(at) {
                self.step(byte, text)?;
                at += 1;
            }
        }
        Ok(())
    }

    /// Ends the line.
    pub(super) fn finish(&self) -> Result<(), String> {
        if self.state != State::AfterObject {
            return Err("broken JSON: the line ends inside the object".into());
        }
        if !self.found {
            return Err(format!("the object has no key {:?}; name the key that holds the text", self.wanted));
        }
        Ok(())
    }

    fn in_string(&self) -> bool {
        matches!(self.state, State::Key | State::Wanted | State::Other | State::NestedString)
    }

    fn plain_run(&self, bytes: &[u8]) -> usize {
        if !self.in_string() || self.escape != Escape::None || self.high.is_some() {
            return 0;
        }
        bytes.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).unwrap_or(bytes.len())
    }

    fn step(&mut self, byte: u8, text: &mut Vec<u8>) -> Result<(), String> {
        if self.in_string() {
            return self.step_in_string(byte, text);
        }
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.state = match (self.state, byte) {
            (State::Scalar, b',') => State::BeforeKey,
            (State::Scalar, b'}') => State::AfterObject,
            (State::Scalar, b'{' | b'[' | b'"' | b':' | b']') => return Err(unexpected(byte)),
            (State::Nested, _) => self.step_nested(byte),
            (state, _) if blank => {
                if state == State::Scalar {
                    State::BeforeComma
                } else {
                    state
                }
            }
            (State::Scalar, _) => State::Scalar,
            (State::BeforeObject, b'{') => State::BeforeKey,
            (State::BeforeKey, b'"') => {
                self.key.clear();
                State::Key
            }
            (State::BeforeColon, b':') => State::BeforeValue,
            (State::BeforeValue, _) => self.value(byte)?,
            (State::BeforeComma, b',') => State::BeforeKey,
            (State::BeforeComma, b'}') => State::AfterObject,
            (_, _) => return Err(unexpected(byte)),
        };
        Ok(())
    }

    /// The state behind the first byte of a value.
    fn value(&mut self, byte: u8) -> Result<State, String> {
        let is_wanted = self.key == self.wanted.as_bytes();
        if is_wanted && (self.found || byte != b'"') {
            let fault = if self.found { "comes twice" } else { "is not a string" };
            return Err(format!("the value of key {:?} {fault}", self.wanted));
        }
        match byte {
            b'"' if is_wanted => {
                self.found = true;
                Ok(State::Wanted)
            }
            b'"' => Ok(State::Other),
            b'{' | b'[' => {
                self.depth = 1;
                Ok(State::Nested)
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Ok(State::Scalar),
            _ => Err(unexpected(byte)),
        }
    }

    fn step_nested(&mut self, byte: u8) -> State {
        match byte {
            b'"' => return State::NestedString,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.depth == 0 { State::BeforeComma } else { State::Nested }
    }

    fn step_in_string(&mut self, byte: u8, text: &mut Vec<u8>) -> Result<(), String> {
        match self.escape {
            Escape::None if byte == b'\\' => self.escape = Escape::Backslash,
            Escape::None if self.high.is_some() => return Err(LONE.into()),
            Escape::None if byte == b'"' => self.end_string(),
            Escape::None if byte < 0x20 => {
                return Err(format!("broken JSON: control character {byte:#04x} in a string"));
            }
            Escape::None => self.put(&[byte], text),
            Escape::Backslash => self.step_backslash(byte, text)?,
            Escape::Unicode(left, value) => {
                let digit = (byte as char).to_digit(16).ok_or("broken JSON: \\u without four digits")?;
                let value = value * 16 + digit;
                self.escape = if left > 1 { Escape::Unicode(left - 1, value) } else { Escape::None };
                if left == 1 {
                    self.put_unit(value, text)?;
                }
            }
        }
        Ok(())
    }

    fn step_backslash(&mut self, byte: u8, text: &mut Vec<u8>) -> Result<(), String> {
        self.escape = Escape::None;
        if byte == b'u' {
            self.escape = Escape::Unicode(4, 0);
            return Ok(());
        }
        if self.high.is_some() {
            return Err(LONE.into());
        }
        let character = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return Err(format!("broken JSON: unknown escape \\{}", char::from(byte))),
        };
        self.put(&[character], text);
        Ok(())
    }

    /// One UTF-16 unit of a `\u` escape.
    fn put_unit(&mut self, unit: u32, text: &mut Vec<u8>) -> Result<(), String> {
        let code = match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (None, 0xd800..=0xdbff) => {
                self.high = Some(unit);
                return Ok(());
            }
            (None, _) => unit,
            (Some(_), _) => return Err(LONE.into()),
        };
        let character = char::from_u32(code).ok_or(LONE)?;
        self.put(character.encode_utf8(&mut [0; 4]).as_bytes(), text);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], text: &mut Vec<u8>) {
        match self.state {
            State::Wanted => text.extend_from_slice(bytes),
            State::Key => self.key.extend_from_slice(bytes),
            _ => {}
        }
    }

    fn end_string(&mut self) {
        self.state = match self.state {
            State::Key => State::BeforeColon,
            State::NestedString => State::Nested,
            _ => State::BeforeComma,
        };
    }
}

const LONE: &str = "broken JSON: half a surrogate pair";

fn unexpected(byte: u8) -> String {
    format!("broken JSON: unexpected {:?}", char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;
    use proptest::prelude::*;

    fn decode(line: &[u8], cuts: usize) -> Result<String, String> {
        let (mut decoder, mut text) = (LongLine::new("text"), Vec::new());
        for piece in line.chunks(cuts) {
            decoder.feed(piece, &mut text)?;
        }
        decoder.finish()?;
        Ok(String::from_utf8(text).unwrap())
    }

    proptest! {
        /// What serde_json makes of the same line, however the line is cut.
        #[test]
        fn equals_the_parser(text: String, other: String, number: f64, cuts in 1usize..20) {
            let object = serde_json::json!({
                "a": [1, {"text": other, "b": [[], {}]}], other.clone() + "x": number, "text": text, "z": null
            });
            let line = object.to_string();
            prop_assert_eq!(decode(line.as_bytes(), cuts), Ok(text));
        }

        #[test]
        fn escapes_and_damage_as_the_parser_sees_them(line in r#"\{"text": ?"(\\u[dD][89cC]0[0-9]|\\u00[0-9a-f]{2}|\\[nt"x/]|[a-c])*"?[,}]? ?"#) {
            let parsed = json::fields(line.trim(), &["text".to_string()]);
            let decoded = decode(line.as_bytes(), 3);
            prop_assert_eq!(decoded.is_ok(), parsed.is_ok(), "{:?} {:?}", decoded, parsed);
            if let (Ok(decoded), Ok(parsed)) = (decoded, parsed) {
                prop_assert_eq!(decoded, parsed[0].as_ref());
            }
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, fault) in [
            (r#"{"txt": "a"}"#, "no key"),
            (r#"{"text": 3}"#, "not a string"),
            (r#"{"text": "a", "text": "b"}"#, "comes twice"),
            (r#"{"text": "a""#, "ends inside"),
            (r#"["text"]"#, "unexpected '['"),
            (r#"{"text": "a"} {"#, "unexpected '{'"),
            (r#"{"a": 1"b": 2}"#, "unexpected '\"'"),
        ] {
            let error = decode(line.as_bytes(), 4).unwrap_err();
            assert!(error.contains(fault), "{line}: {error}");
        }
    }
}
