//! Parses a module's directives and declarations.

use std::collections::HashMap;

use super::decode::{Instruction, Kind, decode};
use super::lex::{Token, tokens};
use super::types::Ty;

/// A program: entry points by name.
pub struct Module {
    /// The entry points.
    pub entries: HashMap<String, Entry>,
    /// The architecture of `.target`; 86 for `sm_86`.
    pub target: u32,
}

/// An entry point.
#[derive(Default)]
pub struct Entry {
    /// Size of each parameter in bytes, in order.
    pub params: Vec<usize>,
    /// The block size of `.reqntid`.
    pub required: Option<[u32; 3]>,
    /// The body.
    pub code: Vec<Instruction>,
    /// Number of registers of a thread.
    pub registers: usize,
    /// Size of shared memory in bytes.
    pub shared: u64,
    /// Size of a thread's local memory in bytes.
    pub local: u64,
}

/// The names of a body.
#[derive(Default)]
pub(super) struct Scope {
    /// First register, number of registers, and their type, by prefix.
    pub registers: HashMap<String, (u32, u32, Ty)>,
    /// State space (shared or local) and offset of arrays.
    pub arrays: HashMap<String, (&'static str, u64)>,
    pub params: HashMap<String, (usize, usize)>,
    pub labels: HashMap<String, usize>,
}

/// Parses a module; an error names the line.
pub fn module(source: &str) -> Result<Module, String> {
    let tokens = tokens(source)?;
    let mut reader = Reader { tokens: &tokens, at: 0 };
    let mut module = Module { entries: HashMap::new(), target: 0 };
    reader.expect(".version")?;
    reader.next()?;
    reader.expect(".target")?;
    let target = reader.next()?;
    module.target = target
        .text
        .strip_prefix("sm_")
        .and_then(|level| level.parse().ok())
        .ok_or_else(|| format!("line {}: invalid target {}", target.line, target.text))?;
    reader.expect(".address_size")?;
    reader.expect("64")?;
    while !reader.is_done() {
        reader.expect(".visible")?;
        reader.expect(".entry")?;
        let name = reader.next()?.text.clone();
        let entry = entry(&mut reader)?;
        let multiplies = entry.code.iter().find(|instruction| matches!(instruction.kind, Kind::Multiply(_)));
        if let Some(instruction) = multiplies.filter(|_| module.target < 80) {
            return Err(format!("line {}: mma.m16n8k16 of floats requires sm_80", instruction.line));
        }
        module.entries.insert(name, entry);
    }
    Ok(module)
}

fn entry(reader: &mut Reader<'_>) -> Result<Entry, String> {
    let (mut entry, mut scope) = (Entry::default(), Scope::default());
    reader.expect("(")?;
    while !reader.take(")") {
        reader.expect(".param")?;
        let ty = reader.ty()?;
        pointer(reader)?;
        let name = reader.next()?.text.clone();
        scope.params.insert(name, (entry.params.len(), ty.bytes()));
        entry.params.push(ty.bytes());
        reader.take(",");
    }
    if reader.take(".reqntid") {
        let mut sizes = [1; 3];
        for (axis, size) in sizes.iter_mut().enumerate() {
            if axis > 0 && !reader.take(",") {
                break;
            }
            *size = reader.number()? as u32;
        }
        entry.required = Some(sizes);
    }
    reader.expect("{")?;
    let mut statements: Vec<&[Token]> = Vec::new();
    while !reader.take("}") {
        let first = reader.peek()?;
        match first.text.as_str() {
            ".reg" => registers(reader, &mut entry, &mut scope)?,
            ".shared" | ".local" => array(reader, &mut entry, &mut scope)?,
            _ if reader.tokens.get(reader.at + 1).is_some_and(|token| token.text == ":") => {
                if scope.labels.insert(first.text.clone(), statements.len()).is_some() {
                    return Err(format!("line {}: duplicate label {}", first.line, first.text));
                }
                reader.at += 2;
            }
            _ => statements.push(reader.statement()?),
        }
    }
    entry.code = statements.into_iter().map(|tokens| decode(tokens, &scope)).collect::<Result<_, _>>()?;
    Ok(entry)
}

/// Skips a parameter's `.ptr` attributes, which are only hints.
fn pointer(reader: &mut Reader<'_>) -> Result<(), String> {
    if reader.take(".ptr") {
        reader.take(".global");
        if reader.take(".align") {
            reader.number()?;
        }
    }
    Ok(())
}

fn registers(reader: &mut Reader<'_>, entry: &mut Entry, scope: &mut Scope) -> Result<(), String> {
    reader.expect(".reg")?;
    let ty = reader.ty()?;
    let prefix = reader.next()?.text.clone();
    reader.expect("<")?;
    let count = reader.number()? as u32;
    reader.expect(">")?;
    reader.expect(";")?;
    scope.registers.insert(prefix, (entry.registers as u32, count, ty));
    entry.registers += count as usize;
    Ok(())
}

/// Bytes of the widest access of an instruction; no instruction requires a larger alignment.
const WIDEST: u64 = 16;

/// Parses an array. Its address is aligned to no more than its declaration requires.
fn array(reader: &mut Reader<'_>, entry: &mut Entry, scope: &mut Scope) -> Result<(), String> {
    let shared = reader.next()?.text == ".shared";
    reader.expect(".align")?;
    let align = reader.number()?;
    let ty = reader.ty()?;
    let name = reader.next()?.text.clone();
    reader.expect("[")?;
    let count = reader.number()?;
    reader.expect("]")?;
    reader.expect(";")?;
    let (space, used) = if shared { ("shared", &mut entry.shared) } else { ("local", &mut entry.local) };
    let mut start = used.next_multiple_of(align.max(1));
    if align < WIDEST && start.is_multiple_of(2 * align) {
        start += align;
    }
    *used = start + count * ty.bytes() as u64;
    scope.arrays.insert(name, (space, start));
    Ok(())
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl<'t> Reader<'t> {
    fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn peek(&self) -> Result<&'t Token, String> {
        self.tokens.get(self.at).ok_or_else(|| "unexpected end of the text".to_string())
    }

    fn next(&mut self) -> Result<&'t Token, String> {
        let token = self.peek()?;
        self.at += 1;
        Ok(token)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.text == text);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        let token = self.next()?;
        if token.text == text {
            return Ok(());
        }
        Err(format!("line {}: expected {text}, found {}", token.line, token.text))
    }

    fn ty(&mut self) -> Result<Ty, String> {
        let token = self.next()?;
        let ty = token.text.strip_prefix('.').and_then(Ty::parse);
        ty.ok_or_else(|| format!("line {}: unknown type {}", token.line, token.text))
    }

    fn number(&mut self) -> Result<u64, String> {
        let token = self.next()?;
        token.text.parse().map_err(|_| format!("line {}: {} is not a number", token.line, token.text))
    }

    /// Returns the tokens up to the next semicolon.
    fn statement(&mut self) -> Result<&'t [Token], String> {
        let start = self.at;
        while self.next()?.text != ";" {}
        Ok(&self.tokens[start..self.at - 1])
    }
}
