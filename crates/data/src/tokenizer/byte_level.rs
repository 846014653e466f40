//! Byte-level BPE: words by GPT-2's pattern, bytes merged by rank, results remembered per word.

use super::merge::{Merge, MergeTable, Merger};
use super::words::Words;
use hashbrown::{DefaultHashBuilder, HashTable};
use henge_files::Checksum;
use std::hash::BuildHasher;

/// Words longer than this are merged each time: they rarely come twice.
const LONGEST_CACHED_WORD: usize = 48;
/// The cache is emptied beyond this many words; a few megabytes an encoder.
const CACHED_WORDS: usize = 1 << 17;

/// A byte-level BPE vocabulary.
pub(super) struct ByteLevel {
    /// Bytes of each id; empty where the vocabulary has a gap.
    tokens: Vec<Box<[u8]>>,
    byte_ids: [u32; 256],
    merges: MergeTable,
    words: Words,
}

/// What earlier words became. Words and ids lie one after another: an allocation a word would leave
/// the heap in pieces, and a long preparation would grow.
#[derive(Default)]
pub(super) struct WordCache {
    places: HashTable<Place>,
    hasher: DefaultHashBuilder,
    words: Vec<u8>,
    ids: Vec<u32>,
    merger: Merger,
}

/// Where a word and its ids end, and how many they are.
#[derive(Clone, Copy)]
struct Place {
    word_end: u32,
    ids_end: u32,
    word_length: u8,
    ids_length: u8,
}

impl Place {
    fn word<'w>(&self, words: &'w [u8]) -> &'w [u8] {
        let end = self.word_end as usize;
        &words[end - usize::from(self.word_length)..end]
    }

    fn ids<'i>(&self, ids: &'i [u32]) -> &'i [u32] {
        let end = self.ids_end as usize;
        &ids[end - usize::from(self.ids_length)..end]
    }
}

impl ByteLevel {
    /// From the bytes of each id and the merges in order of rank, as ids (left, right, result).
    ///
    /// # Errors
    /// When a byte has no token of its own.
    pub(super) fn new(tokens: Vec<Box<[u8]>>, merges: &[(u32, u32, u32)]) -> Result<Self, String> {
        let mut byte_ids = [u32::MAX; 256];
        for (id, bytes) in tokens.iter().enumerate() {
            if let [byte] = bytes[..] {
                byte_ids[byte as usize] = id as u32;
            }
        }
        if let Some(byte) = byte_ids.iter().position(|&id| id == u32::MAX) {
            return Err(format!("byte {byte:#04x} has no token in this byte-level vocabulary"));
        }
        let mut table = MergeTable::with_capacity(merges.len());
        for (rank, &(left, right, id)) in merges.iter().enumerate() {
            table.insert((left, right), Merge { rank: rank as u32, id });
        }
        Ok(ByteLevel { tokens, byte_ids, merges: table, words: Words::new() })
    }

    /// From a vocabulary whose ids are the ranks of its tokens, as tiktoken keeps them.
    ///
    /// The pair that makes a token is what its bytes merge to under the earlier merges; a rank file lists
    /// no pairs, and taking every split of a token for a merge could give other ids.
    pub(super) fn from_ranks(tokens: Vec<Box<[u8]>>) -> Result<Self, String> {
        let mut model = Self::new(tokens, &[])?;
        let (mut merger, mut parts) = (Merger::default(), Vec::new());
        for id in 0..model.tokens.len() {
            let bytes = &model.tokens[id];
            if bytes.len() < 2 {
                continue;
            }
            parts.clear();
            merger.merge(bytes.iter().map(|&b| model.byte_ids[b as usize]), &model.merges, &mut parts);
            if let [left, right] = parts[..] {
                model.merges.insert((left, right), Merge { rank: id as u32, id: id as u32 });
            }
        }
        Ok(model)
    }

    pub(super) fn encode(&self, text: &str, cache: &mut WordCache, out: &mut Vec<u32>) {
        let mut start = 0;
        while start < text.len() {
            let end = self.words.end(text, start);
            self.encode_word(&text.as_bytes()[start..end], cache, out);
            start = end;
        }
    }

    fn encode_word(&self, word: &[u8], cache: &mut WordCache, out: &mut Vec<u32>) {
        let bytes = word.iter().map(|&b| self.byte_ids[b as usize]);
        cache.ids_of(word, out, |merger, out| merger.merge(bytes, &self.merges, out));
    }

    /// The bytes of `ids` as text.
    ///
    /// # Errors
    /// The first id that is not in the vocabulary.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, u32> {
        let mut bytes = Vec::new();
        for &id in ids {
            match self.tokens.get(id as usize) {
                Some(token) if !token.is_empty() => bytes.extend_from_slice(token),
                _ => return Err(id),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn token_id(&self, token: &str) -> Option<u32> {
        self.tokens.iter().position(|bytes| **bytes == *token.as_bytes()).map(|id| id as u32)
    }

    pub(super) fn size(&self) -> usize {
        self.tokens.len()
    }

    /// The bytes of an id of the vocabulary.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        &self.tokens[id as usize]
    }

    /// The pairs that merge, the lowest rank first.
    pub(super) fn merges(&self) -> Vec<(u32, u32)> {
        let mut merges: Vec<_> = self.merges.iter().map(|(pair, merge)| (merge.rank, *pair)).collect();
        merges.sort_unstable();
        merges.into_iter().map(|(_, pair)| pair).collect()
    }

    /// A checksum of the vocabulary and the merges, however they were stored.
    pub(super) fn fingerprint(&self) -> String {
        let mut checksum = Checksum::new();
        for bytes in &self.tokens {
            checksum.update(&(bytes.len() as u32).to_le_bytes());
            checksum.update(bytes);
        }
        for (left, right) in self.merges() {
            checksum.update(&left.to_le_bytes());
            checksum.update(&right.to_le_bytes());
        }
        checksum.hex()
    }
}

impl WordCache {
    /// Appends the ids of a word, remembered or as `encode` appends them.
    pub(super) fn ids_of(&mut self, word: &[u8], out: &mut Vec<u32>, encode: impl FnOnce(&mut Merger, &mut Vec<u32>)) {
        let hash = self.hasher.hash_one(word);
        if let Some(place) = self.places.find(hash, |place| place.word(&self.words) == word) {
            out.extend_from_slice(place.ids(&self.ids));
            return;
        }
        let before = out.len();
        encode(&mut self.merger, out);
        if word.len() <= LONGEST_CACHED_WORD {
            self.remember(hash, word, &out[before..]);
        }
    }

    fn remember(&mut self, hash: u64, word: &[u8], ids: &[u32]) {
        let (Ok(word_length), Ok(ids_length)) = (u8::try_from(word.len()), u8::try_from(ids.len())) else { return };
        if self.places.len() >= CACHED_WORDS {
            self.places.clear();
            self.words.clear();
            self.ids.clear();
        }
        self.words.extend_from_slice(word);
        self.ids.extend_from_slice(ids);
        let (word_end, ids_end) = (self.words.len() as u32, self.ids.len() as u32);
        let place = Place { word_end, ids_end, word_length, ids_length };
        let (hasher, words) = (&self.hasher, &self.words);
        self.places.insert_unique(hash, place, |place| hasher.hash_one(place.word(words)));
    }
}
