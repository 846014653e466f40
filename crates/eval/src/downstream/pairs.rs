//! Classification of pairs of texts: MNLI, QQP and tables of the same kind.

use super::examples::{Examples, Malformed, Pair, Skipped, clean, wrong};
use super::table::{Quoting, Row, Table};
use crate::EvalError;
use henge_files::write_atomic;
use std::io::Write;
use std::path::Path;

/// How a table of pairs is laid out and what its labels mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTask {
    /// The task's name.
    pub name: String,
    /// Column that names an example; its line does where there is no such column.
    pub id: String,
    /// Column of the first text.
    pub first: String,
    /// Column of the second text.
    pub second: String,
    /// Column of the label.
    pub label: String,
    /// The labels in the order of the classes.
    pub classes: Vec<String>,
    /// A label that says there is none; such rows are left out.
    pub undecided: Option<String>,
    /// What quotation marks mean.
    pub quoting: Quoting,
}

impl PairTask {
    /// MNLI's files of training and of held-out examples in GLUE's folder; scores are of the
    /// two held-out files, matched and mismatched in genre.
    pub const MNLI_FILES: [&'static str; 3] = ["train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"];
    /// QQP's files of training and of held-out examples in GLUE's folder.
    pub const QQP_FILES: [&'static str; 2] = ["train.tsv", "dev.tsv"];

    /// MNLI as GLUE has it; classes in Megatron's order.
    pub fn mnli() -> Self {
        let columns = ["index", "sentence1", "sentence2", "gold_label"];
        let classes = ["contradiction", "entailment", "neutral"];
        Self { undecided: Some("-".into()), ..Self::new("MNLI", columns, &classes, Quoting::Literal) }
    }

    /// QQP as GLUE has it; class 1 is a duplicate.
    pub fn qqp() -> Self {
        let columns = ["id", "question1", "question2", "is_duplicate"];
        Self::new("QQP", columns, &["0", "1"], Quoting::WhereNeeded)
    }

    /// The pairs of [`super::consecutive_pairs`]; class 1 is of sentences that follow one another.
    pub fn consecutive() -> Self {
        let columns = ["id", "first", "second", "is_consecutive"];
        Self::new("consecutive sentences", columns, &["0", "1"], Quoting::Literal)
    }

    /// A task by its columns: id, first text, second text, label.
    pub fn new(name: &str, columns: [&str; 4], classes: &[&str], quoting: Quoting) -> Self {
        let [id, first, second, label] = columns.map(String::from);
        let classes = classes.iter().map(|class| class.to_string()).collect();
        Self { name: name.to_string(), id, first, second, label, classes, undecided: None, quoting }
    }

    /// Reads a table by the names in its header.
    ///
    /// # Errors
    /// A file without a needed column or without examples; under [`Malformed::Refuse`] a row of another
    /// width, with an empty text or with a label that is none, with its line.
    pub fn read(&self, path: &Path, malformed: Malformed) -> Result<Examples<Pair>, EvalError> {
        let table = Table::read(path, self.quoting)?;
        let remedy = format!("give {}'s file in its published layout", self.name);
        let labels = format!("give {}'s training or development file, its test files have no labels", self.name);
        let columns = Columns {
            id: table.column(&self.id),
            first: table.require(&self.first, &remedy)?,
            second: table.require(&self.second, &remedy)?,
            label: table.require(&self.label, &labels)?,
        };
        let mut examples = Examples::new();
        for row in table.rows() {
            match row {
                Ok(row) if self.is_undecided(&row, &columns) => {
                    let (file, problem) = (path.to_path_buf(), "it has no label, its readers disagreed".to_string());
                    examples.skipped.push(Skipped { file, line: row.line, problem });
                }
                row => examples.take(row.and_then(|row| self.pair(path, row, &columns)), malformed)?,
            }
        }
        examples.not_empty(path)
    }

    /// Writes `pairs` as a table that [`PairTask::read`] reads back; blanks in a row are made single ones.
    ///
    /// # Errors
    /// A file that cannot be written; there is then none of that name.
    ///
    /// # Panics
    /// When a label is not below the number of classes.
    pub fn write(&self, path: &Path, pairs: &[Pair]) -> Result<(), EvalError> {
        write_atomic(path, |file| {
            writeln!(file, "{}\t{}\t{}\t{}", self.id, self.first, self.second, self.label)?;
            pairs.iter().try_for_each(|Pair { id, first, second, label }| {
                writeln!(file, "{}\t{}\t{}\t{}", clean(id), clean(first), clean(second), self.classes[*label])
            })
        })?;
        Ok(())
    }

    fn is_undecided(&self, row: &Row<'_>, columns: &Columns) -> bool {
        self.undecided.as_deref() == Some(row.fields[columns.label].trim())
    }

    fn pair(&self, path: &Path, row: Row<'_>, columns: &Columns) -> Result<Pair, EvalError> {
        let text = |column: usize, name: &str| {
            let text = clean(&row.fields[column]);
            let empty = || wrong(path, row.line, format!("`{name}` is empty; fill it in or remove the line"));
            Some(text).filter(|text| !text.is_empty()).ok_or_else(empty)
        };
        let label = row.fields[columns.label].trim();
        let class = self.classes.iter().position(|class| class == label);
        let expected = || format!("`{}` is {label:?}; expected {}", self.label, self.classes.join(" or "));
        Ok(Pair {
            id: columns.id.map_or_else(|| format!("line {}", row.line), |id| row.fields[id].trim().to_string()),
            first: text(columns.first, &self.first)?,
            second: text(columns.second, &self.second)?,
            label: class.ok_or_else(|| wrong(path, row.line, expected()))?,
        })
    }
}

/// Where the columns are.
struct Columns {
    id: Option<usize>,
    first: usize,
    second: usize,
    label: usize,
}
