//! Renders loads, stores and atomics.

use panoply_ir::kernel::{AtomicOp, Guard, MemId, Space};
use panoply_ir::{DType, Scalar};

use super::module::Writer;
use crate::render::assembler::Value;
use crate::render::ops::in_memory;

/// Address of an element of a load or store, with its bounds check.
struct ElementPointer<'a> {
    mem: MemId,
    index: &'a str,
    lane: u8,
    /// Condition that the element is in bounds; `None` if no check is needed.
    inside: Option<String>,
}

impl Writer<'_> {
    /// Returns the storage class of a memory.
    pub fn class(&self, mem: MemId) -> &'static str {
        match self.kernel.mem(mem).space {
            Space::Buffer(_) => "CrossWorkgroup",
            Space::Shared(_) => "Workgroup",
            Space::Private(_) => "Function",
        }
    }

    /// Returns a pointer `index` elements after another. Access chains interpret indices as signed, so narrow indices
    /// are widened first.
    pub fn advance(&mut self, mem: MemId, base: &str, index: &str) -> String {
        let wide = self.cast(self.index, DType::U64, index);
        let element = self.ty(in_memory(self.kernel.mem(mem).dtype));
        let pointer = self.pointer(self.class(mem), &element);
        match self.kernel.mem(mem).space {
            Space::Buffer(_) => self.op(&pointer, "OpInBoundsPtrAccessChain", &[base, &wide]),
            Space::Shared(_) | Space::Private(_) => self.op(&pointer, "OpInBoundsAccessChain", &[base, &wide]),
        }
    }

    /// Returns a pointer to an element, `lane` elements after the index.
    fn address(&mut self, mem: MemId, index: &str, lane: u8) -> String {
        let base = self.bases[mem.index()].clone();
        if lane == 0 {
            return self.advance(mem, &base, index);
        }
        let (ty, lane) = (self.ty(self.index), self.int(self.index, lane.into()));
        let place = self.op(&ty, "OpIAdd", &[index, &lane]);
        self.advance(mem, &base, &place)
    }

    /// Converts an element from its memory to its register representation.
    pub fn convert_loaded(&mut self, dtype: DType, raw: String) -> String {
        match dtype {
            DType::Bool => self.cast(DType::U8, DType::Bool, &raw),
            DType::F16 | DType::BF16 => self.of_bits(dtype, &raw),
            _ => raw,
        }
    }

    /// Converts a value to its memory representation.
    fn convert_stored(&mut self, dtype: DType, value: &str) -> String {
        match dtype {
            DType::Bool => self.cast(DType::Bool, DType::U8, value),
            DType::F16 | DType::BF16 => self.bits_of(dtype, value),
            _ => value.to_string(),
        }
    }

    /// Loads `lanes` elements from an index on.
    pub fn load(&mut self, mem: MemId, index: &str, lanes: u8, guard: Guard) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let element = self.ty(in_memory(dtype));
        if lanes > 1 && guard != Guard::Checked && in_memory(dtype) == dtype {
            let (vector, pointer) = (self.vector(&element, lanes), self.address(mem, index, 0));
            let zero = self.int(DType::U64, 0);
            let all = self.call(&vector, "vloadn", &[&zero, &pointer, &lanes.to_string()]);
            return (0..lanes).map(|at| self.op(&element, "OpCompositeExtract", &[&all, &at.to_string()])).collect();
        }
        self.places(mem, index, lanes, guard)
            .into_iter()
            .map(|place| {
                let read = |writer: &mut Self| {
                    let pointer = writer.address(place.mem, place.index, place.lane);
                    writer.op(&element, "OpLoad", &[&pointer, "Aligned", &dtype.bytes().to_string()])
                };
                let raw = match &place.inside {
                    Some(inside) => {
                        let zero = self.constant(Scalar { dtype: in_memory(dtype), bits: 0 });
                        self.when(inside, &element, &zero, read)
                    }
                    None => read(self),
                };
                self.convert_loaded(dtype, raw)
            })
            .collect()
    }

    /// Returns the elements from an index on. For vectors the number of elements from there is compared, because `index
    /// + lane < len` could wrap.
    fn places<'a>(&mut self, mem: MemId, index: &'a str, lanes: u8, guard: Guard) -> Vec<ElementPointer<'a>> {
        let (ty, len) = (self.ty(self.index), self.lens[mem.index()].clone());
        let room = match (guard, lanes) {
            (Guard::Proven | Guard::Unchecked, _) => {
                return (0..lanes).map(|lane| ElementPointer { mem, index, lane, inside: None }).collect();
            }
            (Guard::Checked, 1) => {
                return vec![ElementPointer { mem, index, lane: 0, inside: Some(self.inside(mem, index)) }];
            }
            (Guard::Checked, _) => {
                let (inside, zero) = (self.inside(mem, index), self.int(self.index, 0));
                let left = self.op(&ty, "OpISub", &[&len, index]);
                self.select(&ty, &inside, &left, &zero)
            }
        };
        let place = |lane: u8| {
            let number = self.int(self.index, lane.into());
            ElementPointer { mem, index, lane, inside: Some(self.compare("OpULessThan", &[&number, &room])) }
        };
        (0..lanes).map(place).collect()
    }

    /// Returns the condition that an index is below a memory's length.
    fn inside(&mut self, mem: MemId, index: &str) -> String {
        let len = self.lens[mem.index()].clone();
        self.compare("OpULessThan", &[index, &len])
    }

    /// Stores lanes from an index on.
    pub fn store(&mut self, mem: MemId, index: &str, value: &Value, guard: Guard) {
        let dtype = self.kernel.mem(mem).dtype;
        if value.len() > 1 && guard != Guard::Checked && in_memory(dtype) == dtype {
            let element = self.ty(dtype);
            let lanes: Vec<&str> = value.iter().map(String::as_str).collect();
            let (vector, void) = (self.vector(&element, lanes.len() as u8), self.void());
            let all = self.op(&vector, "OpCompositeConstruct", &lanes);
            let (pointer, zero) = (self.address(mem, index, 0), self.int(DType::U64, 0));
            self.call(&void, "vstoren", &[&all, &zero, &pointer]);
            return;
        }
        let raw: Value = value.iter().map(|lane| self.convert_stored(dtype, lane)).collect();
        for (place, raw) in self.places(mem, index, raw.len() as u8, guard).into_iter().zip(&raw) {
            let write = |writer: &mut Self| {
                let pointer = writer.address(place.mem, place.index, place.lane);
                writer.line(format_args!("OpStore {pointer} {raw} Aligned {}", dtype.bytes()));
            };
            match &place.inside {
                Some(inside) => self.if_then(inside, write),
                None => write(self),
            }
        }
    }

    /// Updates an element atomically and returns the old value.
    pub fn guarded_atomic(
        &mut self,
        op: AtomicOp,
        mem: MemId,
        index: &str,
        [value, expected]: [&str; 2],
        guard: Guard,
    ) -> String {
        let dtype = self.kernel.mem(mem).dtype;
        let ty = self.ty(dtype);
        let act = |writer: &mut Self| {
            let pointer = writer.address(mem, index, 0);
            match op {
                AtomicOp::Add if dtype.is_float() => writer.add_float(mem, &pointer, value),
                _ => writer.atomic(op, dtype, &pointer, [value, expected]),
            }
        };
        if guard != Guard::Checked {
            return act(self);
        }
        let (inside, zero) = (self.inside(mem, index), self.constant(Scalar::from_i128(dtype, 0)));
        self.when(&inside, &ty, &zero, act)
    }

    /// Emits one atomic instruction, relaxed, with device scope.
    fn atomic(&mut self, op: AtomicOp, dtype: DType, pointer: &str, [value, expected]: [&str; 2]) -> String {
        let (ty, signed) = (self.ty(dtype), dtype.is_signed());
        let [device, relaxed] = [1, 0].map(|value| self.int(DType::U32, value));
        let instruction = match op {
            AtomicOp::Add => "OpAtomicIAdd",
            AtomicOp::Min if signed => "OpAtomicSMin",
            AtomicOp::Min => "OpAtomicUMin",
            AtomicOp::Max if signed => "OpAtomicSMax",
            AtomicOp::Max => "OpAtomicUMax",
            AtomicOp::Exchange => "OpAtomicExchange",
            AtomicOp::CompareExchange => {
                let operands = [pointer, &device, &relaxed, &relaxed, value, expected];
                return self.op(&ty, "OpAtomicCompareExchange", &operands);
            }
        };
        self.op(&ty, instruction, &[pointer, &device, &relaxed, value])
    }

    /// Adds to a float by a compare-and-exchange loop over its bits.
    fn add_float(&mut self, mem: MemId, pointer: &str, value: &str) -> String {
        let (float, uint) = (self.ty(DType::F32), self.ty(DType::U32));
        let as_bits = self.pointer(self.class(mem), &uint);
        let bits = self.op(&as_bits, "OpBitcast", &[pointer]);
        let first = self.op(&uint, "OpLoad", &[&bits, "Aligned", "4"]);
        let (head, end, old) = (self.label(), self.label(), self.result());
        let before = self.block.clone();
        self.bind_label(&head);
        let seen = self.op(&uint, "OpPhi", &[&first, &before, &old, &head]);
        let number = self.op(&float, "OpBitcast", &[&seen]);
        let sum = self.op(&float, "OpFAdd", &[&number, value]);
        let next = self.op(&uint, "OpBitcast", &[&sum]);
        let [device, relaxed] = [1, 0].map(|value| self.int(DType::U32, value));
        let operands = [bits.as_str(), &device, &relaxed, &relaxed, &next, &seen];
        self.line(format_args!("{old} = OpAtomicCompareExchange {uint} {}", operands.join(" ")));
        let done = self.compare("OpIEqual", &[&old, &seen]);
        self.branch(&done, &end, &head);
        self.bind_label(&end);
        self.op(&float, "OpBitcast", &[&old])
    }
}
