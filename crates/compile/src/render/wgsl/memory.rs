//! Elements in memory: entire words, or parts of words.

use panoply_ir::kernel::{AtomicOp, ExprId, Guard, Kernel, LocalId, MemId, Memory, Op, Space};
use panoply_ir::{DType, Scalar, Target};

use super::super::expr::{Value, plus};
use super::super::ops::bare;
use super::expr::{Writer, is_literal};
use super::int64::PAIR;

/// A memory of the program.
pub(super) struct Mem {
    pub name: String,
    pub held: ElementStorage,
}

/// Representation of a memory's elements in WGSL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementStorage {
    /// One word of this type per element.
    Words(&'static str),
    /// One word per element, updated by atomic operations: `u32` or `i32`, an f32 as its bits.
    Atomic(&'static str),
    /// One native f16 per element.
    Halves,
    /// Several elements per word, only read by this kernel.
    Packed,
    /// Several elements per word.
    AtomicPacked,
}

impl ElementStorage {
    /// Returns the representation of a kernel's memory at a position.
    pub fn of(kernel: &Kernel, target: &Target, position: usize, mem: &Memory) -> ElementStorage {
        let (mut written, mut atomic) = (false, false);
        kernel.walk(&mut |stmt| match &stmt.op {
            Op::Store { mem, .. } => written |= mem.index() == position,
            Op::Atomic { mem, .. } => atomic |= mem.index() == position,
            _ => {}
        });
        let packed = matches!(mem.space, Space::Buffer(_)) && mem.dtype.bytes() < 4;
        match mem.dtype {
            DType::F16 if packed && target.f16 => ElementStorage::Halves,
            _ if packed && written => ElementStorage::AtomicPacked,
            _ if packed => ElementStorage::Packed,
            DType::I32 if atomic => ElementStorage::Atomic("i32"),
            _ if atomic => ElementStorage::Atomic("u32"),
            DType::I64 | DType::U64 if !target.int64 => ElementStorage::Words(PAIR),
            dtype => ElementStorage::Words(word(dtype)),
        }
    }

    /// Returns the element type of the array.
    pub fn element(self) -> String {
        match self {
            ElementStorage::Words(ty) => ty.to_string(),
            ElementStorage::Atomic(ty) => format!("atomic<{ty}>"),
            ElementStorage::Halves => "f16".to_string(),
            ElementStorage::Packed => "u32".to_string(),
            ElementStorage::AtomicPacked => "atomic<u32>".to_string(),
        }
    }
}

/// Returns the type of a word that holds one element.
fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => "u32",
        DType::I8 | DType::I16 | DType::I32 => "i32",
        DType::F16 | DType::BF16 | DType::F32 => "f32",
        DType::I64 => "i64",
        DType::U64 => "u64",
        DType::F64 => "f64",
    }
}

/// Returns the bytes of shared memory that a group needs, with elements stored in words, including memory used by
/// shuffles.
pub(super) fn shared_bytes(kernel: &Kernel, target: &Target) -> u64 {
    let mut shuffles = false;
    kernel.walk(&mut |stmt| shuffles |= matches!(stmt.op, Op::Collective { .. }));
    let items: u64 = kernel.group_size.iter().flatten().map(|width| u64::from(*width)).product();
    let bytes = |mem: &Memory| match mem.space {
        Space::Shared(len) => u64::from(len) * target.shared_elem_bytes(mem.dtype),
        Space::Buffer(_) | Space::Private(_) => 0,
    };
    let arrays: u64 = kernel.mems.iter().map(bytes).sum();
    arrays + if shuffles { 4 * items } else { 0 }
}

