//! Transposes through square tiles in shared memory.
//!
//! If elements are loaded along one axis and stored along another, one of the two accesses would touch a cache line per
//! element. A group loads its tile along the first axis, and reads it from shared memory along the second.

use panoply_ir::alu::Alu;
use panoply_ir::kernel::{Builtin, ExprId, Guard, MemId};

use super::row_kernel::RowEmitter;
use super::thread_mapping::{AxisBinding, TransposeTile};
use crate::schedule::affine::LoopVar;

impl RowEmitter<'_> {
    /// Loads the tile into shared memory with neighboring work-items along the axis where it is contiguous, then reads
    /// it transposed.
    pub(super) fn stage(&mut self, tile: &TransposeTile, grid: [u64; 3]) {
        let side = tile.side as u64;
        self.e.b.group_size([tile.side, tile.side, 1]);
        let straight = self.e.vars.clone();
        let local = [0, 1].map(|axis| self.e.b.builtin(Builtin::LocalId(axis)));
        let crossed: [ExprId; 2] = std::array::from_fn(|axis| {
            let (group, side) = (self.e.b.builtin(Builtin::GroupId(axis as u8)), self.e.b.index(side));
            let first = self.e.b.alu(Alu::Mul, &[group, side]);
            self.e.b.alu(Alu::Add, &[first, local[1 - axis]])
        });
        for (axis, at) in crossed.iter().enumerate() {
            let on_axis = |(_, kind): &&(LoopVar, AxisBinding)| *kind == AxisBinding::Grid(axis as u8);
            let (var, _) = self.mapping.outer.iter().find(on_axis).expect("a tile spans two grid axes");
            self.e.vars.insert(var.id, *at);
        }
        let open = self.stay_below(crossed, grid, side);
        let mut shared: Vec<MemId> = Vec::new();
        for id in &tile.staged {
            let mem = self.e.b.shared("tile", self.nest.values[*id].1, tile.side * (tile.side + 1));
            let (value, at) = (self.e.value(*id), self.cell(local[1], local[0], side));
            self.e.b.store(mem, at, value, Guard::Proven);
            shared.push(mem);
        }
        (0..open).for_each(|_| self.e.b.end());
        self.e.b.barrier();
        self.e.clear();
        self.e.vars = straight;
        let ids = [0, 1].map(|axis| self.e.b.builtin(Builtin::GlobalId(axis)));
        self.open = self.stay_below(ids, grid, side);
        for (id, mem) in tile.staged.iter().zip(shared) {
            let at = self.cell(local[0], local[1], side);
            let value = self.e.b.load(mem, at, Guard::Proven);
            self.e.row[*id] = Some(self.e.b.bind("v", value));
        }
    }

    /// Returns the index of an element of a tile in shared memory. Rows are one element longer than the tile's side so
    /// that columns use all banks.
    fn cell(&mut self, row: ExprId, column: ExprId, side: u64) -> ExprId {
        let pitch = self.e.b.index(side + 1);
        let first = self.e.b.alu(Alu::Mul, &[row, pitch]);
        self.e.b.alu(Alu::Add, &[first, column])
    }

    /// Disables work-items beyond the grid, which exist because groups are complete. Returns the number of blocks
    /// opened.
    fn stay_below(&mut self, at: [ExprId; 2], grid: [u64; 3], side: u64) -> usize {
        let mut open = 0;
        for (at, extent) in at.into_iter().zip(grid) {
            if !extent.is_multiple_of(side) {
                let extent = self.e.b.index(extent);
                let inside = self.e.b.alu(Alu::Lt, &[at, extent]);
                self.e.b.begin_if(inside);
                open += 1;
            }
        }
        open
    }
}
