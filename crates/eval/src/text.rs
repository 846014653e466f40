//! Text from tokens as they come, and where it stops.

use crate::EvalError;
use henge_data::tokenizer::Tokenizer;

/// A character has at most four bytes and a token at least one: what is not whole after
/// four tokens never will be.
const LONGEST_CHARACTER: usize = 4;
/// Tokens of the prompt that are decoded along, for tokenizers that write a word's blank
/// or not by what stands before it.
const LEAD: usize = 6;

/// The text of one sequence behind its prompt.
pub(crate) struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    stops: &'t [String],
    ids: Vec<u32>,
    /// Ids before this have become text.
    done: usize,
    /// First id that is decoded along, as the lead of the next ones.
    lead: usize,
    text: String,
    /// Bytes of `text` handed out.
    told: usize,
}

impl<'t> TextStream<'t> {
    /// The text behind `prompt`, which ends before any of `stops`.
    pub fn new(tokenizer: &'t Tokenizer, prompt: &[u32], stops: &'t [String]) -> Self {
        let ids = prompt[prompt.len().saturating_sub(LEAD)..].to_vec();
        Self { tokenizer, stops, done: ids.len(), ids, lead: 0, text: String::new(), told: 0 }
    }

    /// Takes a token; the stop that now stands in the text, if any, has been cut off with
    /// what follows it.
    pub fn push(&mut self, id: u32) -> Result<Option<String>, EvalError> {
        self.ids.push(id);
        let new = self.decode_new()?;
        if new.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.done < LONGEST_CHARACTER {
            return Ok(None);
        }
        Ok(self.append(&new))
    }

    /// Takes what was held back, at the end of the sequence.
    pub fn finish(&mut self) -> Result<Option<String>, EvalError> {
        let new = self.decode_new()?;
        Ok(self.append(&new))
    }

    /// Text that no later token can take back, and that was not returned before.
    pub fn settled(&mut self) -> &str {
        let open = self.stops.iter().map(|stop| open_suffix(&self.text, stop)).max().unwrap_or(0);
        self.tell(self.text.len() - open)
    }

    /// The rest.
    pub fn rest(&mut self) -> &str {
        self.tell(self.text.len())
    }

    /// All the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn tell(&mut self, end: usize) -> &str {
        let start = self.told.min(end);
        self.told = self.told.max(end);
        &self.text[start..end]
    }

    fn decode_new(&self) -> Result<String, EvalError> {
        let before = self.tokenizer.decode(&self.ids[self.lead..self.done])?;
        let all = self.tokenizer.decode(&self.ids[self.lead..])?;
        // A lead that ends inside a character has no text of its own to take away.
        Ok(all.strip_prefix(&before).unwrap_or(&all).to_string())
    }

    fn append(&mut self, new: &str) -> Option<String> {
        (self.lead, self.done) = (self.done, self.ids.len());
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.push_str(new);
        let found = |stop: &&String| self.text[from..].find(stop.as_str());
        let (at, stop) = self.stops.iter().filter_map(|stop| Some((found(&stop)?, stop))).min_by_key(|&(at, _)| at)?;
        self.text.truncate(from + at);
        Some(stop.clone())
    }
}

/// Bytes at the end of `text` that could be the beginning of `stop`.
fn open_suffix(text: &str, stop: &str) -> usize {
    let most = stop.len().saturating_sub(1).min(text.len());
    let begins = |&len: &usize| stop.as_bytes().starts_with(&text.as_bytes()[text.len() - len..]);
    (1..=most).rev().find(|len| text.is_char_boundary(text.len() - len) && begins(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_of(text: &str, stops: &[&str]) -> (Vec<String>, String, Option<String>) {
        let tokenizer = Tokenizer::load("gpt2").unwrap();
        let (mut prompt, mut ids) = (Vec::new(), Vec::new());
        tokenizer.encoder().encode("Once upon a time", &mut prompt).unwrap();
        tokenizer.encoder().encode(text, &mut ids).unwrap();
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut stream = TextStream::new(&tokenizer, &prompt, &stops);
        let (mut pieces, mut stopped) = (Vec::new(), None);
        for id in ids {
            stopped = stream.push(id).unwrap();
            if stopped.is_some() {
                break;
            }
            pieces.push(stream.settled().to_string());
        }
        stopped = stopped.or(stream.finish().unwrap());
        pieces.push(stream.rest().to_string());
        (pieces, stream.text().to_string(), stopped)
    }

    #[test]
    fn characters_of_several_tokens_come_whole() {
        let text = " in \u{65e5}\u{672c} \u{1f980}\u{1f980}, caf\u{e9}.";
        let (pieces, whole, stopped) = stream_of(text, &[]);
        assert_eq!((pieces.concat().as_str(), whole.as_str(), stopped), (text, text, None));
        assert!(pieces.iter().all(|piece| !piece.contains(char::REPLACEMENT_CHARACTER)), "{pieces:?}");
        assert!(pieces.iter().filter(|piece| !piece.is_empty()).count() > 5);
    }

    #[test]
    fn text_ends_before_the_first_stop_and_nothing_of_it_is_told() {
        let (pieces, whole, stopped) = stream_of(" there was.\n\nThe end, the very end", &["the", "\n\nThe"]);
        assert_eq!(pieces.concat(), " ");
        assert_eq!((whole.as_str(), stopped.as_deref()), (" ", Some("the")));
        let (pieces, whole, stopped) = stream_of(" was.\n\nThe end", &["\n\nThis", "\n\nThe end"]);
        assert_eq!((pieces.concat().as_str(), whole.as_str()), (" was.", " was."));
        assert_eq!(stopped.as_deref(), Some("\n\nThe end"));
        let (pieces, ..) = stream_of(" was.\n\nThe", &["\n\nThe end"]);
        assert_eq!(pieces.concat(), " was.\n\nThe", "a stop that does not come is text after all");
    }
}
