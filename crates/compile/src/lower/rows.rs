//! Kernels of rows: what most nests become.
//!
//! The kernel's body is a row. Loops follow one another in the order of their phases; what a loop's turns share is
//! computed before it, and what it combines is a value of the row after it.

use panoply_ir::Result;
use panoply_ir::alu::Alu;
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Builtin, CollectiveOp, ExprId, Guard, Kernel, LocalId, MemId, Scope};
use panoply_ir::reduce::ReduceOp;

use super::levels::{self, Levels, Place};
use super::mapping::{Kind, Mapping, Tile};
use super::scalar::{Argument, Emitter};
use crate::schedule::affine::Var;
use crate::schedule::nest::{Nest, Store, Value, ValueId};

/// A kernel, how many work-items it runs on, and what it is given.
pub struct Emitted {
    /// The kernel.
    pub kernel: Kernel,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// Its arguments, in the order of its parameters.
    pub arguments: Vec<Argument>,
}

/// Writes the kernel of a nest.
pub fn emit(graph: &Graph, nest: &Nest, levels: &Levels, mapping: &Mapping) -> Result<Emitted> {
    let (emitter, arguments) = Emitter::new(graph, nest, levels);
    let mut rows = Rows { e: emitter, nest, mapping, open: 0 };
    let grid = rows.begin();
    let last = levels.phase.iter().copied().max().unwrap_or(0);
    (0..=last).for_each(|phase| rows.phase(phase));
    rows.end();
    Ok(Emitted { kernel: rows.e.b.finish()?, grid, arguments })
}

struct Rows<'a> {
    e: Emitter<'a>,
    nest: &'a Nest,
    mapping: &'a Mapping,
    /// Blocks that hold the whole body.
    open: usize,
}

impl<'a> Rows<'a> {
    /// Gives the outer variables their values; the grid.
    fn begin(&mut self) -> [u64; 3] {
        let on = |kind: Kind| -> Vec<Var> {
            self.mapping.outer.iter().filter(|(_, other)| *other == kind).map(|(var, _)| *var).collect()
        };
        let mut grid = [1; 3];
        if let Some(lanes) = self.mapping.lanes {
            self.e.b.group([lanes, 1, 1]);
            let rows = on(Kind::Group);
            grid[0] = rows.iter().map(|var| var.extent).product::<u64>() * lanes as u64;
            let group = self.e.b.builtin(Builtin::GroupId(0));
            self.e.take_apart(group, &rows);
            return grid;
        }
        for axis in 0..3 {
            let vars = on(Kind::Grid(axis));
            grid[axis as usize] = vars.iter().map(|var| var.extent).product();
            let id = self.e.b.builtin(Builtin::GlobalId(axis));
            self.e.take_apart(id, &vars);
        }
        if let Some(tile) = &self.mapping.tile {
            self.stage(tile, grid);
        }
        grid
    }

    /// Brings what a tile reads into shared memory, neighbouring work-items along the axis where it lies side by side;
    /// then turns the tile around.
    fn stage(&mut self, tile: &Tile, grid: [u64; 3]) {
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
            let on_axis = |(_, kind): &&(Var, Kind)| *kind == Kind::Grid(axis as u8);
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
        self.e.forget();
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

    fn end(&mut self) {
        (0..self.open).for_each(|_| self.e.b.end());
    }

    /// Everything that can be done once the loops of earlier phases have ended.
    fn phase(&mut self, phase: usize) {
        for number in 0..self.nest.loops.len() {
            let place = Place::Turn(number);
            let reduced: Vec<ValueId> = (0..self.nest.values.len())
                .filter(|id| matches!(self.nest.values[*id].0, Value::Reduced(_, _, along) if along == number))
                .filter(|id| self.e.levels.phase[*id] == phase + 1)
                .collect();
            let stores: Vec<&Store> = self.stores(phase, place);
            if !reduced.is_empty() || !stores.is_empty() {
                self.inner_loop(number, &reduced, &stores);
            }
        }
        let stores = self.stores(phase, Place::Row);
        if stores.is_empty() {
            return;
        }
        // Later phases may use them too: they are computed where all work-items see them.
        for store in &stores {
            self.e.value(store.value);
        }
        if self.mapping.lanes.is_some() {
            let (lane, zero) = (self.e.b.builtin(Builtin::LocalId(0)), self.e.b.index(0));
            let first = self.e.b.alu(Alu::Eq, &[lane, zero]);
            self.e.b.begin_if(first);
        }
        stores.iter().for_each(|store| self.e.store(store));
        if self.mapping.lanes.is_some() {
            self.e.b.end();
        }
    }

    fn stores(&self, phase: usize, place: Place) -> Vec<&'a Store> {
        let (nest, levels) = (self.nest, self.e.levels);
        nest.stores.iter().filter(|store| levels.of_store(nest, store) == (place, phase)).collect()
    }

