//! Texts as sequences: framing, cutting, padding, choices and windows.

use crate::fixture::{CLS, FIRST, PAD, SEP, UNKNOWN, spelling_tokenizer, test_data, tokenizer};
use henge_data::tokenizer::Tokenizer;
use henge_eval::downstream::{
    Answer, Malformed, MultipleChoice, Packer, Padded, Pair, Sequence, Sliding, SpanQuestion, Squad, Target, Truncation,
};

/// Tokens 4, 5, 6, ... are the words a, b, c, ...
fn letters() -> Tokenizer {
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    tokenizer(letters.iter().map(String::as_str))
}

/// Ids of letters, `[` for `[CLS]`, `]` for `[SEP]`.
fn ids(text: &str) -> Vec<u32> {
    let id = |c: char| match c {
        '[' => CLS,
        ']' => SEP,
        '.' => PAD,
        c => FIRST + (c as u32 - 'a' as u32),
    };
    text.chars().map(id).collect()
}

fn framed(tokens: &str, types: &str) -> Sequence {
    Sequence { tokens: ids(tokens), types: types.bytes().map(|digit| digit - b'0').collect() }
}

fn pair(first: &str, second: &str) -> Pair {
    Pair { id: "0".into(), first: first.into(), second: second.into(), label: 2 }
}

#[test]
fn pairs_are_framed_and_cut_by_either_rule() {
    let tokenizer = letters();
    let cases = [
        ("a b", "c d", 16, Truncation::LongestFirst, framed("[ab]cd]", "0000111")),
        ("a b c d e", "x y", 8, Truncation::LongestFirst, framed("[abc]xy]", "00000111")),
        ("a b c", "v w x", 7, Truncation::LongestFirst, framed("[ab]vw]", "0000111")),
        ("a b c", "v w x", 8, Truncation::LongestFirst, framed("[abc]vw]", "00000111")),
        ("a b c d e", "x y", 8, Truncation::Tail, framed("[abcde]]", "00000001")),
        ("a b", "x y z", 8, Truncation::Tail, framed("[ab]xyz]", "00001111")),
        ("a b", "w x y z", 8, Truncation::Tail, framed("[ab]wxy]", "00001111")),
    ];
    for (first, second, length, truncation, expected) in cases {
        let mut packer = Packer::new(&tokenizer, length, truncation).unwrap();
        let encoded = packer.pair(&pair(first, second)).unwrap();
        assert_eq!(encoded.sequences, [expected], "{first} | {second} | {truncation:?}");
        assert_eq!(encoded.target, Target::Class(2));
    }
}

#[test]
fn batches_are_padded_behind_their_sequences() {
    let tokenizer = letters();
    let mut packer = Packer::new(&tokenizer, 12, Truncation::LongestFirst).unwrap();
    let sequences = [packer.single("text", "a").unwrap(), packer.pair(&pair("a", "b c")).unwrap().sequences.remove(0)];
    let padded = Padded::new(&sequences, None, packer.pad());
    assert_eq!(padded.tokens, ids("[a]...[a]bc]"));
    assert_eq!(padded.types, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(padded.mask, [true, true, true, false, false, false, true, true, true, true, true, true]);
    let wide = Padded::new(&sequences, Some(8), packer.pad());
    assert_eq!((wide.tokens.len(), wide.mask.iter().filter(|&&held| held).count()), (16, 9));
}

#[test]
fn a_choice_is_four_sequences_of_question_with_option_then_passage() {
    let tokenizer = letters();
    let mut choice = MultipleChoice {
        id: "0".into(),
        passage: "v w x y z".into(),
        question: "a _ b".into(),
        options: ["m", "n", "o", "p"].map(String::from),
        label: 3,
        level: None,
    };
    let mut packer = Packer::new(&tokenizer, 10, Truncation::Tail).unwrap();
    let encoded = packer.choice(&choice).unwrap();
    assert_eq!(encoded.target, Target::Class(3));
    let expected = ["m", "n", "o", "p"].map(|option| framed(&format!("[a{option}b]vwxy]"), "0000011111"));
    assert_eq!(encoded.sequences, expected);
    choice.question = "a b".repeat(200);
    let mut long = Packer::new(&tokenizer, 512, Truncation::Tail).unwrap();
    let sequences = long.choice(&choice).unwrap().sequences;
    assert_eq!(sequences[0].tokens.len(), 1 + 128 + 1 + 5 + 1);
}

#[test]
fn a_tokenizer_that_is_not_berts_is_refused() {
    let gpt2 = Tokenizer::load("gpt2").unwrap();
    let error = Packer::new(&gpt2, 16, Truncation::Tail).err().unwrap().to_string();
    assert_eq!(error, "cannot load tokenizer gpt2: has no token [CLS]; give the tokenizer of a BERT");
    let error = Packer::new(&letters(), 4, Truncation::Tail).err().unwrap().to_string();
    assert!(error.starts_with("sequence length = 4: 5 or more"), "{error}");
}

fn asked(passage: &str, question: &str, answer: Option<&str>) -> SpanQuestion {
    let answers = answer.map(|text| Answer { text: text.into(), start: passage.find(text).unwrap() });
    SpanQuestion {
        id: "q".into(),
        passage: passage.into(),
        question: question.into(),
        answers: answers.into_iter().collect(),
    }
}

const NO_ANSWER: Target = Target::Span { start: 0, end: 0 };

#[test]
fn windows_slide_and_hold_the_answer_or_not() {
    let tokenizer = letters();
    let mut packer = Packer::new(&tokenizer, 9, Truncation::LongestFirst).unwrap();
    let sliding = Sliding { step: 3, longest_question: 2 };
    let windows = packer.windows(&[asked("a b c d e f g h", "x y z", Some("d e"))], sliding).unwrap();
    let tokens: Vec<&[u32]> = windows.iter().map(|window| window.sequence.tokens.as_slice()).collect();
    assert_eq!(tokens, [ids("[xy]abcd]"), ids("[xy]defg]"), ids("[xy]gh]")]);
    assert_eq!(windows[1].sequence.types, [0, 0, 0, 0, 1, 1, 1, 1, 1]);
    // Only the second window holds all of the answer.
    let targets: Vec<Target> = windows.iter().map(|window| window.target).collect();
    assert_eq!(targets, [NO_ANSWER, Target::Span { start: 4, end: 5 }, NO_ANSWER]);
    assert_eq!(windows.iter().map(|window| window.first).collect::<Vec<_>>(), [4, 4, 4]);
    assert_eq!(windows[1].places, [6..7, 8..9, 10..11, 12..13]);
    // d: 0 right in the first, 0 left in the second, which are equally long: the first. g: 0 right in the second,
    // 0 left in the third, which is shorter: the second.
    let best: Vec<&[bool]> = windows.iter().map(|window| window.is_best_context.as_slice()).collect();
    assert_eq!(best, [&[true, true, true, true][..], &[false, true, true, true], &[false, true]]);
}

#[test]
fn an_answer_that_ends_inside_a_word_takes_the_whole_token() {
    let tokenizer = tokenizer(["in", "1970", "##s", "caf\u{e9}", "cafe", "the"]);
    let mut packer = Packer::new(&tokenizer, 16, Truncation::LongestFirst).unwrap();
    let span = |packer: &mut Packer<'_>, answer| {
        let windows =
            packer.windows(&[asked("The \u{1f980} Caf\u{e9} in 1970s", "in", answer)], Sliding::BERT).unwrap();
        (windows[0].sequence.tokens.clone(), windows[0].target)
    };
    let word = |at: u32| FIRST + at;
    let tokens = vec![CLS, word(0), SEP, word(5), UNKNOWN, word(4), word(0), word(1), word(2), SEP];
    assert_eq!(span(&mut packer, Some("97")), (tokens.clone(), Target::Span { start: 7, end: 7 }));
    assert_eq!(span(&mut packer, Some("Caf\u{e9} in 1970s")), (tokens.clone(), Target::Span { start: 5, end: 8 }));
    assert_eq!(span(&mut packer, None), (tokens, NO_ANSWER));
}

