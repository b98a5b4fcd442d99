//! Decodes instructions and checks the types of their operands.

use super::lex::Token;
use super::ops::{self, Function};
use super::parse::Scope;
use super::types::Ty;

/// A decoded instruction.
pub struct Instruction {
    /// The register of the guard predicate, and true if it is negated.
    pub guard: Option<(u32, bool)>,
    /// Its operation.
    pub kind: Kind,
    /// Its line in the text.
    pub line: u32,
}

/// The operation of an instruction.
pub enum Kind {
    /// Computes a register from operands.
    Compute { function: Function, to: u32, from: [PtxOperand; 3] },
    /// Combines a comparison with a predicate: `join(function(a, b), c)`.
    Test { function: Function, join: Function, to: u32, from: [PtxOperand; 3] },
    /// Reads a parameter.
    Parameter { index: usize, ty: Ty, to: u32, mask: u64 },
    /// Reads memory.
    Load { space: Space, ty: Ty, to: u32, mask: u64, address: Address },
    /// Reads consecutive elements, at an address that is a multiple of their total size.
    LoadVector { space: Space, ty: Ty, to: Vec<u32>, address: Address },
    /// Writes memory.
    Store { space: Space, ty: Ty, from: PtxOperand, address: Address },
    /// Modifies memory atomically.
    Atomic { space: Space, ty: Ty, function: Function, to: u32, from: [PtxOperand; 2], address: Address },
    /// Jumps to an instruction.
    Branch(usize),
    /// Waits at the block's barrier.
    Barrier,
    /// Reads a value from another lane of the warp. With a mask, all its lanes take part together.
    Shuffle { to: u32, value: PtxOperand, lane: PtxOperand, mask: Option<PtxOperand> },
    /// Multiplies matrices whose fragments are in the registers of a warp's threads, and adds a third (`mma`).
    Multiply(Box<Multiply>),
    /// Ends the thread.
    Return,
}

/// The registers of `mma.m16n8k16`, in the order of its operands.
pub struct Multiply {
    /// True if the factors are bf16; otherwise they are f16.
    pub bf16: bool,
    pub d: [u32; 4],
    pub a: [PtxOperand; 4],
    pub b: [PtxOperand; 2],
    pub c: [PtxOperand; 4],
}

/// A state space of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Global,
    Shared,
    Local,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub enum PtxOperand {
    Register(u32),
    Value(u64),
    /// The register (tid, ntid, ctaid, nctaid) and the axis; or laneid, which has no axis.
    Special(u8, u8),
}

/// The index of `%laneid` among the special registers.
pub const LANE: u8 = 4;

/// A memory address.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub base: PtxOperand,
    pub offset: u64,
}

/// Decodes an instruction from its tokens, without the semicolon.
pub(super) fn decode(tokens: &[Token], scope: &Scope) -> Result<Instruction, String> {
    let first = tokens.first().ok_or("empty statement")?;
    let line = first.line;
    let text = || tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ");
    let wrong = |why: String| format!("line {line}: {}: {why}", text());
    let mut operands = Operands { tokens, at: 0, scope };
    let guard = operands.guard().map_err(wrong)?;
    let opcode = operands.word().map_err(wrong)?;
    let kind = kind(opcode, &mut operands).map_err(wrong)?;
    if operands.at != tokens.len() {
        return Err(wrong("too many operands".into()));
    }
    Ok(Instruction { guard, kind, line })
}

