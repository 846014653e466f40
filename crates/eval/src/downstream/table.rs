//! Tab-separated tables with a header, as GLUE ships them.

use super::examples::{read_text, wrong};
use crate::EvalError;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Lines that one quoted field may span. A mark that never closes must not swallow the file.
const MOST_LINES: usize = 32;

/// Whether quotation marks around a field are part of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// They are, always.
    Literal,
    /// They are, unless the field could not be written without them: it holds a tab, a line break or
    /// doubled marks. So writers of the CSV kind quote, and a sentence that merely stands in quotation
    /// marks keeps them. A line break is not looked for in the last column.
    WhereNeeded,
}

/// A table in memory.
pub(super) struct Table {
    path: PathBuf,
    text: String,
    columns: Vec<String>,
    quoting: Quoting,
}

/// One row: its first line and its fields, as many as there are columns.
pub(super) struct Row<'t> {
    pub line: usize,
    pub fields: Vec<Cow<'t, str>>,
}

impl Table {
    pub fn read(path: &Path, quoting: Quoting) -> Result<Self, EvalError> {
        let text = read_text(path)?;
        let header = text.lines().next().unwrap_or_default();
        let columns = header.split('\t').map(|name| name.trim().to_string()).collect();
        Ok(Self { path: path.to_path_buf(), columns, quoting, text })
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// Where the column called `name` is, `remedy` saying what to do if there is none.
    pub fn require(&self, name: &str, remedy: &str) -> Result<usize, EvalError> {
        let missing = || {
            let problem = format!("there is no column `{name}` among {}; {remedy}", self.columns.join(", "));
            wrong(&self.path, 1, problem)
        };
        self.column(name).ok_or_else(missing)
    }

    /// The rows that are not blank, each as a row or what is wrong with it.
    pub fn rows(&self) -> Rows<'_> {
        let mut rows = Rows { table: self, rest: &self.text, line: 1 };
        rows.pass(1);
        rows
    }

    /// The fields of a row's `text`, if they are as many as the columns.
    fn split<'t>(&self, text: &'t str) -> Option<Vec<Cow<'t, str>>> {
        let fits = |fields: &Vec<Cow<'t, str>>| fields.len() == self.columns.len();
        let quoted = || Some(split_quoted(text)).filter(|_| self.quoting == Quoting::WhereNeeded).filter(fits);
        // A line break inside a field needs marks around it.
        let plain = || Some(text.split('\t').map(Cow::Borrowed).collect()).filter(|_| !text.contains('\n'));
        quoted().or_else(|| plain().filter(fits))
    }
}

pub(super) struct Rows<'t> {
    table: &'t Table,
    rest: &'t str,
    line: usize,
}

impl<'t> Rows<'t> {
    /// The next `lines` lines as one text, without the last one's end.
    fn peek(&self, lines: usize) -> &'t str {
        let ends = self.rest.match_indices('\n').map(|(at, _)| at);
        let text = &self.rest[..ends.take(lines).nth(lines - 1).unwrap_or(self.rest.len())];
        text.strip_suffix('\r').unwrap_or(text)
    }

    fn pass(&mut self, lines: usize) {
        for _ in 0..lines {
            self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
            self.line += 1;
        }
    }

    /// The row that begins here and how many lines it has.
    fn row(&self) -> Result<(usize, Row<'t>), EvalError> {
        let most = if self.table.quoting == Quoting::WhereNeeded { MOST_LINES } else { 1 };
        // Only a line with a mark can begin a field of several lines.
        let most = if self.peek(1).contains('"') { most } else { 1 };
        let found = (1..=most).find_map(|lines| Some((lines, self.table.split(self.peek(lines))?)));
        let (lines, fields) = found.ok_or_else(|| self.wrong_width())?;
        Ok((lines, Row { line: self.line, fields }))
    }

    fn wrong_width(&self) -> EvalError {
        let (has, needed) = (self.peek(1).split('\t').count(), self.table.columns.len());
        let problem = format!(
            "{has} fields where the header names {needed} columns; repair or remove the line, or let malformed lines \
             be skipped"
        );
        wrong(&self.table.path, self.line, problem)
    }
}

