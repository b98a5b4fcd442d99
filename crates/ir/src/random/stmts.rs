//! Random statements.

use super::shape::Generator;
use super::with_lanes;
use crate::alu::Alu;
use crate::dtype::{DType, Scalar, Type};
use crate::kernel::*;

/// Maximum nesting depth of blocks.
const MAX_NESTING: u32 = 3;

impl Generator<'_> {
    /// Generates up to `count` statements, including those of nested blocks.
    pub(super) fn statements(&mut self, mut count: u32) {
        while count > 0 {
            count -= 1;
            self.next_line();
            match self.random.below(14) {
                0 | 1 => self.let_value(),
                2 => self.let_variable(),
                3 => self.assign(),
                4 | 5 => self.store(),
                6 => self.store_private(),
                7 => self.change_atomically(),
                8 if self.together => self.exchange(),
                9 if self.together => self.collective(),
                10 if self.depth < MAX_NESTING => self.branch(&mut count),
                11 if self.depth < MAX_NESTING => self.count(&mut count),
                12 if self.depth < MAX_NESTING => self.repeat(&mut count),
                _ => self.store(),
            }
        }
    }

    fn ty(&mut self) -> Type {
        let lanes = if self.random.chance(30) { self.lanes } else { 1 };
        with_lanes(self.dtype(), lanes)
    }

    fn let_value(&mut self) {
        if self.random.chance(20) {
            let (index, most) = self.index(3);
            let index = self.b.bind("k", index);
            return self.indices.push((index, most));
        }
        let ty = self.ty();
        let value = self.value(ty, 4);
        let value = self.b.bind("v", value);
        self.values.push((value, ty));
    }

    fn let_variable(&mut self) {
        let ty = self.ty();
        let value = self.value(ty, 3);
        let local = self.b.declare("m", value, true);
        self.variables.push((local, ty));
    }

    fn assign(&mut self) {
        if self.variables.is_empty() {
            return self.let_variable();
        }
        let (local, ty) = self.random.pick(&self.variables);
        let value = self.value(ty, 4);
        self.b.assign(local, value);
    }

    fn store(&mut self) {
        let (mem, each) = self.random.pick(&self.own);
        let lanes = if self.random.chance(50) { each } else { 1 };
        let index = self.own_element(each, lanes);
        let value = self.value(with_lanes(self.b.mem_dtype(mem), lanes), 4);
        self.b.store(mem, index, value, Guard::Checked);
    }

    fn store_private(&mut self) {
        if self.private.is_empty() {
            return self.store();
        }
        let (mem, len) = self.random.pick(&self.private);
        let (index, guard) = self.within(len, 2);
        let value = self.value(self.b.mem_dtype(mem).into(), 3);
        self.b.store(mem, index, value, guard);
    }

    fn change_atomically(&mut self) {
        if self.atomics.is_empty() {
            return self.let_value();
        }
        let (mem, op, len) = self.random.pick(&self.atomics);
        let reach = len + if self.options.out_of_bounds { self.random.below(3) } else { 0 };
        let (index, _) = self.within(reach, 2);
        let value = self.value(self.b.mem_dtype(mem).into(), 3);
        self.b.atomic(op, mem, index, value, None, Guard::Checked);
    }

    /// Each work-item stores its element of a shared array, optionally followed by atomics; then all load from it.
    fn exchange(&mut self) {
        let (Some(me), false) = (self.me_in_group, self.shared.is_empty()) else { return self.let_value() };
        let mem = self.random.pick(&self.shared);
        let dtype = self.b.mem_dtype(mem);
        let value = self.value(dtype.into(), 3);
        self.b.store(mem, me, value, Guard::Proven);
        self.b.barrier();
        if self.options.atomics && matches!(dtype, DType::U32 | DType::I32) && self.random.chance(50) {
            let (index, guard) = self.within(self.group_items, 2);
            let value = self.value(dtype.into(), 2);
            let op = self.random.pick(&[AtomicOp::Add, AtomicOp::Min, AtomicOp::Max]);
            self.b.atomic(op, mem, index, value, None, guard);
            self.b.barrier();
        }
        let (index, guard) = self.within(self.group_items, 2);
        let value = self.b.load(mem, index, guard);
        let value = self.b.bind("other", value);
        self.b.barrier();
        self.values.push((value, dtype.into()));
    }

    /// Generates a product of matrices whose elements are ±1, added to small integers.
    fn product(&mut self) {
        let (dtype, one) = self.random.pick(&[(DType::F16, 0x3C00_3C00_u32), (DType::BF16, 0x3F80_3F80)]);
        let words: [ExprId; 6] = std::array::from_fn(|_| {
            let any = self.value(DType::U32.into(), 2);
            let (signs, one) = (self.b.constant(0x8000_8000_u32), self.b.constant(one));
            let signs = self.b.alu(Alu::And, &[any, signs]);
            self.b.alu(Alu::Or, &[signs, one])
        });
        let [a @ .., b0, b1] = words;
        let (any, most) = (self.value(DType::U32.into(), 2), self.b.constant(255_u32));
        let small = self.b.alu(Alu::And, &[any, most]);
        let small = self.b.cast(DType::F32, small);
        let sums = self.b.splat(small, Mma::ELEMENTS);
        let product = self.b.collective(CollectiveOp::Mma(Mma { dtype, a, b: [b0, b1] }), Scope::Group, sums);
        for element in 0..Mma::ELEMENTS {
            let value = self.b.extract(product, element);
            self.values.push((value, DType::F32.into()));
        }
    }

    fn collective(&mut self) {
        let multiplies = self.options.matrices && self.group_items.is_multiple_of(Mma::LANES.into());
        if multiplies && self.random.chance(50) {
            return self.product();
        }
        let dtype = self.dtype();
        let reduce = match dtype {
            DType::Bool => None,
            _ if dtype.is_float() => Some(self.random.pick(&[ReduceOp::Max, ReduceOp::Min])),
            _ => Some(self.random.pick(&ReduceOp::ALL)),
        };
        let from = self.random.below(self.group_items) as u32;
        let op = match (reduce, self.random.below(4)) {
            (None, _) | (_, 0) => CollectiveOp::Broadcast(from),
            (Some(reduce), 1) => CollectiveOp::InclusiveScan(reduce),
            (Some(reduce), 2) => CollectiveOp::ExclusiveScan(reduce),
            (Some(reduce), _) => CollectiveOp::Reduce(reduce),
        };
        let scope = if self.options.subgroups && self.random.chance(40) { Scope::Subgroup } else { Scope::Group };
        let op = match (op, scope) {
            (CollectiveOp::Broadcast(_), Scope::Subgroup) => CollectiveOp::Shuffle(self.value(DType::U32.into(), 2)),
            (op, _) => op,
        };
        let value = self.value(dtype.into(), 3);
        let combined = self.b.collective(op, scope, value);
        let combined = if dtype.is_float() { self.without_negative_zero(combined) } else { combined };
        if matches!(op, CollectiveOp::Reduce(_) | CollectiveOp::Broadcast(_)) && scope == Scope::Group {
            self.uniform.push((combined, dtype));
        }
        self.values.push((combined, dtype.into()));
    }

    /// Generates a nested block with some of the statements; its locals go out of scope at its end.
    fn inside(&mut self, count: &mut u32, together: bool) {
        let part = self.random.between(0, (*count).min(6) as u64) as u32;
        *count -= part;
        let known = (self.values.len(), self.indices.len(), self.variables.len(), self.uniform.len());
        let before = self.together;
        self.together &= together;
        self.depth += 1;
        self.statements(part);
        self.depth -= 1;
        self.together = before;
        self.values.truncate(known.0);
        self.indices.truncate(known.1);
        self.variables.truncate(known.2);
        self.uniform.truncate(known.3);
    }

    fn branch(&mut self, count: &mut u32) {
        let together = self.random.chance(30);
        let condition = if together { self.uniform_condition() } else { self.value(Type::BOOL, 3) };
        self.b.begin_if(condition);
        self.inside(count, together);
        if self.random.chance(50) {
            self.next_line();
            self.b.begin_else();
            self.inside(count, together);
        }
        self.b.end();
    }

    /// Generates a counting loop with few iterations, of some integer type.
    fn count(&mut self, count: &mut u32) {
        let together = self.random.chance(40);
        let iterations = self.random.below(5);
        let ints: Vec<DType> = self.dtypes.iter().copied().filter(|dtype| dtype.is_int()).collect();
        let dtype = self.random.pick(&ints);
        let step = self.random.between(1, 3);
        let known = (self.values.len(), self.indices.len());
        if self.random.chance(50) {
            let first = self.random.below(3);
            let (start, step_index) = (self.b.index(first), self.b.index(step));
            let (mut end, mut last) = (self.b.index(first + iterations * step), first + iterations * step);
            if !together && self.random.chance(60) {
                (end, last) = (self.within(6, 2).0, 6);
            }
            let counter = self.b.begin_for("i", start, end, step_index);
            self.indices.push((counter, last));
        } else {
            let first = if dtype.is_signed() { -2 } else { 1 };
            let [start, mut end, step] = [first, first + (iterations * step) as i128, step as i128]
                .map(|value| self.b.constant(Scalar::from_i128(dtype, value)));
            if !together && self.random.chance(60) {
                // A count that differs between work-items, kept small by a remainder.
                let value = self.value(dtype.into(), 2);
                let bound = self.b.constant(Scalar::from_i128(dtype, 5));
                end = self.b.alu(Alu::Rem, &[value, bound]);
            }
            let counter = self.b.begin_for("j", start, end, step);
            self.values.push((counter, dtype.into()));
        }
        self.iterations(count, together);
        self.b.end();
        self.values.truncate(known.0);
        self.indices.truncate(known.1);
    }

    /// Generates a `while` loop with few iterations.
    fn repeat(&mut self, count: &mut u32) {
        let zero = self.b.constant(0_u32);
        let counter = self.b.declare("iteration", zero, true);
        let together = self.random.chance(30);
        let now = self.b.get(counter);
        let few = self.random.below(5) as u32;
        let few = self.b.constant(few);
        let mut condition = self.b.alu(Alu::Lt, &[now, few]);
        if !together {
            let also = self.value(Type::BOOL, 2);
            condition = self.b.alu(Alu::And, &[condition, also]);
        }
        self.b.begin_while(condition);
        self.next_line();
        let one = self.b.constant(1_u32);
        let next = self.b.alu(Alu::Add, &[now, one]);
        self.b.assign(counter, next);
        self.iterations(count, together);
        self.b.end();
    }

    /// Generates a loop body. Work-items leave early only where they need not stay together.
    fn iterations(&mut self, count: &mut u32, together: bool) {
        self.inside(count, together);
        if !together && self.random.chance(60) {
            self.next_line();
            let condition = self.value(Type::BOOL, 3);
            self.b.begin_if(condition);
            if self.random.chance(50) {
                self.b.break_loop()
            } else {
                self.b.continue_loop()
            }
            self.b.end();
            self.inside(count, false);
        }
    }
}
