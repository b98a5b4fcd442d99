//! SPIR-V assembler: assembly text to the 32-bit words that drivers take.
//!
//! Programs are kept as text, which can be shown, compared and cached as in any other language. The crate `rspirv` is not used: it knows
//! every instruction, but has no assembler.
//!
//! Accepts the syntax of `spirv-as` and writes the same words, for the instructions in [`table`], one per line. It checks only what it
//! needs to encode the words; validation is left to the driver. `; Version: 1.1` at the start sets the version of the module.

mod table;

use std::collections::HashMap;

use panoply_device::{Error, ErrorKind, Result, SourceText};

use table::{INSTRUCTIONS, NAMES, ResultKind};

const MAGIC: u32 = 0x0723_0203;
const OP_TYPE_INT: u16 = 21;
const OP_TYPE_FLOAT: u16 = 22;
const OP_CONSTANT: u16 = 43;

/// Assembles a program; returns its words in native byte order.
///
/// # Errors
///
/// The text is not valid SPIR-V assembly; the note names the first invalid line.
pub fn assemble(label: &str, text: &SourceText) -> Result<Vec<u8>> {
    let mut assembler = Assembler { words: vec![MAGIC, 1 << 16, 0, 0, 0], ids: HashMap::new(), types: HashMap::new() };
    for (number, line) in text.source.lines().enumerate() {
        assembler.line(line).map_err(|why| {
            let refusal = format!("{label}: {} is not valid SPIR-V assembly; the first error follows", text.entry);
            Error::new(ErrorKind::CompileFailed, refusal).note(format!("line {}: {why}\n{line}", number + 1))
        })?;
    }
    assembler.words[3] = assembler.ids.len() as u32 + 1;
    Ok(assembler.words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

struct Assembler<'t> {
    words: Vec<u32>,
    /// Result ids by name, numbered in the order of first use.
    ids: HashMap<&'t str, u32>,
    /// Number of bits of each numeric type, and true for floats.
    types: HashMap<u32, (u32, bool)>,
}

type Line<T> = std::result::Result<T, String>;

impl<'t> Assembler<'t> {
    fn line(&mut self, line: &'t str) -> Line<()> {
        if let Some(minor) = line.strip_prefix("; Version: 1.") {
            let minor: u8 = minor.trim().parse().map_err(|_| format!("invalid minor version {minor}"))?;
            self.words[1] = 1 << 16 | u32::from(minor) << 8;
        }
        let mut tokens = tokens(line)?.into_iter().peekable();
        let Some(mut first) = tokens.next() else { return Ok(()) };
        let result = if tokens.next_if_eq(&"=").is_some() {
            let result = first;
            first = tokens.next().ok_or("an instruction is missing after =")?;
            Some(result)
        } else {
            None
        };
        let (_, opcode, gives) =
            INSTRUCTIONS.iter().find(|(name, ..)| *name == first).ok_or(format!("unknown instruction {first}"))?;
        let start = self.words.len();
        self.words.push(0);
        match (gives, result) {
            (ResultKind::Nothing, None) => {}
            (ResultKind::Name, Some(result)) => self.id(result)?,
            (ResultKind::Value, Some(result)) => {
                self.id(tokens.next().ok_or("a type is missing")?)?;
                self.id(result)?;
            }
            (ResultKind::Nothing, Some(_)) => return Err(format!("{first} has no result")),
            (ResultKind::Name | ResultKind::Value, None) => return Err(format!("{first} needs a result id")),
        }
        for token in tokens {
            self.operand(*opcode, start, token)?;
        }
        let length = u16::try_from(self.words.len() - start).map_err(|_| "an instruction is too long")?;
        self.words[start] = u32::from(length) << 16 | u32::from(*opcode);
        if let (OP_TYPE_INT | OP_TYPE_FLOAT, [id, bits, ..]) = (*opcode, &self.words[start + 1..]) {
            self.types.insert(*id, (*bits, *opcode == OP_TYPE_FLOAT));
        }
        Ok(())
    }

    fn operand(&mut self, opcode: u16, start: usize, token: &'t str) -> Line<()> {
        match token.as_bytes()[0] {
            b'%' => self.id(token),
            b'"' => {
                self.string(&token[1..token.len() - 1]);
                Ok(())
            }
            _ if opcode == OP_CONSTANT => self.constant(self.words[start + 1], token),
            b'0'..=b'9' => {
                self.words.push(token.parse().map_err(|_| format!("{token} is not a 32-bit number"))?);
                Ok(())
            }
            _ => {
                let known = NAMES.iter().find(|(name, _)| *name == token);
                self.words.push(known.ok_or(format!("unknown name {token}"))?.1);
                Ok(())
            }
        }
    }

    fn id(&mut self, name: &'t str) -> Line<()> {
        if !name.starts_with('%') {
            return Err(format!("{name} is not an id; ids begin with %"));
        }
        let next = self.ids.len() as u32 + 1;
        self.words.push(*self.ids.entry(name).or_insert(next));
        Ok(())
    }

    /// Appends a string: little-endian bytes, padded to a word with at least one zero byte.
    fn string(&mut self, text: &str) {
        let bytes = [text.as_bytes(), &[0]].concat();
        self.words.extend(bytes.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        }));
    }

    fn constant(&mut self, ty: u32, token: &str) -> Line<()> {
        let (bits, float) = *self.types.get(&ty).ok_or("the constant's type is not numeric")?;
        let wrong = || format!("{token} is not a constant of its type");
        let value = match (float, bits) {
            (false, _) => token.parse::<u64>().map_err(|_| wrong())?,
            (true, 32) => match beyond(token, 128, 23) {
                Some(bits) => bits | u64::from(token.starts_with('-')) << 31,
                None => token.parse::<f32>().map_err(|_| wrong())?.to_bits().into(),
            },
            (true, _) => match beyond(token, 1024, 52) {
                Some(bits) => bits | u64::from(token.starts_with('-')) << 63,
                None => token.parse::<f64>().map_err(|_| wrong())?.to_bits(),
            },
        };
        self.words.push(value as u32);
        if bits > 32 {
            self.words.push((value >> 32) as u32);
        }
        Ok(())
    }
}

