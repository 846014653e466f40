//! Python's pickle format, written: protocol 2, without a memory of values written before, so that
//! the bytes follow from the value alone.

/// A pickle as it grows. Every method writes one value; those that take a closure write what it
/// writes inside theirs.
pub(crate) struct PickleWriter {
    bytes: Vec<u8>,
}

impl PickleWriter {
    /// The bytes of the one value that `root` writes.
    pub fn of(root: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self { bytes: vec![0x80, 2] };
        root(&mut writer);
        writer.code(b'.');
        writer.bytes
    }

    fn code(&mut self, code: u8) {
        self.bytes.push(code);
    }

    pub fn none(&mut self) {
        self.code(b'N');
    }

    pub fn bool(&mut self, value: bool) {
        self.code(if value { 0x88 } else { 0x89 });
    }

    pub fn int(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(short) => {
                self.code(b'J');
                self.bytes.extend(short.to_le_bytes());
            }
            Err(_) => {
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend(value.to_le_bytes());
            }
        }
    }

    pub fn size(&mut self, value: u64) {
        self.int(i64::try_from(value).expect("sizes of files and tensors are below 2^63"));
    }

    pub fn float(&mut self, value: f64) {
        self.code(b'G');
        self.bytes.extend(value.to_be_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.code(b'X');
        let length = u32::try_from(text.len()).expect("names are shorter than 4 GiB");
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    /// A class or function.
    pub fn global(&mut self, module: &str, name: &str) {
        self.code(b'c');
        self.bytes.extend(format!("{module}\n{name}\n").as_bytes());
    }

    pub fn tuple(&mut self, elements: impl FnOnce(&mut Self)) {
        self.code(b'(');
        elements(self);
        self.code(b't');
    }

    pub fn list(&mut self, elements: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"](");
        elements(self);
        self.code(b'e');
    }

    /// A dictionary; `items` writes keys and values in turn.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"}(");
        items(self);
        self.code(b'u');
    }

    /// What a function returns for the arguments.
    pub fn call(&mut self, module: &str, name: &str, arguments: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.tuple(arguments);
        self.code(b'R');
    }

    /// An object made without its initializer and given a state.
    pub fn object(&mut self, module: &str, name: &str, state: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.bytes.extend([b')', 0x81]);
        state(self);
        self.code(b'b');
    }

    /// An object outside the pickle, by what identifies it.
    pub fn persistent(&mut self, id: impl FnOnce(&mut Self)) {
        id(self);
        self.code(b'Q');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::Pickle;

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = PickleWriter::of(|w| {
            w.dict(|w| {
                w.text("numbers");
                w.list(|w| {
                    for value in [0, 255, -1, i64::from(i32::MAX), 1 << 40, i64::MIN] {
                        w.int(value);
                    }
                });
                w.text("rate");
                w.float(0.1);
                w.text("on");
                w.bool(true);
                w.text("object");
                w.object("a.b", "C", |w| {
                    w.dict(|w| {
                        w.text("größe");
                        w.int(3);
                    });
                });
                w.text("call");
                w.call("a", "f", |w| w.tuple(|_| ()));
                w.text("outside");
                w.persistent(|w| w.text("7"));
            });
        });
        let pickle = Pickle::parse(&bytes).unwrap();
        let root = pickle.root();
        let numbers = root.get("numbers").unwrap().sequence().unwrap();
        let numbers: Vec<_> = numbers.into_iter().map(|n| n.int().unwrap()).collect();
        assert_eq!(numbers, [0, 255, -1, i64::from(i32::MAX), 1 << 40, i64::MIN]);
        assert_eq!(root.get("rate").unwrap().float(), Some(0.1));
        assert_eq!(root.get("on").unwrap().bool(), Some(true));
        assert_eq!(root.get("object").unwrap().get("größe").unwrap().int(), Some(3));
        let (name, arguments) = root.get("call").unwrap().call().unwrap();
        assert_eq!((name, arguments.len()), ("a f", 1));
        assert_eq!(root.get("outside").unwrap().persistent().unwrap().text(), Some("7"));
    }
}