fn kind(opcode: &str, operands: &mut Operands<'_>) -> Result<Kind, String> {
    let parts: Vec<&str> = opcode.split('.').collect();
    if parts.iter().any(|part| ["ftz", "sat", "approx"].contains(part)) {
        return Err("flushed, saturated and approximate results differ from the IR".into());
    }
    let ty = |name: &str| Ty::parse(name).ok_or_else(|| format!("unknown type {name}"));
    let unknown = || "unknown instruction".to_string();
    match parts[..] {
        ["ret"] => Ok(Kind::Return),
        ["bra"] => {
            let label = operands.word()?;
            let target = operands.scope.labels.get(label).ok_or_else(|| format!("no label {label}"))?;
            Ok(Kind::Branch(*target))
        }
        ["bar", "sync"] => match operands.word()? {
            "0" => Ok(Kind::Barrier),
            other => Err(format!("barrier {other} is not supported")),
        },
        ["shfl", "idx", "b32"] => operands.shuffle(false),
        ["shfl", "sync", "idx", "b32"] => operands.shuffle(true),
        ["mma", "sync", "aligned", "m16n8k16", "row", "col", "f32", of @ ("f16" | "bf16"), other, "f32"]
            if of == other =>
        {
            operands.multiply(of == "bf16")
        }
        ["ld", "param", of] => operands.parameter(ty(of)?),
        ["ld", space, of] => operands.load(space, ty(of)?),
        ["ld", space, "v2", of] => operands.load_vector::<2>(space, ty(of)?),
        ["ld", space, "v4", of] => operands.load_vector::<4>(space, ty(of)?),
        ["ld", "global", "nc", of] => operands.load("global", ty(of)?),
        ["st", space, of] => operands.store(space, ty(of)?),
        ["atom", space, operation, of] => operands.atomic(space, operation, ty(of)?),
        ["setp", relation, of] => operands.test(relation, None, ty(of)?),
        ["setp", relation, join, of] => operands.test(relation, Some(join), ty(of)?),
        ["selp", of] => {
            let of = ty(of)?;
            operands.compute(|a, b, p| if p & 1 == 1 { a } else { b }, of, &[of, of, Ty::Pred])
        }
        ["mov", of] => {
            let of = ty(of)?;
            operands.compute(|a, _, _| a, of, &[of])
        }
        ["cvta", "to", "global", "u64"] => operands.compute(|a, _, _| a, Ty::U(64), &[Ty::U(64)]),
        ["cvt", to, from] => operands.convert(ty(to)?, ty(from)?, None),
        ["cvt", rounding, to, from] => operands.convert(ty(to)?, ty(from)?, Some(rounding)),
        [name, "wide", of] => {
            let of = ty(of)?;
            let to = if matches!(of, Ty::S(_)) { Ty::S(64) } else { Ty::U(64) };
            let function = ops::wide(name, of).ok_or_else(unknown)?;
            operands.compute(function, to, &[of, of, to][..if name == "mad" { 3 } else { 2 }])
        }
        [name, "lo", of] => {
            let of = ty(of)?;
            let function = ops::integer(&format!("{name}.lo"), of).ok_or_else(unknown)?;
            operands.compute(function, of, &vec![of; if name == "mad" { 3 } else { 2 }])
        }
        [name, "rn", of] => {
            let of = ty(of)?;
            let function = ops::float(&format!("{name}.rn"), of).ok_or_else(unknown)?;
            let count = match name {
                "fma" => 3,
                "sqrt" => 1,
                _ => 2,
            };
            operands.compute(function, of, &vec![of; count])
        }
        [name @ ("neg" | "abs"), of] => {
            let of = ty(of)?;
            operands.compute(ops::float(name, of).ok_or_else(unknown)?, of, &[of])
        }
        [name @ ("shl" | "shr"), of] => {
            let of = ty(of)?;
            let function = ops::bitwise(name, of).or_else(|| ops::integer(name, of)).ok_or_else(unknown)?;
            operands.compute(function, of, &[of, Ty::U(32)])
        }
        [name @ ("clz" | "popc"), of] => {
            let of = ty(of)?;
            operands.compute(ops::bitwise(name, of).ok_or_else(unknown)?, Ty::U(32), &[of])
        }
        ["not", of] => {
            let of = ty(of)?;
            operands.compute(ops::bitwise("not", of).ok_or_else(unknown)?, of, &[of])
        }
        [name @ ("and" | "or" | "xor"), of] => {
            let of = ty(of)?;
            operands.compute(ops::bitwise(name, of).ok_or_else(unknown)?, of, &[of, of])
        }
        [name @ ("add" | "sub" | "div" | "rem" | "min" | "max"), of] => {
            let of = ty(of)?;
            let function = match of {
                // Without `.rn` sums and products can be fused.
                Ty::F(_) if name.starts_with('m') => ops::float(name, of),
                _ => ops::integer(name, of),
            };
            operands.compute(function.ok_or_else(unknown)?, of, &[of, of])
        }
        _ => Err(unknown()),
    }
}

struct Operands<'a> {
    tokens: &'a [Token],
    at: usize,
    scope: &'a Scope,
}

