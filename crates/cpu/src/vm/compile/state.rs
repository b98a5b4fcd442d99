//! State of the compiler while it emits a program: open scopes, computed values, masks and loops.

use std::collections::HashMap;

use panoply_ir::kernel::{ExprId, Kernel, MemId};

use super::uniformity::{Reads, UniformityInfo};
use crate::vm::lane::Round;
use crate::vm::ops::Ops;
use crate::vm::program::{Affine, Instr, Kind, Mask, Slot, Src, Target, TileShape, known};

/// A value: lanes, or one uniform value.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The location.
    pub src: Src,
    /// The memory it is read from at each use, if it was not copied.
    pub from: Option<MemoryOperand>,
    /// True if it is the register or slot of a mutable local, which may change later.
    pub borrowed: bool,
}

/// The elements that a cell points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// The memory.
    pub mem: MemId,
    /// The index.
    pub index: ExprId,
    /// Number of elements to add to the index.
    pub offset: u8,
}

impl Value {
    /// Creates a uniform value.
    pub fn slot(slot: Slot) -> Value {
        Value::of(Src::slot(slot))
    }

    /// Creates a value at a location that is not changed later.
    pub fn of(src: Src) -> Value {
        Value { src, from: None, borrowed: false }
    }
}

/// The storage of a local's value.
#[derive(Clone, Copy, Debug)]
pub enum LocalValue {
    /// A uniform value.
    Slot(Slot),
    /// A linear function of the coordinates.
    Affine(Affine),
    /// Lanes.
    Lanes(Value),
}

/// A local in scope.
#[derive(Clone, Debug)]
pub struct LocalState {
    /// Index of the scope that declares it.
    pub level: usize,
    /// The value, by element of a vector.
    pub held: Vec<LocalValue>,
}

/// A scope being emitted: its instructions, and the stable values computed in it.
#[derive(Default)]
pub struct OpenScope {
    /// The instructions so far.
    pub code: Vec<Instr>,
    /// Values of stable expressions, by element of a vector.
    pub values: HashMap<(ExprId, u8), Value>,
    /// Stable affine indices.
    pub affines: HashMap<ExprId, Affine>,
}

/// A mask that is or was current, and the jump target for when it becomes empty.
#[derive(Clone, Copy)]
pub struct Region {
    /// The mask.
    pub mask: Mask,
    /// The end of the code that runs under the mask.
    pub end: Target,
}

/// A loop being emitted.
#[derive(Clone, Copy)]
pub struct OpenLoop {
    /// The position after the loop.
    pub exit: Target,
    /// The end of an iteration.
    pub next: Target,
    /// Number of regions open outside the loop.
    pub outside: usize,
    /// Number of regions open at the start of an iteration, without the iteration's own.
    pub around_iteration: usize,
    /// Number of regions open at the start of an iteration.
    pub inside: usize,
    /// True if lanes leave an iteration at different times.
    pub divergent_continue: bool,
}

/// A register before it has an offset in the frame.
#[derive(Clone, Copy, Debug)]
pub struct VirtualRegister {
    /// Bytes of a lane.
    pub bytes: u8,
    /// True if ordinary blocks write it.
    pub hot: bool,
}

/// The compiler's state.
pub struct State<'k> {
    /// The kernel being compiled.
    pub kernel: &'k Kernel,
    /// The tile shape of a block.
    pub cover: TileShape,
    /// The available loops.
    pub ops: &'static Ops,
    /// The result of the uniformity analysis.
    pub facts: UniformityInfo,
    /// Open scopes: the launch, the block, and the scopes nested in it.
    pub open: Vec<OpenScope>,
    /// Values that statements may change, valid until a statement changes them or control flow merges.
    pub unstable_values: HashMap<(ExprId, u8), Value>,
    /// Affine indices that statements may change.
    pub unstable_affines: HashMap<ExprId, Affine>,
    /// Locals; `None` until declared.
    pub locals: Vec<Option<LocalState>>,
    /// Scope of each stable expression; `None` until computed.
    pub levels: Vec<Option<usize>>,
    /// Initial contents of slots.
    pub slots: Vec<u64>,
    /// Slots of constants, by bits.
    pub constants: HashMap<u64, Slot>,
    /// Slots of scalar parameters.
    pub params: Vec<Option<(Slot, Round)>>,
    /// Slots of buffer lengths.
    pub lengths: Vec<Option<Slot>>,
    /// Registers.
    pub registers: Vec<VirtualRegister>,
    /// Number of masks.
    pub masks: u32,
    /// Number of labels.
    pub labels: u32,
    /// Masks around the current position, the current mask last.
    pub regions: Vec<Region>,
    /// Loops around the current position.
    pub loops: Vec<OpenLoop>,
    /// Number of statements so far, used to look up facts.
    pub number: usize,
}

