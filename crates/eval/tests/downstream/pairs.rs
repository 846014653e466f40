//! MNLI, QQP and pairs cut from WikiText.

use crate::fixture::{file, message, test_data};
use henge_eval::downstream::{Malformed, Pair, PairCut, PairTask, consecutive_pairs};
use std::collections::HashSet;

#[test]
fn the_published_layouts_of_mnli_are_read() {
    let Some(data) = test_data() else { return };
    let mnli = PairTask::mnli();
    let folder = data.join("glue-sample/MNLI");
    let read = PairTask::MNLI_FILES.map(|name| mnli.read(&folder.join(name), Malformed::Refuse).unwrap());
    let labels = read.each_ref().map(|part| part.examples.iter().map(|pair| pair.label).collect::<Vec<_>>());
    // Read off the files by eye: training has one annotator's column less than the held-out ones.
    assert_eq!(labels[1], [2, 0]);
    assert_eq!(labels[2], [0, 0]);
    assert_eq!(
        read[0].examples[0].first,
        "Conceptually cream skimming has two basic dimensions - product and geography."
    );
    assert_eq!(read[0].examples[0].second, "Product and geography are what make cream skimming work.");
    assert_eq!((read[0].examples[0].label, read[0].examples[1].id.as_str()), (2, "1"));
    let few = mnli.read(&data.join("glue-sample/mnli_dev_matched_51rows.tsv"), Malformed::Refuse).unwrap();
    assert_eq!((few.examples.len(), few.skipped.len()), (51, 0));
    assert_eq!(few.examples[0].second, "Everyone really likes the newest benefits");
    let refused = message(mnli.read(&folder.join("test_matched.tsv"), Malformed::Refuse), &folder);
    assert!(
        refused.starts_with("test_matched.tsv:1: there is no column `gold_label` among index, promptID,"),
        "{refused}"
    );
    assert!(refused.ends_with("give MNLI's training or development file, its test files have no labels"), "{refused}");
}

#[test]
fn quotation_marks_in_mnli_are_text_and_undecided_rows_are_left_out() {
    let text = "sentence2\tgold_label\tsentence1\n\
                \"Yes, \"\"so\"\".\"\tentailment\t\"Open\n\
                b\t-\ta\n\
                It  is .  So .\tneutral\t He said\u{a0}it \n";
    let (_folder, path) = file("train.tsv", text);
    let read = PairTask::mnli().read(&path, Malformed::Refuse).unwrap();
    let pair = |id: &str, first: &str, second: &str, label| Pair {
        id: id.into(),
        first: first.into(),
        second: second.into(),
        label,
    };
    let expected =
        [pair("line 2", "\"Open", "\"Yes, \"\"so\"\".\"", 1), pair("line 4", "He said it", "It is. So .", 2)];
    assert_eq!(read.examples, expected);
    assert_eq!(read.skipped.iter().map(|skipped| skipped.line).collect::<Vec<_>>(), [3]);
    assert!(read.skipped[0].problem.contains("disagreed"));
}

/// The published training file has questions of several lines in quotation marks, and rows that are cut off.
const QQP: &str = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n\
    0\t1\t2\tWhat is \"it\"?\tWhat does \"it\" mean?\t1\n\
    1\t3\t4\t\"What is \"\"it\"\"?\"\t\"In two\nlines, \"\"so\"\"?\"\t0\n\
    2\t5\t6\tA row cut off\n\
    3\t7\t8\t\"All of it.\"\tWhy?\t0\n\
    4\t9\t10\t\tEmpty?\t0\n\
    5\t11\t12\tWho?\tWhere?\tyes\n";

#[test]
fn quotation_marks_in_qqp_go_where_they_were_needed() {
    let (_folder, path) = file("train.tsv", QQP);
    let read = PairTask::qqp().read(&path, Malformed::Skip).unwrap();
    let texts: Vec<(&str, &str, usize)> =
        read.examples.iter().map(|pair| (pair.first.as_str(), pair.second.as_str(), pair.label)).collect();
    let expected = [
        ("What is \"it\"?", "What does \"it\" mean?", 1),
        ("What is \"it\"?", "In two lines, \"so\"?", 0),
        ("\"All of it.\"", "Why?", 0),
    ];
    assert_eq!(texts, expected);
    assert_eq!(read.examples[2].id, "3");
    let skipped: Vec<(usize, &str)> = read.skipped.iter().map(|s| (s.line, s.problem.as_str())).collect();
    assert_eq!(skipped.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [5, 7, 8]);
    assert!(skipped[0].1.starts_with("4 fields where the header names 6 columns"));
    assert!(skipped[1].1.starts_with("`question1` is empty"));
    assert_eq!(skipped[2].1, "`is_duplicate` is \"yes\"; expected 0 or 1");
}

