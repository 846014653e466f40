//! The parts of `sentencepiece_model.proto` that encoding needs.

/// A `.model` file.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<PieceProto>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<TrainerSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<NormalizerSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PieceProto {
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    #[prost(enumeration = "PieceKind", optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum PieceKind {
    /// Found in text and made by merges.
    Normal = 1,
    Unknown = 2,
    /// Never found in text.
    Control = 3,
    /// Found in text before anything else.
    UserDefined = 4,
    Unused = 5,
    /// One byte of a character that is no piece.
    Byte = 6,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrainerSpec {
    #[prost(enumeration = "ModelKind", optional, tag = "3", default = "Unigram")]
    pub(super) model_kind: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(super) treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(super) byte_fallback: Option<bool>,
    #[prost(string, optional, tag = "44")]
    pub(super) unknown_surface: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ModelKind {
    Unigram = 1,
    Bpe = 2,
    Word = 3,
    Char = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NormalizerSpec {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    pub(super) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    pub(super) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub(super) escape_whitespaces: Option<bool>,
}
