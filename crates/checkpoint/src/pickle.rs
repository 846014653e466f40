//! Python's pickle format, read as data.
//!
//! A pickle is a program for a small stack machine whose `REDUCE` and `BUILD` call Python. Here
//! those make a node that says what would have been called, and nothing runs: a hostile file can
//! at most describe an odd value. Nodes live in one list and refer to each other by index, so a
//! value that is changed after it was remembered (`BUILD` after `MEMOIZE`) is seen by all who
//! refer to it, and memory is bounded by the file's length.
//!
//! The general crate, serde-pickle, has no persistent identifiers, by which torch refers to its
//! storages, and refuses the classes that a Megatron checkpoint is made of.

use std::collections::HashMap;

/// A pickled value: nodes and the root.
#[derive(Debug)]
pub(crate) struct Pickle {
    nodes: Vec<Node>,
    root: usize,
}

#[derive(Debug)]
enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Bytes, and integers beyond 64 bits: nothing here reads their content.
    Opaque,
    /// A class or function, as `module name`.
    Global(String),
    /// An object outside the pickle, by what identifies it.
    Persistent(usize),
    Sequence(Vec<usize>),
    /// A mapping, or the result of a call: what was called with what, what was put into it
    /// and what state it was given.
    Object {
        callee: Option<usize>,
        arguments: Option<usize>,
        items: Vec<(usize, usize)>,
        state: Option<usize>,
    },
}

/// Why a pickle could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PickleError {
    #[error("the pickle ends at byte {0}, before its end mark")]
    Truncated(usize),
    #[error("operation {code:#04x} at byte {at} is unknown")]
    Unknown { code: u8, at: usize },
    #[error("operation {code:#04x} at byte {at} finds nothing to work on")]
    Misplaced { code: u8, at: usize },
}

/// A value inside a pickle.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pickle: &'a Pickle,
    node: usize,
}

impl Pickle {
    /// Reads one pickle of protocol 0 to 5.
    pub fn parse(bytes: &[u8]) -> Result<Self, PickleError> {
        let mut machine =
            Machine { bytes, at: 0, nodes: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
        let root = machine.run()?;
        Ok(Self { nodes: machine.nodes, root })
    }

    pub fn root(&self) -> Value<'_> {
        Value { pickle: self, node: self.root }
    }
}

impl<'a> Value<'a> {
    fn at(self, node: usize) -> Self {
        Self { node, ..self }
    }

