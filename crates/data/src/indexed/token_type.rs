//! How wide a token id is on disk.

/// The element types of the format, with Megatron's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenType {
    U8,
    I8,
    I16,
    I32,
    I64,
    F64,
    F32,
    U16,
}

impl TokenType {
    /// All types in the order of their codes, which begin at 1.
    pub const ALL: [TokenType; 8] = [
        TokenType::U8,
        TokenType::I8,
        TokenType::I16,
        TokenType::I32,
        TokenType::I64,
        TokenType::F64,
        TokenType::F32,
        TokenType::U16,
    ];

    /// Megatron's choice: u16 when the vocabulary has fewer than 65,500 entries, else i32.
    pub fn for_vocabulary(entries: usize) -> Self {
        if entries < 65_500 { TokenType::U16 } else { TokenType::I32 }
    }

    /// The code in the index header.
    pub fn code(self) -> u8 {
        match self {
            TokenType::U8 => 1,
            TokenType::I8 => 2,
            TokenType::I16 => 3,
            TokenType::I32 => 4,
            TokenType::I64 => 5,
            TokenType::F64 => 6,
            TokenType::F32 => 7,
            TokenType::U16 => 8,
        }
    }

    /// The type of a header's code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.code() == code)
    }

    /// Bytes a token.
    pub fn width(self) -> usize {
        match self {
            TokenType::U8 | TokenType::I8 => 1,
            TokenType::I16 | TokenType::U16 => 2,
            TokenType::I32 | TokenType::F32 => 4,
            TokenType::I64 | TokenType::F64 => 8,
        }
    }

    /// numpy's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            TokenType::U8 => "uint8",
            TokenType::I8 => "int8",
            TokenType::I16 => "int16",
            TokenType::I32 => "int32",
            TokenType::I64 => "int64",
            TokenType::F64 => "float64",
            TokenType::F32 => "float32",
            TokenType::U16 => "uint16",
        }
    }

    /// The type of numpy's name, if it is one of the format's.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The largest id the type holds exactly.
    pub fn largest_id(self) -> u32 {
        match self {
            TokenType::U8 => u8::MAX as u32,
            TokenType::I8 => i8::MAX as u32,
            TokenType::I16 => i16::MAX as u32,
            TokenType::U16 => u16::MAX as u32,
            TokenType::I32 => i32::MAX as u32,
            TokenType::F32 => 1 << 24,
            TokenType::I64 | TokenType::F64 => u32::MAX,
        }
    }

    /// Appends the bytes of `ids`; every id must be at most [`TokenType::largest_id`].
    pub fn encode(self, ids: &[u32], out: &mut Vec<u8>) {
        match self {
            TokenType::U8 | TokenType::I8 => append(ids, |id| [id as u8], out),
            TokenType::U16 | TokenType::I16 => append(ids, |id| (id as u16).to_le_bytes(), out),
            TokenType::I32 => append(ids, u32::to_le_bytes, out),
            TokenType::I64 => append(ids, |id| u64::from(id).to_le_bytes(), out),
            TokenType::F32 => append(ids, |id| (id as f32).to_le_bytes(), out),
            TokenType::F64 => append(ids, |id| f64::from(id).to_le_bytes(), out),
        }
    }

    /// Appends the ids in `bytes`, a whole number of tokens.
    ///
    /// # Errors
    /// The position within `bytes` (in tokens) and the value of the first element that is no id: below
    /// zero, beyond 32 bits or not whole.
    pub fn decode(self, bytes: &[u8], out: &mut Vec<u32>) -> Result<(), (usize, String)> {
        match self {
            TokenType::U8 => out.extend(bytes.iter().map(|&b| u32::from(b))),
            TokenType::U16 => {
                let (pairs, _) = bytes.as_chunks::<2>();
                out.extend(pairs.iter().map(|&b| u32::from(u16::from_le_bytes(b))));
            }
            TokenType::I8 => checked(bytes.iter().map(|&b| i64::from(b as i8)), out)?,
            TokenType::I16 => checked(bytes.as_chunks::<2>().0.iter().map(|&b| i64::from(i16::from_le_bytes(b))), out)?,
            TokenType::I32 => checked(bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(i32::from_le_bytes(b))), out)?,
            TokenType::I64 => checked(bytes.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b)), out)?,
            TokenType::F32 => whole(bytes.as_chunks::<4>().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))), out)?,
            TokenType::F64 => whole(bytes.as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)), out)?,
        }
        Ok(())
    }
}

/// Into room made at once: an iterator of single bytes does not become a copy.
fn append<const N: usize>(ids: &[u32], bytes: impl Fn(u32) -> [u8; N], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + ids.len() * N, 0);
    let (room, _) = out[start..].as_chunks_mut::<N>();
    for (room, &id) in room.iter_mut().zip(ids) {
        *room = bytes(id);
    }
}

fn checked(values: impl Iterator<Item = i64>, out: &mut Vec<u32>) -> Result<(), (usize, String)> {
    for (position, value) in values.enumerate() {
        out.push(u32::try_from(value).map_err(|_| (position, value.to_string()))?);
    }
    Ok(())
}

fn whole(values: impl Iterator<Item = f64>, out: &mut Vec<u32>) -> Result<(), (usize, String)> {
    for (position, value) in values.enumerate() {
        if !(0.0..=f64::from(u32::MAX)).contains(&value) || value.fract() != 0.0 {
            return Err((position, value.to_string()));
        }
        out.push(value as u32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_gives_back_its_ids() {
        for token_type in TokenType::ALL {
            assert_eq!(TokenType::from_code(token_type.code()), Some(token_type));
            assert_eq!(TokenType::from_name(token_type.name()), Some(token_type));
            let ids = [0, 1, 127, token_type.largest_id()];
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            token_type.encode(&ids, &mut bytes);
            assert_eq!(bytes.len(), ids.len() * token_type.width());
            token_type.decode(&bytes, &mut back).unwrap();
            assert_eq!(back, ids, "{}", token_type.name());
        }
        assert_eq!(TokenType::from_code(0), None);
        assert_eq!(TokenType::from_code(9), None);
    }

    #[test]
    fn what_is_no_id_is_named() {
        let mut out = Vec::new();
        let negative: Vec<u8> = [5i32, -1].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(TokenType::I32.decode(&negative, &mut out), Err((1, "-1".into())));
        let fraction = 0.5f64.to_le_bytes();
        assert_eq!(TokenType::F64.decode(&fraction, &mut out), Err((0, "0.5".into())));
        assert_eq!(TokenType::I64.decode(&(1i64 << 32).to_le_bytes(), &mut out), Err((0, "4294967296".into())));
    }
}