#[test]
fn the_first_malformed_row_is_refused_where_none_may_be_skipped() {
    let (folder, path) = file("train.tsv", QQP);
    let refused = message(PairTask::qqp().read(&path, Malformed::Refuse), folder.path());
    assert!(
        refused.starts_with("train.tsv:5: 4 fields where the header names 6 columns; repair or remove"),
        "{refused}"
    );
    let (folder, path) = file("dev.tsv", "id\tquestion1\tis_duplicate\n");
    let refused = message(PairTask::qqp().read(&path, Malformed::Skip), folder.path());
    let expected = "dev.tsv:1: there is no column `question2` among id, question1, is_duplicate; \
                    give QQP's file in its published layout";
    assert_eq!(refused, expected);
    let (folder, path) = file("dev.tsv", "id\tquestion1\tquestion2\tis_duplicate\n\n");
    let refused = message(PairTask::qqp().read(&path, Malformed::Skip), folder.path());
    assert!(refused.starts_with("dev.tsv: there is no example in it"), "{refused}");
    let gone = message(PairTask::qqp().read(&folder.path().join("no.tsv"), Malformed::Skip), folder.path());
    assert!(gone.starts_with("cannot read no.tsv: "), "{gone}");
}

#[test]
fn pairs_that_are_written_are_read_back() {
    let task = PairTask::consecutive();
    let pair = |id: &str, label| Pair { id: id.into(), first: "\"a\" b".into(), second: "c d.".into(), label };
    let pairs = [pair("0", 1), pair("1", 0)];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.tsv");
    task.write(&path, &pairs).unwrap();
    assert_eq!(task.read(&path, Malformed::Refuse).unwrap().examples, pairs);
}

fn article(title: &str, words: &[&str]) -> String {
    let sentence = |word: &&str| format!("{word} one two three , four five six seven {word} . ");
    let paragraph: String = words.iter().map(sentence).collect();
    format!(" = {title} = \n \n {paragraph}\n \n = = Part = = \n \n Too short . {paragraph}\n")
}

#[test]
fn neighbours_are_of_one_paragraph_and_strangers_of_another_article() {
    let text =
        [article("A", &["aa", "ab", "ac"]), article("B", &["ba", "bb", "bc"]), article("C", &["ca", "cb", "cc"])];
    let text = text.concat();
    let cut = PairCut { training: 4, held_out: 4, seed: 1 };
    // An article has four neighbours, so one article is held out, and in one there are no strangers.
    let refused = consecutive_pairs(&text, cut).unwrap_err().to_string();
    assert_eq!(refused, "the text: 4 pairs of neighbours, but 4 are wanted, of two articles or more");
    let text = text + &article("D", &["da", "db", "dc"]);
    let [training, held_out] = consecutive_pairs(&text, PairCut { held_out: 5, ..cut }).unwrap();
    assert_eq!((training.len(), held_out.len()), (4, 5));
    for (at, pair) in training.iter().chain(&held_out).enumerate() {
        let ends = |text: &str| (text.chars().next().unwrap(), text.chars().nth(1).unwrap());
        let ((first, rank), (second, next)) = (ends(&pair.first), ends(&pair.second));
        assert!(pair.first.ends_with(&format!("one two three, four five six seven {first}{rank}.")), "{}", pair.first);
        assert_eq!(pair.label == 1, first == second, "{pair:?}");
        assert!(pair.label == 0 || next as u32 == rank as u32 + 1, "{pair:?}");
        assert_eq!(pair.label, [1, 0][if at < 4 { at % 2 } else { (at - 4) % 2 }]);
    }
}

/// The task of 2,000 pairs to learn from and 500 to be asked about.
#[test]
fn wikitext_gives_two_thousand_five_hundred_pairs() {
    let Some(data) = test_data() else { return };
    let text = std::fs::read_to_string(data.join("wikitext103/wiki.valid.tokens")).unwrap();
    let cut = PairCut { training: 2000, held_out: 500, seed: 1234 };
    let [training, held_out] = consecutive_pairs(&text, cut).unwrap();
    assert_eq!((training.len(), held_out.len()), (2000, 500));
    for part in [&training, &held_out] {
        assert_eq!(part.iter().map(|pair| pair.label).sum::<usize>() * 2, part.len());
    }
    let firsts: HashSet<&str> = training.iter().map(|pair| pair.first.as_str()).collect();
    assert!(
        held_out.iter().all(|pair| !firsts.contains(pair.first.as_str()) && !firsts.contains(pair.second.as_str()))
    );
    assert!(firsts.len() > 1990, "{} different first sentences", firsts.len());
    let again = consecutive_pairs(&text, cut).unwrap();
    assert_eq!(again, [training.clone(), held_out]);
    let other = consecutive_pairs(&text, PairCut { seed: 1, ..cut }).unwrap();
    assert_ne!(other[0], training);
}
