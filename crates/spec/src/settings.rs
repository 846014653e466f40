//! What a person wrote, key by key, each with its source. No meaning yet.

use crate::SpecError;
use crate::keys::{self, KEYS};
use std::collections::BTreeMap;
use std::fmt;
use toml::Value;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A line of the run file.
    File {
        /// The file's name.
        file: String,
        /// Line, from 1.
        line: usize,
    },
    /// A `--set` on the command line.
    Override,
    /// The weights or the preset that the run starts from.
    Adopted(String),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Override => f.write_str("--set"),
            Self::Adopted(origin) => f.write_str(origin),
            Self::Default => f.write_str("default"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub value: Value,
    pub source: Source,
}

/// The keys of a run file and its overrides, flattened to dotted names.
#[derive(Clone, Debug)]
pub struct Settings {
    file: String,
    entries: BTreeMap<String, Entry>,
}

impl Settings {
    /// Parses a run file. `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, SpecError> {
        let document = toml_edit::Document::parse(text).map_err(|error| SpecError::Syntax {
            file: file.to_string(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            problem: error.message().to_string(),
        })?;
        let mut settings = Self { file: file.to_string(), entries: BTreeMap::new() };
        settings.take_table(text, "", document.as_table())?;
        Ok(settings)
    }

    /// Applies `key=value`; the value is TOML, or a bare string.
    pub fn set(&mut self, text: &str) -> Result<(), SpecError> {
        let bad = || SpecError::BadOverride { text: text.to_string() };
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(bad());
        }
        let value = format!("v = {value}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut table| table.remove("v"))
            .unwrap_or_else(|| Value::String(value.to_string()));
        self.take_value(key, value, &Source::Override)
    }

    /// Fills keys that are absent from what the run starts from; a key that is present
    /// with another value is an error, but for dropout and `init_std`, which are free.
    pub fn adopt(&mut self, facts: &BTreeMap<String, Value>, origin: &str) -> Result<(), SpecError> {
        for (key, value) in facts {
            let free = key.contains("dropout") || key == "model.init_std";
            if key.contains("dropout") && self.entries.contains_key("model.dropout") {
                continue;
            }
            match self.entries.get(key) {
                Some(present) if !free && !same(&present.value, value) => {
                    return Err(SpecError::Contradiction {
                        place: present.source.to_string().into(),
                        key: key.as_str().into(),
                        value: present.value.to_string().into(),
                        other: value.to_string().into(),
                        origin: origin.into(),
                    });
                }
                Some(_) => {}
                None => self.fill(key, value.clone(), origin),
            }
        }
        Ok(())
    }

    /// Fills one absent key; `origin` says what it is taken from.
    ///
    /// # Panics
    /// If no key of a run file has this name.
    pub fn fill(&mut self, key: &str, value: Value, origin: &str) {
        assert!(keys::find(key).is_some(), "`{key}` is not in the table of keys");
        let entry = Entry { value, source: Source::Adopted(origin.to_string()) };
        self.entries.entry(key.to_string()).or_insert(entry);
    }

