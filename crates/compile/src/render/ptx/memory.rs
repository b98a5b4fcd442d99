//! Renders loads, stores and atomics.

use panoply_ir::DType;
use panoply_ir::kernel::{AtomicOp, ExprId, Guard, MemId, Space};

use super::entry::{ARRAY_ALIGN, in_memory};
use super::writer::{Class, Writer, int_name};
use crate::render::assembler::Value;

impl Writer<'_> {
    fn space(&self, mem: MemId) -> &'static str {
        match self.kernel.mem(mem).space {
            Space::Buffer(_) => "global",
            Space::Shared(_) => "shared",
            Space::Private(_) => "local",
        }
    }

    /// Returns the address `index` elements of `bytes` bytes after another.
    pub fn advance(&mut self, base: &str, index: &str, bytes: u64) -> String {
        let distance = if self.index == DType::U32 {
            self.op(Class::B64, "mul.wide.u32", &[index, &bytes.to_string()])
        } else if bytes == 1 {
            index.to_string()
        } else {
            self.op(Class::B64, "shl.b64", &[index, &bytes.trailing_zeros().to_string()])
        };
        self.op(Class::B64, "add.s64", &[base, &distance])
    }

    /// Returns the address of an element; lanes of a vector are offsets from it.
    fn address(&mut self, mem: MemId, index: &str) -> String {
        let bytes = self.kernel.mem(mem).dtype.bytes() as u64;
        let base = match self.kernel.mem(mem).space {
            Space::Buffer(_) => self.base(mem).to_string(),
            Space::Shared(_) | Space::Private(_) => {
                let name = self.base(mem).to_string();
                self.op(Class::B64, "mov.u64", &[&name])
            }
        };
        if index == "0" { base } else { self.advance(&base, index, bytes) }
    }

    /// Loads an element from an address into a register.
    pub fn read(&mut self, space: &str, dtype: DType, place: &str) -> String {
        let held = Class::of(dtype);
        let class = match dtype {
            DType::F16 => Class::B16,
            DType::Bool | DType::BF16 => Class::B32,
            _ => held,
        };
        let raw = self.op(class, &format!("ld.{space}.{}", in_memory(dtype)), &[place]);
        self.convert_loaded(dtype, raw)
    }

    /// Converts an element's bits to its register representation.
    fn convert_loaded(&mut self, dtype: DType, raw: String) -> String {
        let value = match dtype {
            DType::Bool => return self.compare("setp.ne.u32", &[&raw, "0"]),
            DType::F16 => self.op(Class::F32, "cvt.f32.f16", &[&raw]),
            DType::BF16 => self.of_bits(dtype, &raw),
            _ => return raw,
        };
        self.read.insert(value.clone(), raw);
        value
    }

    /// Loads `lanes` elements from an index on.
    pub fn load(&mut self, mem: MemId, (at, index): (ExprId, &str), lanes: u8, guard: Guard) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let width = lanes.min((ARRAY_ALIGN / dtype.bytes()) as u8);
        let shared = matches!(self.kernel.mem(mem).space, Space::Shared(_)) && dtype.bytes() >= 4;
        let address = self.address(mem, index);
        if shared && guard != Guard::Checked && width > 1 && self.multiples.is_multiple_of(at, width.into()) {
            return (0..lanes)
                .step_by(width.into())
                .flat_map(|lane| self.read_vector(mem, &address, lane, width))
                .collect();
        }
        let cached = if self.is_constant(self.kernel.mem(mem).space) { ".nc" } else { "" };
        let space = format!("{}{cached}", self.space(mem));
        let room = self.room(mem, index, lanes, guard);
        (0..lanes)
            .map(|lane| {
                let place = place(&address, lane, dtype);
                if guard != Guard::Checked {
                    return self.read(&space, dtype, &place);
                }
                let inside = self.inside(mem, index, &room, lane);
                self.read_if(&inside, &space, dtype, &place)
            })
            .collect()
    }

    /// Loads lanes of shared memory in one instruction; the address of the first is aligned to the vector's size.
    fn read_vector(&mut self, mem: MemId, address: &str, first: u8, width: u8) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let lanes: Value = (0..width).map(|_| self.register(Class::of(dtype))).collect();
        let (names, place) = (lanes.join(", "), place(address, first, dtype));
        self.line(format_args!("ld.shared.v{width}.{} {{{names}}}, {place}", in_memory(dtype)));
        lanes
    }

    /// Loads an element, or returns zero if `inside` is false.
    fn read_if(&mut self, inside: &str, space: &str, dtype: DType, place: &str) -> String {
        let class = match dtype {
            DType::F16 => Class::B16,
            DType::Bool | DType::BF16 => Class::B32,
            _ => Class::of(dtype),
        };
        let raw = self.register(class);
        let zero = match class {
            Class::F32 => "0f00000000",
            Class::F64 => "0d0000000000000000",
            _ => "0",
        };
        self.set(class, &raw, zero);
        self.line(format_args!("@{inside} ld.{space}.{} {raw}, {place}", in_memory(dtype)));
        self.convert_loaded(dtype, raw)
    }

    /// Returns the number of elements from an index on, for vectors. The condition `index + lane < len` could wrap.
    fn room(&mut self, mem: MemId, index: &str, lanes: u8, guard: Guard) -> Option<String> {
        if lanes == 1 || guard != Guard::Checked {
            return None;
        }
        let (class, ty, len) = (Class::of(self.index), int_name(self.index), self.lens[mem.index()].clone());
        let left = self.op(class, &format!("sub.{ty}"), &[&len, index]);
        let inside = self.compare(&format!("setp.lt.{ty}"), &[index, &len]);
        Some(self.op(class, &format!("selp.{}", class.name()), &[&left, "0", &inside]))
    }

    /// Returns the condition that a lane is in bounds of a memory.
    fn inside(&mut self, mem: MemId, index: &str, room: &Option<String>, lane: u8) -> String {
        let compare = format!("setp.lt.{}", int_name(self.index));
        match room {
            Some(room) => self.compare(&compare, &[&lane.to_string(), room]),
            None => {
                let len = self.lens[mem.index()].clone();
                self.compare(&compare, &[index, &len])
            }
        }
    }

    /// Stores lanes from an index on.
    pub fn store(&mut self, mem: MemId, index: &str, value: &Value, guard: Guard) {
        let (dtype, space) = (self.kernel.mem(mem).dtype, self.space(mem));
        let address = self.address(mem, index);
        let room = self.room(mem, index, value.len() as u8, guard);
        for (lane, value) in value.iter().enumerate() {
            let lane = lane as u8;
            let raw = match dtype {
                DType::Bool => self.op(Class::B32, "selp.b32", &["1", "0", value]),
                DType::F16 => {
                    let value = self.in_register(Class::F32, value);
                    self.op(Class::B16, "cvt.rn.f16.f32", &[&value])
                }
                DType::BF16 => self.bits_of(dtype, value),
                // Memory instructions accept registers only.
                _ => self.in_register(Class::of(dtype), value),
            };
            let write = format!("st.{space}.{} {}, {raw}", unsigned(dtype), place(&address, lane, dtype));
            if guard == Guard::Checked {
                let inside = self.inside(mem, index, &room, lane);
                self.line(format_args!("@{inside} {write}"));
            } else {
                self.line(write);
            }
        }
    }

    /// Updates an element atomically and returns the old value.
    pub fn guarded_atomic(
        &mut self,
        op: AtomicOp,
        mem: MemId,
        index: &str,
        value: &str,
        expected: &str,
        guard: Guard,
    ) -> String {
        let (dtype, space) = (self.kernel.mem(mem).dtype, self.space(mem));
        let class = Class::of(dtype);
        let address = self.address(mem, index);
        let old = self.register(class);
        let (operation, operands) = match op {
            AtomicOp::Add if dtype == DType::F32 => ("add.f32".to_string(), value.to_string()),
            AtomicOp::Add => ("add.u32".to_string(), value.to_string()),
            AtomicOp::Min => (format!("min.{}", int_name(dtype)), value.to_string()),
            AtomicOp::Max => (format!("max.{}", int_name(dtype)), value.to_string()),
            AtomicOp::Exchange => ("exch.b32".to_string(), value.to_string()),
            AtomicOp::CompareExchange => ("cas.b32".to_string(), format!("{expected}, {value}")),
        };
        let instruction = format!("atom.{space}.{operation} {old}, [{address}], {operands}");
        if guard == Guard::Checked {
            let zero = if dtype.is_float() { "0f00000000" } else { "0" };
            self.set(class, &old, zero);
            let inside = self.inside(mem, index, &None, 0);
            self.line(format_args!("@{inside} {instruction}"));
        } else {
            self.line(instruction);
        }
        old
    }
}

/// Returns the address operand of a vector's lane.
fn place(address: &str, lane: u8, dtype: DType) -> String {
    let bytes = lane as usize * dtype.bytes();
    if bytes == 0 { format!("[{address}]") } else { format!("[{address}+{bytes}]") }
}

/// Returns the type under which an element is stored.
fn unsigned(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 => "u8",
        DType::I16 => "u16",
        DType::I32 => "u32",
        DType::I64 => "u64",
        _ => in_memory(dtype),
    }
}
