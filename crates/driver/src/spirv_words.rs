//! Checks that bytes are a complete SPIR-V module, because drivers read a module without checking its length.

/// The first word of every module.
const MAGIC: u32 = 0x0723_0203;
/// Words before the first instruction.
const HEADER: usize = 5;
const OP_FUNCTION_END: u32 = 56;

/// Returns a module's words, if its last instruction ends at the end of the bytes and is `OpFunctionEnd`. Drivers do not check this.
pub fn words(bytes: &[u8]) -> Option<Vec<u32>> {
    let chunks = bytes.chunks_exact(4);
    let words: Vec<u32> = chunks.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect();
    let (mut at, mut last) = (HEADER, 0);
    while at < words.len() {
        last = words[at] & 0xFFFF;
        at += (words[at] >> 16).max(1) as usize;
    }
    let ends = at == words.len() && last == OP_FUNCTION_END;
    (bytes.len().is_multiple_of(4) && words.first() == Some(&MAGIC) && ends).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_rejects_truncated_modules() {
        let module = |instructions: &[u32]| -> Vec<u8> {
            let words = [&[MAGIC, 1 << 16, 0, 1, 0], instructions].concat();
            words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
        };
        let whole = module(&[2 << 16 | 17, 6, 1 << 16 | OP_FUNCTION_END]);
        assert_eq!(words(&whole).map(|words| words.len()), Some(8));
        for length in 0..whole.len() {
            assert!(words(&whole[..length]).is_none(), "{length} bytes");
        }
        assert!(words(&module(&[9 << 16 | OP_FUNCTION_END])).is_none(), "an instruction reaches beyond the end");
        assert!(words(&module(&[1 << 16 | OP_FUNCTION_END])[4..]).is_none(), "there is no magic number");
    }
}
