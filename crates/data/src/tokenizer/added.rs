//! Added tokens (`<|endoftext|>` and the like) that a `tokenizer.json` finds in plain text.

use memchr::memmem::Finder;

/// The texts to look for.
pub(super) struct AddedTokens {
    finders: Vec<Finder<'static>>,
    may_be_cut: bool,
}

impl AddedTokens {
    pub(super) fn new(contents: &[String]) -> Self {
        let finders = contents.iter().map(|c| Finder::new(c.as_bytes()).into_owned()).collect();
        // A token with a blank inside, or one that begins with a blank, could lie across a cut.
        let may_be_cut = contents.iter().all(|c| !c.contains(char::is_whitespace));
        AddedTokens { finders, may_be_cut }
    }

    pub(super) fn occur_in(&self, text: &str) -> bool {
        self.finders.iter().any(|finder| finder.find(text.as_bytes()).is_some())
    }

    pub(super) fn may_be_cut(&self) -> bool {
        self.may_be_cut
    }
}