impl<'t> Iterator for Rows<'t> {
    type Item = Result<Row<'t>, EvalError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() && self.peek(1).trim().is_empty() {
            self.pass(1);
        }
        if self.rest.is_empty() {
            return None;
        }
        let row = self.row();
        self.pass(row.as_ref().map_or(1, |(lines, _)| *lines));
        Some(row.map(|(_, row)| row))
    }
}

fn split_quoted(text: &str) -> Vec<Cow<'_, str>> {
    let (mut fields, mut rest) = (Vec::new(), Some(text));
    while let Some(text) = rest {
        let (field, after) = quoted_field(text).unwrap_or_else(|| match text.split_once('\t') {
            Some((field, after)) => (Cow::Borrowed(field), Some(after)),
            None => (Cow::Borrowed(text), None),
        });
        fields.push(field);
        rest = after;
    }
    fields
}

/// The field at the head of `text`, if it stands in marks that it needs, and what follows its tab.
fn quoted_field(text: &str) -> Option<(Cow<'_, str>, Option<&str>)> {
    let inner = text.strip_prefix('"')?;
    let mut marks = inner.match_indices('"').map(|(at, _)| at).peekable();
    let end = loop {
        let at = marks.next()?;
        if marks.next_if_eq(&(at + 1)).is_none() {
            break at;
        }
    };
    let (field, after) = (&inner[..end], &inner[end + 1..]);
    let after = if after.is_empty() { None } else { Some(after.strip_prefix('\t')?) };
    field.contains(['"', '\t', '\n']).then(|| (Cow::Owned(field.replace("\"\"", "\"")), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, quoting: Quoting) -> Vec<Result<(usize, Vec<String>), String>> {
        let columns = text.lines().next().unwrap().split('\t').map(String::from).collect();
        let table = Table { path: "t.tsv".into(), text: text.to_string(), columns, quoting };
        let row = |row: Row<'_>| (row.line, row.fields.into_iter().map(String::from).collect());
        table.rows().map(|result| result.map(row).map_err(|e| e.to_string())).collect()
    }

    fn row(line: usize, fields: &[&str]) -> Result<(usize, Vec<String>), String> {
        Ok((line, fields.iter().map(|field| field.to_string()).collect()))
    }

    #[test]
    fn marks_are_text_where_the_form_says_so() {
        let text = "id\tx\r\n1\t\"so \"\"it\"\" is\"\r\n\r\n2\t\"open\r\n";
        assert_eq!(rows(text, Quoting::Literal), [row(2, &["1", "\"so \"\"it\"\" is\""]), row(4, &["2", "\"open"])]);
    }

    #[test]
    fn marks_go_where_the_field_needs_them() {
        let cases = [
            ("1\t\"so \"\"it\"\" is\"", ["1", "so \"it\" is"]),
            ("1\t\"a whole sentence.\"", ["1", "\"a whole sentence.\""]),
            ("1\t\"two\twords\"", ["1", "two\twords"]),
            ("\"two\nlines, \"\"quoted\"\"\"\t1", ["two\nlines, \"quoted\"", "1"]),
            ("1\t\"left\" open", ["1", "\"left\" open"]),
            ("1\t\"never closed", ["1", "\"never closed"]),
            ("1\t\"\"", ["1", "\"\""]),
            ("1\t\"\"\"\"", ["1", "\""]),
        ];
        for (line, expected) in cases {
            let last = row(3 + line.matches('\n').count(), &["2", "next"]);
            let found = rows(&format!("id\tx\n{line}\n2\tnext"), Quoting::WhereNeeded);
            assert_eq!(found, [row(2, &expected), last], "{line}");
        }
    }

    #[test]
    fn a_row_of_another_width_is_named_and_the_next_is_read() {
        for quoting in [Quoting::Literal, Quoting::WhereNeeded] {
            let found = rows("id\tx\n1\n2\tb\n3\tc\td\n\"4\n", quoting);
            assert_eq!(found[1], row(3, &["2", "b"]));
            let message = |at: usize| found[at].as_ref().unwrap_err().as_str();
            assert!(message(0).starts_with("t.tsv:2: 1 fields where the header names 2 columns; repair"));
            assert!(message(2).starts_with("t.tsv:4: 3 fields"));
            assert!(message(3).starts_with("t.tsv:5: 1 fields"));
        }
    }
}