/// Returns the bits of an infinity or NaN without the sign, written in hexadecimal with an exponent out of range; `None` for any other
/// number.
fn beyond(token: &str, exponent: u64, fraction_bits: u32) -> Option<u64> {
    let (digits, of) = token.trim_start_matches('-').strip_prefix("0x1")?.split_once("p+")?;
    let digits = format!("{:0<16}", digits.trim_start_matches('.'));
    let fraction = u64::from_str_radix(&digits, 16).ok()? >> (64 - fraction_bits);
    (of.parse() == Ok(exponent)).then_some((2 * exponent - 1) << fraction_bits | fraction)
}

/// Splits a line into tokens, strings with their quotes, without the comment.
fn tokens(line: &str) -> Line<Vec<&str>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next().filter(|first| *first != ';') {
        let end = match first {
            '"' => 2 + rest[1..].find('"').ok_or("a string has no end")?,
            _ => rest.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(rest.len()),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use panoply_device::{Language, Signature};

    use super::*;

    fn words(source: &str) -> Result<Vec<u32>> {
        let signature = Signature { params: Vec::new(), index_bits: 64, hidden: false };
        let text = SourceText { language: Language::SpirV, source: source.into(), entry: "k".into(), signature };
        let bytes = assemble("opencl:0", &text)?;
        Ok(bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect())
    }

    /// A header, a string and constants, encoded by hand after section 2.3 of the specification.
    #[test]
    fn assemble_encodes_words_as_specified() {
        let source = "; Version: 1.1\nOpExtension \"abcd\" ; a comment\n%float = OpTypeFloat 32\n\
                      %a = OpConstant %float -0x1.8p+128\n%double = OpTypeFloat 64\n%b = OpConstant %double 1.5\n\
                      %c = OpConstant %double 0x1p+1024\n";
        let expected = [
            &[MAGIC, 0x0001_0100, 0, 6, 0][..],
            &[3 << 16 | 10, u32::from_le_bytes(*b"abcd"), 0],
            &[3 << 16 | 22, 1, 32],
            &[4 << 16 | 43, 1, 2, 0xFFC0_0000],
            &[3 << 16 | 22, 3, 64],
            &[5 << 16 | 43, 3, 4, 0, 0x3FF8_0000],
            &[5 << 16 | 43, 3, 5, 0, 0x7FF0_0000],
        ];
        assert_eq!(words(source).unwrap(), expected.concat());
    }

    #[test]
    fn assemble_reports_the_invalid_line() {
        for (line, why) in [
            ("this is not a program;", "unknown instruction this"),
            ("%1 = OpReturn", "OpReturn has no result"),
            ("OpLabel", "OpLabel needs a result id"),
            ("%1 =", "an instruction is missing after ="),
            ("%1 = OpFAdd", "a type is missing"),
            ("OpBranch L1", "unknown name L1"),
            ("OpExtension \"x", "a string has no end"),
            ("%1 = OpConstant %2 3", "the constant's type is not numeric"),
            ("OpBranch 5000000000", "5000000000 is not a 32-bit number"),
            ("1 = OpLabel", "1 is not an id; ids begin with %"),
        ] {
            let error = words(&format!("OpReturn\n{line}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CompileFailed);
            assert_eq!(error.message(), "opencl:0: k is not valid SPIR-V assembly; the first error follows");
            assert_eq!(error.notes(), [format!("line 2: {why}\n{line}")]);
        }
        let error = words("%int = OpTypeInt 32 0\n%1 = OpConstant %int -1").unwrap_err();
        assert_eq!(error.notes(), ["line 2: -1 is not a constant of its type\n%1 = OpConstant %int -1"]);
    }
}