#[test]
fn windows_that_would_miss_a_part_are_refused() {
    let tokenizer = letters();
    let mut packer = Packer::new(&tokenizer, 9, Truncation::LongestFirst).unwrap();
    let question = [asked("a b c d e f g h", "x y z", None)];
    let mut refusal =
        |step, longest_question| packer.windows(&question, Sliding { step, longest_question }).unwrap_err().to_string();
    assert!(refusal(5, 2).starts_with("window step = 5: 1 or more, and no more than the tokens left"));
    assert!(refusal(0, 2).starts_with("window step = 0"));
    let mut short = Packer::new(&tokenizer, 5, Truncation::LongestFirst).unwrap();
    let error = short.windows(&question, Sliding { step: 1, longest_question: 3 }).unwrap_err().to_string();
    assert!(error.starts_with("tokens left to the passage = 0: more, a longer sequence"), "{error}");
    let blank = [asked(" \n ", "x", None)];
    let error = short.windows(&blank, Sliding { step: 1, longest_question: 1 }).unwrap_err().to_string();
    assert_eq!(error, "question q: its passage has no token; remove it");
}

/// Each published answer is found again from the tokens of each window that says to hold it.
#[test]
fn answers_of_the_published_layout_come_back_from_their_tokens() {
    let Some(data) = test_data() else { return };
    let questions =
        Squad::V2.read(&data.join("squad-sample/allennlp_squad2.json"), Malformed::Refuse).unwrap().examples;
    let tokenizer = spelling_tokenizer();
    let mut packer = Packer::new(&tokenizer, 384, Truncation::LongestFirst).unwrap();
    let windows = packer.windows(&questions, Sliding::BERT).unwrap();
    let mut found = vec![0; questions.len()];
    for window in &windows {
        let Target::Span { start, end } = window.target else { panic!("a window has a span") };
        if (start, end) == (0, 0) {
            continue;
        }
        let (start, end) = (&window.places[start - window.first], &window.places[end - window.first]);
        let question = &questions[window.question];
        assert_eq!(&question.passage[start.start as usize..end.end as usize], question.answers[0].text);
        found[window.question] += 1;
    }
    assert_eq!(found[0], 0, "the impossible one");
    assert!(found[1..].iter().all(|&windows| windows > 0), "{found:?}");
    // Each token of a passage has its best context in one window.
    for (index, question) in questions.iter().enumerate() {
        let of_question = windows.iter().filter(|window| window.question == index);
        let best: usize = of_question.map(|window| window.is_best_context.iter().filter(|&&best| best).count()).sum();
        let characters = question.passage.chars().filter(|c| !c.is_whitespace()).count();
        assert_eq!(best, characters, "a token a character");
    }
}