    fn kind(self) -> &'a Node {
        &self.pickle.nodes[self.node]
    }

    pub fn int(self) -> Option<i64> {
        match self.kind() {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A size: an integer of 0 or more.
    pub fn size(self) -> Option<usize> {
        usize::try_from(self.int()?).ok()
    }

    pub fn bool(self) -> Option<bool> {
        match self.kind() {
            Node::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// A float, or an integer as one.
    pub fn float(self) -> Option<f64> {
        match self.kind() {
            Node::Float(value) => Some(*value),
            Node::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    pub fn text(self) -> Option<&'a str> {
        match self.kind() {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The `module name` of a class or function.
    pub fn global(self) -> Option<&'a str> {
        match self.kind() {
            Node::Global(name) => Some(name),
            _ => None,
        }
    }

    /// What identifies an object outside the pickle.
    pub fn persistent(self) -> Option<Self> {
        match self.kind() {
            Node::Persistent(id) => Some(self.at(*id)),
            _ => None,
        }
    }

    /// Elements of a list or tuple.
    pub fn sequence(self) -> Option<Vec<Self>> {
        match self.kind() {
            Node::Sequence(nodes) => Some(nodes.iter().map(|&node| self.at(node)).collect()),
            _ => None,
        }
    }

    /// The called `module name` and its arguments.
    pub fn call(self) -> Option<(&'a str, Vec<Self>)> {
        match self.kind() {
            Node::Object { callee: Some(callee), arguments: Some(arguments), .. } => {
                Some((self.at(*callee).global()?, self.at(*arguments).sequence()?))
            }
            _ => None,
        }
    }

    /// Sizes, as a tuple or as `torch.Size`.
    pub fn sizes(self) -> Option<Vec<usize>> {
        let list = match self.call() {
            Some(("torch Size", arguments)) => arguments.first()?.sequence()?,
            _ => self.sequence()?,
        };
        list.into_iter().map(Self::size).collect()
    }

    /// Keys and values of a mapping.
    pub fn items(self) -> Vec<(Self, Self)> {
        match self.kind() {
            Node::Object { items, .. } => items.iter().map(|&(key, value)| (self.at(key), self.at(value))).collect(),
            _ => Vec::new(),
        }
    }

    /// Names and values of an object's attributes.
    pub fn attributes(self) -> Vec<(Self, Self)> {
        match self.kind() {
            Node::Object { state: Some(state), .. } => self.at(*state).items(),
            _ => Vec::new(),
        }
    }

    /// The state that an object was given.
    #[cfg(test)]
    pub fn state(self) -> Option<Self> {
        match self.kind() {
            Node::Object { state: Some(state), .. } => Some(self.at(*state)),
            _ => None,
        }
    }

    /// The value of a text key of a mapping, or of an attribute.
    pub fn get(self, key: &str) -> Option<Self> {
        let mut all = self.items().into_iter().chain(self.attributes());
        all.find(|(found, _)| found.text() == Some(key)).map(|(_, value)| value)
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<usize>,
    /// Heights of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u64, usize>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<usize, PickleError> {
        loop {
            let at = self.at;
            let code = self.take(1)?[0];
            if code == b'.' {
                return self.stack.pop().ok_or(PickleError::Misplaced { code, at });
            }
            let done = match code {
                b'(' | b'0' | b'1' | b'2' | 0x80 | 0x95 => self.control(code)?,
                b'q' | b'r' | b'p' | 0x94 | b'h' | b'j' | b'g' => self.remember(code)?,
                b'N' | 0x88 | 0x89 | b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => {
                    self.number(code)?
                }
                b'X' | 0x8c | 0x8d | b'U' | b'T' | b'S' | b'V' | b'B' | b'C' | 0x8e | 0x96 => self.text(code)?,
                b']' | b'a' | b'e' | b'l' | b')' | b't' | 0x85 | 0x86 | 0x87 | 0x8f | 0x90 | 0x91 => {
                    self.sequence(code)?
                }
                b'}' | b'd' | b's' | b'u' => self.mapping(code)?,
                b'c' | 0x93 | b'R' | 0x81 | 0x92 | b'b' | b'Q' | b'P' => self.object(code)?,
                _ => return Err(PickleError::Unknown { code, at }),
            };
            done.ok_or(PickleError::Misplaced { code, at })?;
        }
    }

    fn control(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        Ok(match code {
            b'(' => {
                self.marks.push(self.stack.len());
                Some(())
            }
            b'0' => self.stack.pop().map(drop),
            b'1' => self.since_mark().map(drop),
            b'2' => self.stack.last().copied().and_then(|top| self.put_back(top)),
            0x80 => self.take(1).map(|_| Some(()))?,
            _ => self.take(8).map(|_| Some(()))?, // 0x95: the length of a frame
        })
    }

    fn remember(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        let index = match code {
            b'q' | b'h' => self.unsigned(1)?,
            b'r' | b'j' => self.unsigned(4)?,
            0x94 => self.memo.len() as u64,
            _ => match self.line()?.parse() {
                Ok(index) => index,
                Err(_) => return Ok(None),
            },
        };
        if matches!(code, b'h' | b'j' | b'g') {
            return Ok(self.memo.get(&index).copied().and_then(|node| self.put_back(node)));
        }
        Ok(self.stack.last().copied().map(|top| {
            self.memo.insert(index, top);
        }))
    }

    fn number(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        let node = match code {
            b'N' => Node::None,
            0x88 => Node::Bool(true),
            0x89 => Node::Bool(false),
            b'J' => Node::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'K' => Node::Int(self.unsigned(1)? as i64),
            b'M' => Node::Int(self.unsigned(2)? as i64),
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => Node::Float(f64::from_bits(self.unsigned(8)?.swap_bytes())), // the one big-endian number
            b'F' => match self.line()?.parse() {
                Ok(value) => Node::Float(value),
                Err(_) => return Ok(None),
            },
            _ => match self.line()?.as_str() {
                "00" => Node::Bool(false),
                "01" => Node::Bool(true),
                digits => digits.trim_end_matches('L').parse().map_or(Node::Opaque, Node::Int),
            },
        };
        Ok(self.push(node))
    }

    /// An integer of any length, least byte first; beyond 64 bits it is opaque.
    fn long(&mut self, prefix: usize) -> Result<Node, PickleError> {
        let length = self.unsigned(prefix)?;
        let bytes = self.take_u64(length)?;
        if bytes.len() > 8 {
            return Ok(Node::Opaque);
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        Ok(Node::Int(i64::from_le_bytes(wide)))
    }

    fn text(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        if matches!(code, b'S' | b'V') {
            let line = self.line()?;
            let text = line.trim_matches(['\'', '"']).to_string();
            return Ok(self.push(Node::Text(text)));
        }
        let length = match code {
            0x8c | b'U' | b'C' => self.unsigned(1)?,
            b'X' | b'T' | b'B' => self.unsigned(4)?,
            _ => self.unsigned(8)?,
        };
        let bytes = self.take_u64(length)?;
        let node = match code {
            b'B' | b'C' | 0x8e | 0x96 => Node::Opaque,
            _ => Node::Text(String::from_utf8_lossy(bytes).into_owned()),
        };
        Ok(self.push(node))
    }

    fn sequence(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        Ok(match code {
            b']' | b')' | 0x8f => self.push(Node::Sequence(Vec::new())),
            b'a' => self.stack.pop().and_then(|value| self.extend(vec![value])),
            b'e' | 0x90 => self.since_mark().and_then(|values| self.extend(values)),
            b'l' | b't' | 0x91 => self.since_mark().and_then(|values| self.push(Node::Sequence(values))),
            _ => {
                let count = usize::from(code - 0x84); // 0x85 to 0x87: tuples of 1 to 3
                let cut = self.stack.len().checked_sub(count);
                cut.map(|cut| self.stack.split_off(cut)).and_then(|values| self.push(Node::Sequence(values)))
            }
        })
    }

    fn extend(&mut self, values: Vec<usize>) -> Option<()> {
        match &mut self.nodes[*self.stack.last()?] {
            Node::Sequence(list) => list.extend(values),
            // A subclass of list: what is in it is of no use here.
            Node::Object { .. } => {}
            _ => return None,
        }
        Some(())
    }

    fn mapping(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        let put = |machine: &mut Self, values: Vec<usize>| {
            let pairs = values.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            let Node::Object { items, .. } = &mut machine.nodes[*machine.stack.last()?] else { return None };
            items.extend(pairs);
            Some(())
        };
        Ok(match code {
            b'}' => self.push(Node::empty()),
            b'd' => self.since_mark().and_then(|values| {
                self.push(Node::empty());
                put(self, values)
            }),
            b'u' => self.since_mark().and_then(|values| put(self, values)),
            _ => self.pop_two().and_then(|(key, value)| put(self, vec![key, value])),
        })
    }

    fn object(&mut self, code: u8) -> Result<Option<()>, PickleError> {
        if code == b'c' {
            let name = format!("{} {}", self.line()?, self.line()?);
            return Ok(self.push(Node::Global(name)));
        }
        if code == b'P' {
            let id = self.line()?;
            self.push(Node::Text(id));
        }
        Ok(self.object_of_stack(code))
    }

    fn object_of_stack(&mut self, code: u8) -> Option<()> {
        match code {
            b'Q' | b'P' => {
                let id = self.stack.pop()?;
                self.push(Node::Persistent(id));
            }
            b'b' => {
                let (object, value) = self.pop_two()?;
                if let Node::Object { state, .. } = &mut self.nodes[object] {
                    *state = Some(value);
                }
                self.stack.push(object);
            }
            0x93 => {
                let (module, name) = self.pop_two()?;
                let (Node::Text(module), Node::Text(name)) = (&self.nodes[module], &self.nodes[name]) else {
                    return None;
                };
                let global = format!("{module} {name}");
                self.push(Node::Global(global));
            }
            _ => {
                if code == 0x92 {
                    self.stack.pop()?; // keyword arguments
                }
                let (callee, arguments) = self.pop_two()?;
                let (callee, arguments) = (Some(callee), Some(arguments));
                self.push(Node::Object { callee, arguments, items: Vec::new(), state: None });
            }
        }
        Some(())
    }

    /// Pushes a new node; `Some`, as every operation that found what it needs.
    fn push(&mut self, node: Node) -> Option<()> {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Some(())
    }

    fn put_back(&mut self, node: usize) -> Option<()> {
        self.stack.push(node);
        Some(())
    }

    fn pop_two(&mut self) -> Option<(usize, usize)> {
        let second = self.stack.pop()?;
        Some((self.stack.pop()?, second))
    }

    fn since_mark(&mut self) -> Option<Vec<usize>> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len())?;
        Some(self.stack.split_off(mark))
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        self.take_u64(count as u64)
    }

    fn take_u64(&mut self, count: u64) -> Result<&[u8], PickleError> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(count).ok().and_then(|count| rest.get(..count)) {
            Some(part) => {
                self.at += part.len();
                Ok(part)
            }
            None => Err(PickleError::Truncated(self.bytes.len())),
        }
    }

    fn unsigned(&mut self, count: usize) -> Result<u64, PickleError> {
        let bytes = self.take(count)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn line(&mut self) -> Result<String, PickleError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or(PickleError::Truncated(self.bytes.len()))?;
        self.at += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

impl Node {
    fn empty() -> Self {
        Self::Object { callee: None, arguments: None, items: Vec::new(), state: None }
    }
}