impl<'a> Operands<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        let token = self.tokens.get(self.at).ok_or("an operand is missing")?;
        self.at += 1;
        Ok(&token.text)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.text == text);
        self.at += usize::from(found);
        found
    }

    fn comma(&mut self) -> Result<(), String> {
        if self.take(",") { Ok(()) } else { Err("a comma is missing".into()) }
    }

    fn guard(&mut self) -> Result<Option<(u32, bool)>, String> {
        if !self.take("@") {
            return Ok(None);
        }
        let negated = self.take("!");
        let (register, ty) = self.register()?;
        if ty == Ty::Pred { Ok(Some((register, negated))) } else { Err("the guard is not a predicate".into()) }
    }

    fn register(&mut self) -> Result<(u32, Ty), String> {
        let name = self.word()?;
        self.find(name).ok_or_else(|| format!("{name} is not a register"))
    }

    fn find(&self, name: &str) -> Option<(u32, Ty)> {
        let digits = name.find(|c: char| c.is_ascii_digit())?;
        let (prefix, number) = name.split_at(digits);
        let (first, count, ty) = self.scope.registers.get(prefix)?;
        let number: u32 = number.parse().ok().filter(|number| number < count)?;
        Some((first + number, *ty))
    }

    /// Reads a source operand of a type, or of a wider one if that is allowed.
    fn source(&mut self, ty: Ty, wider: bool) -> Result<PtxOperand, String> {
        let negative = self.take("-");
        let word = self.word()?;
        if let Some((register, held)) = self.find(word) {
            let fits = if wider { ty.takes_wider(held) } else { ty.takes(held) };
            if !fits || negative {
                return Err(format!("{word} is {held:?}, not {ty:?}"));
            }
            return Ok(PtxOperand::Register(register));
        }
        if let Some((space, offset)) = self.scope.arrays.get(word) {
            let _ = space;
            return if ty.bits() == 64 { Ok(PtxOperand::Value(*offset)) } else { Err(format!("{word} is an address")) };
        }
        if let Some(special) = special(word) {
            return if ty.takes(Ty::U(32)) { Ok(special) } else { Err(format!("{word} has 32 bits")) };
        }
        literal(word, negative, ty)
            .map(PtxOperand::Value)
            .ok_or_else(|| format!("{word} is not an operand of type {ty:?}"))
    }

    fn destination(&mut self, ty: Ty, wider: bool) -> Result<(u32, Ty), String> {
        let (register, held) = self.register()?;
        let fits = if wider { ty.takes_wider(held) } else { ty.takes(held) };
        if fits { Ok((register, held)) } else { Err(format!("the result is {ty:?}, its register {held:?}")) }
    }

    fn compute(&mut self, function: Function, to: Ty, from: &[Ty]) -> Result<Kind, String> {
        let (to, _) = self.destination(to, false)?;
        let mut sources = [PtxOperand::Value(0); 3];
        for (source, ty) in sources.iter_mut().zip(from) {
            self.comma()?;
            *source = self.source(*ty, false)?;
        }
        Ok(Kind::Compute { function, to, from: sources })
    }

    fn convert(&mut self, to: Ty, from: Ty, rounding: Option<&str>) -> Result<Kind, String> {
        let function = ops::convert(to, from, rounding).ok_or("no such conversion, or not with this rounding")?;
        let (to, _) = self.destination(to, true)?;
        self.comma()?;
        let source = self.source(from, true)?;
        Ok(Kind::Compute { function, to, from: [source, PtxOperand::Value(0), PtxOperand::Value(0)] })
    }

    fn test(&mut self, relation: &str, join: Option<&str>, ty: Ty) -> Result<Kind, String> {
        let function = ops::compare(relation, ty).ok_or_else(|| format!("no comparison {relation} of {ty:?}"))?;
        let (to, _) = self.destination(Ty::Pred, false)?;
        let mut from = [PtxOperand::Value(0); 3];
        for source in &mut from[..2] {
            self.comma()?;
            *source = self.source(ty, false)?;
        }
        let Some(join) = join else { return Ok(Kind::Compute { function, to, from }) };
        let join = ops::bitwise(join, Ty::Pred).ok_or_else(|| format!("results cannot be joined by {join}"))?;
        self.comma()?;
        from[2] = self.source(Ty::Pred, false)?;
        Ok(Kind::Test { function, join, to, from })
    }

    fn parameter(&mut self, ty: Ty) -> Result<Kind, String> {
        let (to, held) = self.destination(ty, true)?;
        self.comma()?;
        if !self.take("[") {
            return Err("expected a parameter in brackets".into());
        }
        let name = self.word()?;
        let (index, bytes) = *self.scope.params.get(name).ok_or_else(|| format!("no parameter {name}"))?;
        if bytes != ty.bytes() || !self.take("]") {
            return Err(format!("parameter {name} has {bytes} bytes"));
        }
        Ok(Kind::Parameter { index, ty, to, mask: held.mask() })
    }

    fn address(&mut self) -> Result<Address, String> {
        if !self.take("[") {
            return Err("expected an address in brackets".into());
        }
        let base = self.source(Ty::U(64), false)?;
        let mut offset = 0;
        if self.take("+") {
            let word = self.word()?;
            offset = word.parse().map_err(|_| format!("{word} is not an offset"))?;
        }
        if self.take("]") { Ok(Address { base, offset }) } else { Err("a bracket is missing".into()) }
    }

    fn load(&mut self, space: &str, ty: Ty) -> Result<Kind, String> {
        let space = memory_space(space)?;
        let (to, held) = self.destination(ty, true)?;
        self.comma()?;
        Ok(Kind::Load { space, ty, to, mask: held.mask(), address: self.address()? })
    }

    fn load_vector<const N: usize>(&mut self, space: &str, ty: Ty) -> Result<Kind, String> {
        if N * ty.bytes() > 16 || ty.bytes() < 4 {
            return Err(format!("vectors of {N} elements of {} bits are not supported", ty.bits()));
        }
        let space = memory_space(space)?;
        let to: [u32; N] = self.list(|operands| Ok(operands.destination(ty, false)?.0))?;
        self.comma()?;
        Ok(Kind::LoadVector { space, ty, to: to.to_vec(), address: self.address()? })
    }

    fn store(&mut self, space: &str, ty: Ty) -> Result<Kind, String> {
        let space = memory_space(space)?;
        let address = self.address()?;
        self.comma()?;
        Ok(Kind::Store { space, ty, from: self.source(ty, true)?, address })
    }

    fn atomic(&mut self, space: &str, operation: &str, ty: Ty) -> Result<Kind, String> {
        let space = memory_space(space)?;
        let function = ops::atomic(operation, ty, space == Space::Shared)
            .filter(|_| space != Space::Local)
            .ok_or_else(|| format!("no atomic {operation} of {ty:?} in {space:?} memory"))?;
        let (to, _) = self.destination(ty, false)?;
        self.comma()?;
        let address = self.address()?;
        let mut from = [PtxOperand::Value(0); 2];
        for source in &mut from[..if operation == "cas" { 2 } else { 1 }] {
            self.comma()?;
            *source = self.source(ty, false)?;
        }
        Ok(Kind::Atomic { space, ty, function, to, from, address })
    }
}