impl Writer<'_> {
    /// Returns an element's index in the array, as a `u32`.
    fn address(&self, mem: MemId, index: &str) -> String {
        let text = match self.kernel.mem(mem).space {
            Space::Buffer(_) => format!("({}off + {})", self.mems[mem.index()].name, index),
            Space::Shared(_) | Space::Private(_) => index.to_string(),
        };
        if let Some(digits) = text.strip_suffix("lu").filter(|digits| digits.parse::<u32>().is_ok()) {
            return format!("{digits}u");
        }
        if self.index == DType::U32 { text } else { format!("u32({})", bare(&text)) }
    }

    /// Returns an element's index as a name, or 0 if it must not be accessed.
    fn place(&mut self, mem: MemId, index: &str, inside: Option<&str>) -> String {
        let address = self.address(mem, index);
        let text = match inside {
            Some(inside) => format!("select(0u, {}, {inside})", bare(&address)),
            None => address,
        };
        self.name("u32", &text)
    }

    /// Renders the load of an element.
    fn read(&mut self, mem: MemId, place: &str) -> String {
        let dtype = self.kernel.mem(mem).dtype;
        let Mem { name, held } = &self.mems[mem.index()];
        let (per_word, shift) = within_word(dtype, place);
        match held {
            ElementStorage::Words(_) if dtype == DType::Bool => format!("({name}[{place}] != 0u)"),
            ElementStorage::Words(_) => format!("{name}[{place}]"),
            ElementStorage::Atomic(_) if dtype == DType::F32 => format!("bitcast<f32>(atomicLoad(&{name}[{place}]))"),
            ElementStorage::Atomic(_) => format!("atomicLoad(&{name}[{place}])"),
            ElementStorage::Halves => format!("f32({name}[{place}])"),
            ElementStorage::Packed => {
                let word = format!("{name}[{place} >> {per_word}]");
                self.read_word(dtype, &word, &shift)
            }
            ElementStorage::AtomicPacked => {
                let word = format!("atomicLoad(&{name}[{place} >> {per_word}])");
                self.read_word(dtype, &word, &shift)
            }
        }
    }

    /// Renders the store of an element.
    fn write(&mut self, mem: MemId, place: &str, value: &str, inside: Option<&str>) {
        let dtype = self.kernel.mem(mem).dtype;
        let Mem { name, held } = &self.mems[mem.index()];
        let (name, held) = (name.clone(), *held);
        let (per_word, shift) = within_word(dtype, place);
        let text = match held {
            ElementStorage::Words(_) if dtype == DType::Bool => format!("{name}[{place}] = u32({});", bare(value)),
            ElementStorage::Words(_) => format!("{name}[{place}] = {};", bare(value)),
            ElementStorage::Atomic(_) if dtype == DType::F32 => {
                format!("atomicStore(&{name}[{place}], bitcast<u32>({}));", bare(value))
            }
            ElementStorage::Atomic(_) => format!("atomicStore(&{name}[{place}], {});", bare(value)),
            // The value was already rounded to f16.
            ElementStorage::Halves => format!("{name}[{place}] = f16({});", bare(value)),
            ElementStorage::Packed | ElementStorage::AtomicPacked => {
                let mask = if dtype.bytes() == 1 { "0xffu" } else { "0xffffu" };
                // The value can depend on the element that is cleared here.
                let bits = self.word_of(dtype, value);
                let bits = self.name("u32", &bits);
                let word = format!("&{name}[{place} >> {per_word}]");
                format!("atomicAnd({word}, ~({mask} << {shift})); atomicOr({word}, {bits} << {shift});")
            }
        };
        self.guarded(inside, &text);
    }

    fn guarded(&mut self, inside: Option<&str>, text: &str) {
        match inside {
            Some(inside) => self.line(format!("if {inside} {{ {text} }}")),
            None => self.line(text),
        }
    }

    /// Returns for each lane from an index on the condition that it is in bounds, or `None` if no check is needed.
    fn inside(&mut self, mem: MemId, index: &str, lanes: u8, guard: Guard) -> Vec<Option<String>> {
        let len = self.len(mem);
        match guard {
            Guard::Proven | Guard::Unchecked => vec![None; lanes as usize],
            Guard::Checked if lanes == 1 => {
                vec![Some(self.name("bool", &format!("({index} < {len})")))]
            }
            Guard::Checked => {
                // The condition `index + lane < len` could wrap.
                let (ty, zero) = (self.type_name(self.index), self.index_literal(0));
                let room = self.name(ty, &format!("select({zero}, {len} - {index}, {index} < {len})"));
                let inside = |lane: u8| format!("({} < {room})", self.index_literal(u64::from(lane)));
                let texts: Vec<String> = (0..lanes).map(inside).collect();
                texts.iter().map(|text| Some(self.name("bool", text))).collect()
            }
        }
    }

    /// Loads elements from an index on, given as a name or literal.
    pub fn load(&mut self, mem: MemId, index: &str, lanes: u8, guard: Guard) -> Value {
        let index = self.dynamic_index(mem, index);
        let dtype = self.kernel.mem(mem).dtype;
        let zero = if guard == Guard::Checked { self.literal(Scalar::from_i128(dtype, 0)) } else { String::new() };
        let inside = self.inside(mem, &index, lanes, guard);
        let mut texts = Vec::new();
        for (lane, inside) in inside.iter().enumerate() {
            let place = self.place(mem, &self.lane_index(&index, lane), inside.as_deref());
            let text = self.read(mem, &place);
            texts.push(match inside {
                Some(inside) => format!("select({zero}, {}, {inside})", bare(&text)),
                None => text,
            });
        }
        Value { lanes: texts, atom: false, fixed: false }
    }

    /// Stores lanes from an index on.
    pub fn store(&mut self, mem: MemId, index: &str, value: &Value, guard: Guard) {
        let index = self.dynamic_index(mem, index);
        let inside = self.inside(mem, &index, value.lanes.len() as u8, guard);
        for (lane, inside) in inside.iter().enumerate() {
            let place = self.place(mem, &self.lane_index(&index, lane), inside.as_deref());
            self.write(mem, &place, &value.lanes[lane], inside.as_deref());
        }
    }

    fn lane_index(&self, index: &str, lane: usize) -> String {
        match lane {
            0 => index.to_string(),
            _ => format!("{}{}", plus(index, lane as u8), if self.index == DType::U32 { "u" } else { "lu" }),
        }
    }

    /// Hides a literal index into a fixed array in a variable: compilers reject literals out of bounds, even if
    /// guarded.
    fn dynamic_index(&mut self, mem: MemId, index: &str) -> String {
        match self.kernel.mem(mem).space {
            Space::Shared(_) | Space::Private(_) if is_literal(index) => self.opaque(self.type_name(self.index), index),
            _ => index.to_string(),
        }
    }

    /// Updates an element atomically.
    #[allow(clippy::too_many_arguments, reason = "these are the fields of one statement")]
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        mem: MemId,
        index: ExprId,
        value: ExprId,
        expected: Option<ExprId>,
        old: Option<LocalId>,
        guard: Guard,
    ) {
        let dtype = self.kernel.mem(mem).dtype;
        let ty = self.type_name(dtype);
        let [index, value, expected] = self.evaluate([index, value, expected.unwrap_or(value)]);
        let [index, value, expected] = [(self.type_name(self.index), index), (ty, value), (ty, expected)]
            .map(|(ty, value)| self.named(ty, &value));
        let index = self.dynamic_index(mem, &index);
        let inside = self.inside(mem, &index, 1, guard).swap_remove(0);
        let place = self.place(mem, &index, inside.as_deref());
        let result = match old {
            Some(old) => self.introduce(old).swap_remove(0),
            None => self.next_temporary(),
        };
        let (name, zero) = (&self.mems[mem.index()].name, self.zero(dtype));
        let at = format!("&{name}[{place}]");
        let text = atomic_text(op, dtype, &at, [&value, &expected], &result);
        self.line(format!("var {result}: {ty} = {zero};"));
        match inside {
            Some(inside) => self.line(format!("if {inside} {{ {text} }}")),
            None => self.line(format!("{{ {text} }}")),
        }
    }
}