    fn inner_loop(&mut self, number: usize, reduced: &[ValueId], stores: &[&Store]) {
        let inputs = reduced.iter().map(|id| self.nest.values[*id].0.operands()[0]);
        let roots: Vec<ValueId> =
            inputs.chain(stores.iter().flat_map(|store| levels::store_needs(self.nest, store))).collect();
        self.e.before_loop(&roots);
        let sums: Vec<(ReduceOp, LocalId)> = reduced.iter().map(|id| self.e.start_running(*id, "sum")).collect();
        self.walk(number, 0, &mut |e| {
            e.turn.fill(None);
            for ((op, sum), id) in sums.iter().zip(reduced) {
                let next = e.value(e.nest.values[*id].0.operands()[0]);
                e.advance(*sum, *op, next);
            }
            stores.iter().for_each(|store| e.store(store));
        });
        self.e.turn.fill(None);
        self.e.running.clear();
        for ((op, sum), id) in sums.into_iter().zip(reduced) {
            let sum = self.e.b.get(sum);
            self.e.row[*id] = Some(match self.mapping.lanes {
                Some(_) => self.e.b.collective(CollectiveOp::Reduce(op), Scope::Group, sum),
                None => sum,
            });
        }
    }

    /// Writes the loops over a loop's variables from one on, and a turn inside them.
    fn walk(&mut self, number: usize, from: usize, turn: &mut dyn FnMut(&mut Emitter<'a>)) {
        let vars = &self.mapping.loops[number][from..];
        match vars.first() {
            None => turn(&mut self.e),
            Some((var, Kind::Sequential)) => {
                let (start, end, step) = (self.e.b.index(0), self.e.b.index(var.extent), self.e.b.index(1));
                let counter = self.e.b.begin_for("t", start, end, step);
                self.e.vars.insert(var.id, counter);
                self.walk(number, from + 1, turn);
                self.e.b.end();
            }
            Some(_) => {
                let vars: Vec<Var> = vars.iter().map(|(var, _)| *var).collect();
                self.across_lanes(&vars, turn);
            }
        }
    }

    /// Writes the turns of variables that a group's work-items share out: full rounds of all, then a last round of some.
    fn across_lanes(&mut self, vars: &[Var], turn: &mut dyn FnMut(&mut Emitter<'a>)) {
        let lanes = self.mapping.lanes.expect("lanes belong to groups") as u64;
        let count: u64 = vars.iter().map(|var| var.extent).product();
        let full = count / lanes * lanes;
        let lane = self.e.b.builtin(Builtin::LocalId(0));
        if full == lanes {
            self.e.take_apart(lane, vars);
            turn(&mut self.e);
        } else if full > 0 {
            let (start, end, step) = (self.e.b.index(0), self.e.b.index(full), self.e.b.index(lanes));
            let round = self.e.b.begin_for("t", start, end, step);
            let at = self.e.b.alu(Alu::Add, &[round, lane]);
            self.e.take_apart(at, vars);
            turn(&mut self.e);
            self.e.b.end();
        }
        if full < count {
            let left = self.e.b.index(count - full);
            let some = self.e.b.alu(Alu::Lt, &[lane, left]);
            self.e.b.begin_if(some);
            let start = self.e.b.index(full);
            let at = self.e.b.alu(Alu::Add, &[start, lane]);
            self.e.take_apart(at, vars);
            turn(&mut self.e);
            self.e.b.end();
        }
    }
}