impl<'k> State<'k> {
    /// Creates the initial state.
    pub fn new(kernel: &'k Kernel, cover: TileShape, ops: &'static Ops, facts: UniformityInfo) -> State<'k> {
        let mut state = State {
            kernel,
            cover,
            ops,
            facts,
            open: vec![OpenScope::default(), OpenScope::default()],
            unstable_values: HashMap::new(),
            unstable_affines: HashMap::new(),
            locals: vec![None; kernel.locals.len()],
            levels: vec![None; kernel.exprs.len()],
            slots: vec![0; known::COUNT as usize],
            constants: HashMap::from([(0, known::ZERO)]),
            params: Vec::new(),
            lengths: vec![None; kernel.mems.len()],
            registers: Vec::new(),
            masks: 1,
            labels: 0,
            regions: Vec::new(),
            loops: Vec::new(),
            number: 0,
        };
        let end = state.label();
        state.regions.push(Region { mask: Mask::ROOT, end });
        state
    }

    /// Returns the index of the innermost scope.
    pub fn level(&self) -> usize {
        self.open.len() - 1
    }

    /// Emits an instruction to the innermost scope.
    pub fn emit(&mut self, instr: Instr) {
        self.emit_at(self.level(), instr);
    }

    /// Emits an instruction to a scope.
    pub fn emit_at(&mut self, level: usize, instr: Instr) {
        self.open[level].code.push(instr);
    }

    /// Opens a scope.
    pub fn begin(&mut self) {
        self.open.push(OpenScope::default());
    }

    /// Closes the innermost scope and appends its instructions to the enclosing one.
    pub fn end(&mut self) {
        let inner = self.open.pop().expect("every `end` has a matching `begin`");
        self.open.last_mut().expect("the launch's scope stays open").code.extend(inner.code);
    }

    /// Invalidates cached values that a statement has changed.
    pub fn forget(&mut self, changed: Reads) {
        let reads = &self.facts.reads;
        self.unstable_values.retain(|(id, _), _| !reads[id.index()].meets(changed));
        self.unstable_affines.retain(|id, _| !reads[id.index()].meets(changed));
    }

    /// Invalidates every cached value that a statement may have changed, where control flow splits or merges.
    pub fn forget_all(&mut self) {
        self.unstable_values.clear();
        self.unstable_affines.clear();
    }

    /// Allocates a slot.
    pub fn slot(&mut self) -> Slot {
        self.slots.push(0);
        Slot(self.slots.len() as u32 - 1)
    }

    /// Returns the constant slot with these bits.
    pub fn constant(&mut self, bits: u64) -> Slot {
        let slots = &mut self.slots;
        *self.constants.entry(bits).or_insert_with(|| {
            slots.push(bits);
            Slot(slots.len() as u32 - 1)
        })
    }

    /// Returns the value of a slot if it is a constant.
    pub fn known(&self, slot: Slot) -> Option<u64> {
        let bits = self.slots[slot.0 as usize];
        (self.constants.get(&bits) == Some(&slot)).then_some(bits)
    }

    /// Allocates a register that ordinary blocks write.
    pub fn register(&mut self, bytes: usize) -> Src {
        self.new_register(bytes, true)
    }

    /// Allocates a register that only blocks at the edge of a buffer, or with holes in their mask, write.
    pub fn spare_register(&mut self, bytes: usize) -> Src {
        self.new_register(bytes, false)
    }

    fn new_register(&mut self, bytes: usize, hot: bool) -> Src {
        self.registers.push(VirtualRegister { bytes: bytes as u8, hot });
        Src { kind: Kind::Reg, step: bytes as u8, at: self.registers.len() as u32 - 1 }
    }

    /// Allocates a mask.
    pub fn mask(&mut self) -> Mask {
        self.masks += 1;
        Mask(self.masks - 1)
    }

    /// Allocates a label.
    pub fn label(&mut self) -> Target {
        self.labels += 1;
        Target(self.labels - 1)
    }

    /// Returns the current region.
    pub fn region(&self) -> Region {
        *self.regions.last().expect("the root region stays open")
    }
}