/// Returns statements that update an element and assign the old value to a variable.
fn atomic_text(op: AtomicOp, dtype: DType, at: &str, [value, expected]: [&str; 2], result: &str) -> String {
    let is_float = dtype.is_float();
    match op {
        AtomicOp::Add if is_float => format!(
            "var seen = atomicLoad({at}); loop {{ let got = atomicCompareExchangeWeak({at}, seen, \
             bitcast<u32>(bitcast<f32>(seen) + {value})); if got.exchanged {{ break; }} seen = got.old_value; }} \
             {result} = bitcast<f32>(seen);"
        ),
        AtomicOp::Exchange if is_float => {
            format!("{result} = bitcast<f32>(atomicExchange({at}, bitcast<u32>({value})));")
        }
        // The weak exchange can fail although the values are equal.
        AtomicOp::CompareExchange => format!(
            "loop {{ let got = atomicCompareExchangeWeak({at}, {expected}, {value}); {result} = got.old_value; \
             if got.exchanged || (got.old_value != {expected}) {{ break; }} }}"
        ),
        AtomicOp::Add => format!("{result} = atomicAdd({at}, {value});"),
        AtomicOp::Min => format!("{result} = atomicMin({at}, {value});"),
        AtomicOp::Max => format!("{result} = atomicMax({at}, {value});"),
        AtomicOp::Exchange => format!("{result} = atomicExchange({at}, {value});"),
    }
}

/// Returns the shift from an element's index to its word's index, and the shift within the word.
fn within_word(dtype: DType, place: &str) -> (&'static str, String) {
    if dtype.bytes() == 1 {
        ("2u", format!("(({place} & 3u) << 3u)"))
    } else {
        ("1u", format!("(({place} & 1u) << 4u)"))
    }
}
