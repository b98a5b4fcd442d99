//! Moving elements from one order into another: square tiles through shared memory.
//!
//! Read along one axis and written along another, one of the two would touch a cache line for each element. A group reads
//! its square along the first, and takes it out of shared memory along the second.

use panoply_ir::alu::Alu;
use panoply_ir::kernel::{Builtin, ExprId, Guard, MemId};

use super::row_kernel::RowEmitter;
use super::thread_mapping::{AxisBinding, TransposeTile};
use crate::schedule::affine::LoopVar;

impl RowEmitter<'_> {
    /// Brings what a tile reads into shared memory, neighboring work-items along the axis where it lies side by side;
    /// then turns the tile around.
    pub(super) fn stage(&mut self, tile: &TransposeTile, grid: [u64; 3]) {
        let side = tile.side as u64;
        self.e.b.group([tile.side, tile.side, 1]);
        let straight = self.e.vars.clone();
        let local = [0, 1].map(|axis| self.e.b.builtin(Builtin::LocalId(axis)));
        let crossed: [ExprId; 2] = std::array::from_fn(|axis| {
            let (group, side) = (self.e.b.builtin(Builtin::GroupId(axis as u8)), self.e.b.index(side));
            let first = self.e.b.alu(Alu::Mul, &[group, side]);
            self.e.b.alu(Alu::Add, &[first, local[1 - axis]])
        });
        for (axis, at) in crossed.iter().enumerate() {
            let on_axis = |(_, kind): &&(LoopVar, AxisBinding)| *kind == AxisBinding::Grid(axis as u8);
            let (var, _) = self.mapping.outer.iter().find(on_axis).expect("a tile has both axes");
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

    /// A place in a tile in shared memory, whose rows are one longer than its side so that columns use all banks.
    fn cell(&mut self, row: ExprId, column: ExprId, side: u64) -> ExprId {
        let pitch = self.e.b.index(side + 1);
        let first = self.e.b.alu(Alu::Mul, &[row, pitch]);
        self.e.b.alu(Alu::Add, &[first, column])
    }

    /// Whole groups reach beyond the grid: those work-items do nothing. How many blocks this opens.
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
