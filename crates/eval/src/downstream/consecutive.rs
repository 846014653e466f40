//! A small task cut from WikiText: do two sentences follow one another?

use super::examples::Pair;
use crate::EvalError;
use crate::wikitext::detokenize;
use henge_random::{Permutation, key, mix};

/// Words of a sentence worth asking about.
const WORDS: std::ops::RangeInclusive<usize> = 8..=60;

/// How many pairs to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairCut {
    /// Pairs to learn from.
    pub training: usize,
    /// Pairs to be asked about, of other articles.
    pub held_out: usize,
    /// Chooses articles and pairs.
    pub seed: u64,
}

/// Cuts pairs of sentences from WikiText in its raw form (`.tokens`): training pairs, then held-out ones.
///
/// Half of either (label 1) are neighbours within a paragraph. In the other half (label 0) the second sentence
/// is one of another article. Training and held-out pairs share no article, and no first sentence comes twice.
///
/// # Errors
/// A text with fewer neighbours than are asked for, or with a part of a single article.
pub fn consecutive_pairs(text: &str, cut: PairCut) -> Result<[Vec<Pair>; 2], EvalError> {
    let articles = articles(text);
    let order = Permutation::new(key(cut.seed, "pairs.articles"), articles.len() as u64);
    let (mut training, mut held_out) = (Vec::new(), Vec::new());
    for at in 0..articles.len() as u64 {
        let article = order.apply(at) as usize;
        let part = if held_out.len() < cut.held_out { &mut held_out } else { &mut training };
        part.extend(articles[article].iter().map(|neighbours| (article, neighbours)));
    }
    let training = choose(&training, cut.training, mix(cut.seed, 0))?;
    Ok([training, choose(&held_out, cut.held_out, mix(cut.seed, 1))?])
}

/// Two sentences, one behind the other.
type Neighbours = [String; 2];

/// The neighbours of each article.
fn articles(text: &str) -> Vec<Vec<Neighbours>> {
    let mut articles = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_heading = line.starts_with("= ") && line.ends_with(" =");
        match (is_heading, line.starts_with("= = "), articles.last_mut()) {
            (true, false, _) => articles.push(Vec::new()),
            (false, _, Some(article)) => article.extend(neighbours(line)),
            _ => {}
        }
    }
    articles
}

fn neighbours(paragraph: &str) -> Vec<Neighbours> {
    let mut sentences: Vec<Vec<&str>> = vec![Vec::new()];
    for word in paragraph.split_whitespace() {
        sentences.last_mut().expect("one is always open").push(word);
        if matches!(word, "." | "?" | "!") {
            sentences.push(Vec::new());
        }
    }
    let worth = |sentence: &Vec<&str>| WORDS.contains(&sentence.len()) && !sentence.contains(&"<unk>");
    // The detokeniser takes the blank before a mark that stands between blanks.
    let text = |words: &Vec<&str>| detokenize(&format!("{} ", words.join(" "))).trim().to_string();
    let pairs = sentences.windows(2).filter(|pair| pair.iter().all(worth));
    pairs.map(|pair| [text(&pair[0]), text(&pair[1])]).collect()
}

fn choose(all: &[(usize, &Neighbours)], count: usize, key: u64) -> Result<Vec<Pair>, EvalError> {
    let (found, has_one_article) = (all.len(), all.iter().all(|(article, _)| *article == all[0].0));
    if found < count || has_one_article {
        let problem = format!("{found} pairs of neighbours, but {count} are wanted, of two articles or more");
        return Err(EvalError::Empty { place: "the text".to_string(), problem });
    }
    let order = Permutation::new(key, found as u64);
    let pair = |at: usize| {
        let (article, [first, next]) = all[order.apply(at as u64) as usize];
        let elsewhere = || {
            let from = (mix(key, at as u64) % found as u64) as usize;
            let others = all[from..].iter().chain(&all[..from]);
            let mut others = others.filter(|(other, _)| *other != article);
            &others.next().expect("there are two articles").1[1]
        };
        let label = (at + 1) % 2;
        let second = if label == 1 { next } else { elsewhere() };
        Pair { id: at.to_string(), first: first.clone(), second: second.clone(), label }
    };
    Ok((0..count).map(pair).collect())
}