impl Operands<'_> {
    fn multiply(&mut self, bf16: bool) -> Result<Kind, String> {
        let d = self.list(|operands| Ok(operands.destination(Ty::F(32), false)?.0))?;
        self.comma()?;
        let a = self.list(|operands| operands.source(Ty::B(32), false))?;
        self.comma()?;
        let b = self.list(|operands| operands.source(Ty::B(32), false))?;
        self.comma()?;
        let c = self.list(|operands| operands.source(Ty::F(32), false))?;
        Ok(Kind::Multiply(Box::new(Multiply { bf16, d, a, b, c })))
    }

    /// Reads exactly `N` operands in braces.
    fn list<T, const N: usize>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<[T; N], String> {
        let mut all = Vec::new();
        while self.take(if all.is_empty() { "{" } else { "," }) {
            all.push(one(self)?);
        }
        let count = all.len();
        let closed = self.take("}");
        all.try_into().ok().filter(|_| closed).ok_or_else(|| format!("expected {N} registers in braces, found {count}"))
    }

    fn shuffle(&mut self, sync: bool) -> Result<Kind, String> {
        let (to, _) = self.destination(Ty::B(32), false)?;
        self.comma()?;
        let value = self.source(Ty::B(32), false)?;
        self.comma()?;
        let lane = self.source(Ty::B(32), false)?;
        self.comma()?;
        if self.word()? != "31" {
            return Err("shuffles within parts of a warp are not supported".into());
        }
        let mask = if sync {
            self.comma()?;
            Some(self.source(Ty::B(32), false)?)
        } else {
            None
        };
        Ok(Kind::Shuffle { to, value, lane, mask })
    }
}

fn memory_space(name: &str) -> Result<Space, String> {
    match name {
        "global" => Ok(Space::Global),
        "shared" => Ok(Space::Shared),
        "local" => Ok(Space::Local),
        _ => Err(format!("unknown state space {name}")),
    }
}

fn special(word: &str) -> Option<PtxOperand> {
    if word == "%laneid" {
        return Some(PtxOperand::Special(LANE, 0));
    }
    let (name, axis) = word.strip_prefix('%')?.split_once('.')?;
    let name = ["tid", "ntid", "ctaid", "nctaid"].iter().position(|known| *known == name)?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    Some(PtxOperand::Special(name as u8, axis as u8))
}

/// Returns the bits of a literal of a type.
fn literal(word: &str, negative: bool, ty: Ty) -> Option<u64> {
    match ty {
        Ty::F(32) => u32::from_str_radix(word.strip_prefix("0f").filter(|hex| hex.len() == 8)?, 16).ok().map(u64::from),
        Ty::F(64) => u64::from_str_radix(word.strip_prefix("0d").filter(|hex| hex.len() == 16)?, 16).ok(),
        Ty::F(_) => None,
        _ => {
            let magnitude: i128 = word.parse().ok().filter(|value| *value <= i128::from(u64::MAX))?;
            let value = if negative { -magnitude } else { magnitude };
            let bits = ty.bits();
            let fits = ty == Ty::Pred || (value >= -(1i128 << (bits - 1)) && value < 1i128 << bits);
            fits.then_some(value as u64 & ty.mask())
        }
    }
}