    /// The run file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// A given string, before any meaning is read: `init.from`, `model.preset`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.entries.get(key).and_then(|entry| entry.value.as_str())
    }

    /// A given whole number, before any meaning is read.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.entries.get(key).and_then(|entry| entry.value.as_integer()).and_then(|value| u64::try_from(value).ok())
    }

    /// Whether anybody gave a key a value.
    pub fn is_given(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Gives a key another value, whatever it had; `origin` says why.
    ///
    /// # Panics
    /// If no key of a run file has this name.
    pub fn replace(&mut self, key: &str, value: Value, origin: &str) {
        self.entries.remove(key);
        self.fill(key, value, origin);
    }

    /// A given key, or its default from the table.
    pub(crate) fn get(&self, key: &str) -> Option<Entry> {
        let known = keys::find(key).unwrap_or_else(|| panic!("`{key}` is not in the table of keys"));
        self.entries.get(key).cloned().or_else(|| default_of(known.default))
    }

    /// Whether a key is absent or has the value that it would have without being given.
    pub(crate) fn has_default(&self, key: &str) -> bool {
        let default = keys::find(key).and_then(|known| default_of(known.default));
        match (self.entries.get(key), default) {
            (Some(given), Some(default)) => same(&given.value, &default.value),
            (given, _) => given.is_none(),
        }
    }

    /// Where a key's value comes from.
    pub fn source(&self, key: &str) -> Source {
        self.entries.get(key).map_or(Source::Default, |entry| entry.source.clone())
    }

    /// Every value in force as a run file, the source of each as a comment.
    /// `derived` holds the values of keys whose default follows from others.
    pub fn render(&self, derived: &BTreeMap<&str, Value>) -> String {
        let mut text = String::new();
        let mut section = "";
        for key in KEYS {
            let derived = derived.get(key.name).map(|value| Entry { value: value.clone(), source: Source::Default });
            let Some(entry) = self.entries.get(key.name).cloned().or(derived).or_else(|| default_of(key.default))
            else {
                continue;
            };
            if key.name == "layout.recompute" && self.entries.contains_key("layout.recompute.every") {
                continue;
            }
            let (table, name) = key.name.split_once('.').unwrap_or(("", key.name));
            if table != section {
                text += &format!("{}[{table}]\n", if section.is_empty() { "" } else { "\n" });
                section = table;
            }
            text += &format!("{name} = {}  # {}\n", entry.value, entry.source);
        }
        text
    }

    fn take_table(&mut self, text: &str, prefix: &str, table: &dyn toml_edit::TableLike) -> Result<(), SpecError> {
        for (name, item) in table.iter() {
            let key = join(prefix, name);
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let line = span.map_or(1, |span| line_of(text, span.start));
            let source = Source::File { file: self.file.clone(), line };
            match (item.as_table_like(), item.as_value()) {
                (Some(inner), _) if inner.is_empty() && !keys_below(&key) => {
                    return Err(unknown(&key, &source));
                }
                (Some(inner), _) => self.take_table(text, &key, inner)?,
                (None, Some(value)) => self.take_value(&key, plain(value), &source)?,
                // `[[data.stages]]` is a list of tables.
                (None, None) => match item.clone().into_value() {
                    Ok(value) => self.take_value(&key, plain(&value), &source)?,
                    Err(_) => return Err(unknown(&key, &source)),
                },
            }
        }
        Ok(())
    }

    fn take_value(&mut self, key: &str, value: Value, source: &Source) -> Result<(), SpecError> {
        if let Value::Table(table) = value {
            return table.into_iter().try_for_each(|(name, value)| self.take_value(&join(key, &name), value, source));
        }
        if keys::find(key).is_none() {
            return Err(unknown(key, source));
        }
        // A key and the table of the same name are two ways to say one thing: the later counts.
        let other = |known: &String| known.starts_with(&format!("{key}.")) || key.starts_with(&format!("{known}."));
        self.entries.retain(|known, _| !other(known));
        self.entries.insert(key.to_string(), Entry { value, source: source.clone() });
        Ok(())
    }
}

fn default_of(text: &str) -> Option<Entry> {
    let table = format!("v = {text}").parse::<toml::Table>().ok()?;
    table.get("v").map(|value| Entry { value: value.clone(), source: Source::Default })
}

fn unknown(key: &str, source: &Source) -> SpecError {
    SpecError::UnknownKey { place: source.to_string(), key: key.to_string(), nearest: keys::nearest(key) }
}

fn keys_below(table: &str) -> bool {
    KEYS.iter().any(|key| key.name.starts_with(&format!("{table}.")))
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// A value without its position and decoration.
fn plain(value: &toml_edit::Value) -> Value {
    let text = format!("v = {}", value.to_string().trim());
    text.parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| Value::String(value.to_string()))
}

/// Equality that does not tell `1` from `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
