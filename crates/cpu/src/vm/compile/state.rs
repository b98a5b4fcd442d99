//! What the compiler knows while it writes a program: open scopes, values made so far, masks and loops.

use std::collections::HashMap;

use panoply_ir::kernel::{ExprId, Kernel, MemId};

use super::uniformity::{Reads, UniformityInfo};
use crate::vm::lane::Round;
use crate::vm::ops::Ops;
use crate::vm::program::{Affine, Instr, Kind, Mask, Slot, Src, Target, TileShape, known};

/// A value with lanes, or one for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Where it is.
    pub src: Src,
    /// The memory it is read from whenever it is used, if it was not copied.
    pub from: Option<MemoryOperand>,
    /// Whether it is the register or slot of a mutable local, which may change later.
    pub borrowed: bool,
}

/// The elements behind a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Whose.
    pub mem: MemId,
    /// The index.
    pub index: ExprId,
    /// How many elements after it.
    pub offset: u8,
}

impl Value {
    /// One value for all lanes.
    pub fn slot(slot: Slot) -> Value {
        Value::of(Src::slot(slot))
    }

    /// Lanes that nothing changes.
    pub fn of(src: Src) -> Value {
        Value { src, from: None, borrowed: false }
    }
}

/// Where a local's value is kept.
#[derive(Clone, Copy, Debug)]
pub enum LocalValue {
    /// One for all lanes.
    Slot(Slot),
    /// A linear function of the coordinates.
    Affine(Affine),
    /// Lanes.
    Lanes(Value),
}

/// A local in scope.
#[derive(Clone, Debug)]
pub struct LocalState {
    /// The scope it was declared in.
    pub level: usize,
    /// Its value, by element of a vector.
    pub held: Vec<LocalValue>,
}

/// Instructions under way, and the stable values made in them.
#[derive(Default)]
pub struct OpenScope {
    /// The instructions so far.
    pub code: Vec<Instr>,
    /// Values of stable expressions, by element of a vector.
    pub values: HashMap<(ExprId, u8), Value>,
    /// Stable affine indices.
    pub affines: HashMap<ExprId, Affine>,
}

/// A mask that is or was current, and where to go when it becomes empty.
#[derive(Clone, Copy)]
pub struct Region {
    /// The mask.
    pub mask: Mask,
    /// The end of what it runs.
    pub end: Target,
}

/// A loop being written.
#[derive(Clone, Copy)]
pub struct OpenLoop {
    /// After it.
    pub exit: Target,
    /// The end of a turn.
    pub next: Target,
    /// How many regions were open outside.
    pub outside: usize,
    /// How many regions are open at the top of a turn, the turn's own not counted.
    pub around_turn: usize,
    /// How many regions are open at the top of a turn.
    pub inside: usize,
    /// Whether lanes leave turns at different times.
    pub turn: bool,
}

/// A register before it has a place in the frame.
#[derive(Clone, Copy, Debug)]
pub struct VirtualRegister {
    /// Bytes of a lane.
    pub bytes: u8,
    /// Whether it is written in the ordinary case.
    pub hot: bool,
}

/// The compiler's state.
pub struct State<'k> {
    /// What is compiled.
    pub kernel: &'k Kernel,
    /// Which work-items a block covers.
    pub cover: TileShape,
    /// The loops to call.
    pub ops: &'static Ops,
    /// What `shapes` found out.
    pub facts: UniformityInfo,
    /// Open scopes: the launch, the block, and what is nested in it.
    pub open: Vec<OpenScope>,
    /// Values that statements may change, good until one does or lanes meet again.
    pub unstable_values: HashMap<(ExprId, u8), Value>,
    /// Affine indices that statements may change.
    pub unstable_affines: HashMap<ExprId, Affine>,
    /// Locals, once declared.
    pub locals: Vec<Option<LocalState>>,
    /// The scope of each stable expression, once known.
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
    /// How many masks there are.
    pub masks: u32,
    /// How many labels there are.
    pub labels: u32,
    /// Masks around the place being written, the current one last.
    pub regions: Vec<Region>,
    /// Loops around it.
    pub loops: Vec<OpenLoop>,
    /// Statements so far, to look up facts.
    pub number: usize,
}

impl<'k> State<'k> {
    /// Nothing written yet.
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

    /// The innermost scope.
    pub fn level(&self) -> usize {
        self.open.len() - 1
    }

    /// Adds an instruction to the innermost scope.
    pub fn emit(&mut self, instr: Instr) {
        self.emit_at(self.level(), instr);
    }

    /// Adds an instruction to a scope.
    pub fn emit_at(&mut self, level: usize, instr: Instr) {
        self.open[level].code.push(instr);
    }

    /// Opens a scope.
    pub fn begin(&mut self) {
        self.open.push(OpenScope::default());
    }

    /// Closes the innermost scope and adds its instructions to the one around it.
    pub fn end(&mut self) {
        let inner = self.open.pop().expect("every end has its begin");
        self.open.last_mut().expect("the launch's scope stays open").code.extend(inner.code);
    }

    /// Forgets values that a statement has changed.
    pub fn forget(&mut self, changed: Reads) {
        let reads = &self.facts.reads;
        self.unstable_values.retain(|(id, _), _| !reads[id.index()].meets(changed));
        self.unstable_affines.retain(|id, _| !reads[id.index()].meets(changed));
    }

    /// Forgets every value that a statement may have changed: other lanes come here, or come from elsewhere.
    pub fn forget_all(&mut self) {
        self.unstable_values.clear();
        self.unstable_affines.clear();
    }

    /// A new slot.
    pub fn slot(&mut self) -> Slot {
        self.slots.push(0);
        Slot(self.slots.len() as u32 - 1)
    }

    /// The slot that always holds these bits.
    pub fn constant(&mut self, bits: u64) -> Slot {
        let slots = &mut self.slots;
        *self.constants.entry(bits).or_insert_with(|| {
            slots.push(bits);
            Slot(slots.len() as u32 - 1)
        })
    }

    /// What a slot always holds, if it is a constant's.
    pub fn known(&self, slot: Slot) -> Option<u64> {
        let bits = self.slots[slot.0 as usize];
        (self.constants.get(&bits) == Some(&slot)).then_some(bits)
    }

    /// A new register that ordinary blocks write.
    pub fn register(&mut self, bytes: usize) -> Src {
        self.new_register(bytes, true)
    }

    /// A new register that only blocks at the edge of a buffer, or with holes in their mask, write.
    pub fn spare_register(&mut self, bytes: usize) -> Src {
        self.new_register(bytes, false)
    }

    fn new_register(&mut self, bytes: usize, hot: bool) -> Src {
        self.registers.push(VirtualRegister { bytes: bytes as u8, hot });
        Src { kind: Kind::Reg, step: bytes as u8, at: self.registers.len() as u32 - 1 }
    }

    /// A new mask.
    pub fn mask(&mut self) -> Mask {
        self.masks += 1;
        Mask(self.masks - 1)
    }

    /// A new label.
    pub fn label(&mut self) -> Target {
        self.labels += 1;
        Target(self.labels - 1)
    }

    /// The region that is current here.
    pub fn region(&self) -> Region {
        *self.regions.last().expect("the root region stays open")
    }
}
