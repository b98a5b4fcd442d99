//! Random expressions of a given type.

use super::shape::Generator;
use super::with_lanes;
use crate::alu::{Alu, Domain};
use crate::dtype::{DType, Scalar, Type};
use crate::kernel::*;

/// Exclusive upper bound of indices.
const INDEX_BOUND: u64 = 1 << 31;

fn takes(op: Alu, dtype: DType) -> bool {
    match op.domain() {
        Domain::Float => dtype.is_float(),
        Domain::Number => dtype != DType::Bool,
        Domain::Int => dtype.is_int(),
        Domain::Bits => !dtype.is_float(),
        Domain::Any => true,
    }
}

impl Generator<'_> {
    /// Generates an expression of a type with at most this depth (slightly more where an access must be guarded).
    pub(super) fn value(&mut self, ty: Type, depth: u32) -> ExprId {
        let Some(dtype) = ty.dtype() else { return self.index(depth).0 };
        if depth == 0 || self.random.chance(10) {
            return self.leaf(ty);
        }
        match self.random.below(12) {
            0..=5 => self.operation(dtype, ty.lanes(), depth),
            6 => self.conversion(ty, depth),
            7 => self.bits_of_another(dtype, ty.lanes(), depth),
            8 => {
                let condition = self.value(ty.with_dtype(DType::Bool), depth - 1);
                let (a, b) = (self.value(ty, depth - 1), self.value(ty, depth - 1));
                self.b.alu(Alu::Select, &[condition, a, b])
            }
            9 if ty.lanes() > 1 => {
                let value = self.value(dtype.into(), depth - 1);
                self.b.splat(value, ty.lanes())
            }
            9 if self.lanes > 1 => {
                let vector = self.value(with_lanes(dtype, self.lanes), depth - 1);
                let lane = self.random.below(self.lanes as u64) as u8;
                self.b.extract(vector, lane)
            }
            _ => self.load(ty, depth).unwrap_or_else(|| self.leaf(ty)),
        }
    }

    fn leaf(&mut self, ty: Type) -> ExprId {
        let mut known: Vec<ExprId> =
            self.values.iter().filter(|(_, have)| *have == ty).map(|(value, _)| *value).collect();
        let variables: Vec<LocalId> =
            self.variables.iter().filter(|(_, have)| *have == ty).map(|(local, _)| *local).collect();
        known.extend(variables.into_iter().map(|local| self.b.get(local)));
        if !known.is_empty() && self.random.chance(70) {
            return self.random.pick(&known);
        }
        match self.load(ty, 0) {
            Some(load) if self.random.chance(50) => load,
            Some(_) | None => self.constant(ty),
        }
    }

    fn operation(&mut self, dtype: DType, lanes: u8, depth: u32) -> ExprId {
        if dtype == DType::Bool && self.random.chance(70) {
            return self.comparison(lanes, depth);
        }
        let fits = |op: &Alu| !op.is_transcendental() && !op.is_comparison() && *op != Alu::Select && takes(*op, dtype);
        let ops: Vec<Alu> = Alu::ALL.into_iter().filter(fits).collect();
        let op = self.random.pick(&ops);
        let operands: Vec<ExprId> = (0..op.arity()).map(|_| self.value(with_lanes(dtype, lanes), depth - 1)).collect();
        let result = self.b.alu(op, &operands);
        let vague = dtype.is_float() && matches!(op, Alu::Min | Alu::Max);
        if vague { self.without_negative_zero(result) } else { result }
    }

    /// Returns `x + 0`, which maps -0 to 0.
    pub(super) fn without_negative_zero(&mut self, value: ExprId) -> ExprId {
        let zero = self.same_everywhere(self.b.ty(value), 0.0);
        self.b.alu(Alu::Add, &[value, zero])
    }

    fn same_everywhere(&mut self, ty: Type, value: f64) -> ExprId {
        let constant = self.b.constant(Scalar::from_f64(ty.dtype().unwrap_or(DType::F32), value));
        if ty.lanes() > 1 { self.b.splat(constant, ty.lanes()) } else { constant }
    }

    fn comparison(&mut self, lanes: u8, depth: u32) -> ExprId {
        if lanes == 1 && self.random.chance(30) {
            let op = self.random.pick(&[Alu::Lt, Alu::Le, Alu::Eq, Alu::Ne]);
            let (a, b) = (self.index(depth - 1).0, self.index(depth - 1).0);
            return self.b.alu(op, &[a, b]);
        }
        let dtype = self.dtype();
        let ordered: &[Alu] = if dtype == DType::Bool { &[] } else { &[Alu::Lt, Alu::Le] };
        let op = self.random.pick(&[ordered, &[Alu::Eq, Alu::Ne]].concat());
        let ty = with_lanes(dtype, lanes);
        let (a, b) = (self.value(ty, depth - 1), self.value(ty, depth - 1));
        self.b.alu(op, &[a, b])
    }

    fn conversion(&mut self, ty: Type, depth: u32) -> ExprId {
        let from = if ty.lanes() == 1 && self.random.chance(25) {
            self.index(depth - 1).0
        } else {
            let dtype = self.dtype();
            self.value(with_lanes(dtype, ty.lanes()), depth - 1)
        };
        self.b.cast(ty, from)
    }

    fn bits_of_another(&mut self, dtype: DType, lanes: u8, depth: u32) -> ExprId {
        let wide = |other: &DType| other.bits() == dtype.bits() && *other != dtype;
        let others: Vec<DType> = self.dtypes.iter().copied().filter(wide).collect();
        if others.is_empty() {
            return self.leaf(with_lanes(dtype, lanes));
        }
        let from = self.random.pick(&others);
        let mut value = self.value(with_lanes(from, lanes), depth - 1);
        if from.is_float() {
            // The bits of NaNs differ between devices.
            let (ordered, zero) = (self.b.alu(Alu::Eq, &[value, value]), self.same_everywhere(self.b.ty(value), 0.0));
            value = self.b.alu(Alu::Select, &[ordered, value, zero]);
        }
        self.b.bitcast(with_lanes(dtype, lanes), value)
    }

    /// Generates a load of this type, if a memory has such elements.
    fn load(&mut self, ty: Type, depth: u32) -> Option<ExprId> {
        let (dtype, lanes) = (ty.dtype()?, ty.lanes());
        let mut loads = Vec::new();
        for (mem, len) in self.inputs.clone() {
            if self.b.mem_dtype(mem) == dtype && (self.options.out_of_bounds || lanes as u64 <= len) {
                let index = match self.options.out_of_bounds {
                    true => self.index(depth).0,
                    false => self.within(len - lanes as u64 + 1, depth).0,
                };
                loads.push(self.b.load_vector(mem, index, lanes, Guard::Checked));
            }
        }
        for (mem, each) in self.own.clone() {
            if self.b.mem_dtype(mem) == dtype && lanes <= each {
                let index = self.own_element(each, lanes);
                loads.push(self.b.load_vector(mem, index, lanes, Guard::Checked));
            }
        }
        for (mem, len) in self.private.clone() {
            if self.b.mem_dtype(mem) == dtype && lanes == 1 {
                let (index, guard) = self.within(len, depth);
                loads.push(self.b.load(mem, index, guard));
            }
        }
        if loads.is_empty() { None } else { Some(self.random.pick(&loads)) }
    }

    /// Returns the index of `lanes` elements among those that this work-item alone accesses in a buffer.
    pub(super) fn own_element(&mut self, each: u8, lanes: u8) -> ExprId {
        let each_index = self.b.index(each as u64);
        let first = if each == 1 { self.me } else { self.b.alu(Alu::Mul, &[self.me, each_index]) };
        match self.random.below(each as u64 - lanes as u64 + 1) {
            0 => first,
            further => {
                let further = self.b.index(further);
                self.b.alu(Alu::Add, &[first, further])
            }
        }
    }

    /// Returns an index below a length, computed as a remainder, and a suitable guard.
    pub(super) fn within(&mut self, len: u64, depth: u32) -> (ExprId, Guard) {
        let (index, _) = self.index(depth);
        let len = self.b.index(len);
        let index = self.b.alu(Alu::Rem, &[index, len]);
        (index, if self.random.chance(50) { Guard::Proven } else { Guard::Checked })
    }

    /// Generates an index; returns it with its largest value.
    pub(super) fn index(&mut self, depth: u32) -> (ExprId, u64) {
        if depth == 0 || self.random.chance(25) {
            if self.indices.is_empty() || self.random.chance(25) {
                let value = self.random.below(40);
                return (self.b.index(value), value);
            }
            return self.random.pick(&self.indices);
        }
        let (a, a_most) = self.index(depth - 1);
        let (b, b_most) = self.index(depth - 1);
        let small = self.random.between(1, 9);
        let small_index = self.b.index(small);
        let (op, operands, most) = match self.random.below(13) {
            0 if a_most + b_most < INDEX_BOUND => (Alu::Add, [a, b], a_most + b_most),
            1 if a_most * small < INDEX_BOUND => (Alu::Mul, [a, small_index], a_most * small),
            2 => (Alu::Div, [a, small_index], a_most / small),
            3 => (Alu::Rem, [a, small_index], small - 1),
            4 => (Alu::Min, [a, b], a_most.min(b_most)),
            5 => (Alu::Max, [a, b], a_most.max(b_most)),
            6 => {
                let larger = self.b.alu(Alu::Max, &[a, b]);
                (Alu::Sub, [larger, b], a_most.max(b_most))
            }
            7 => {
                let op = self.random.pick(&[Alu::And, Alu::Or, Alu::Xor]);
                (op, [a, b], (a_most.max(b_most) + 1).next_power_of_two() - 1)
            }
            8 => (Alu::Shr, [a, small_index], a_most >> small),
            9 if a_most << small < INDEX_BOUND => (Alu::Shl, [a, small_index], a_most << small),
            10 => {
                let condition = self.value(Type::BOOL, depth - 1);
                return (self.b.alu(Alu::Select, &[condition, a, b]), a_most.max(b_most));
            }
            11 => return (self.b.alu(Alu::PopCount, &[a]), u64::from(u64::BITS - a_most.leading_zeros())),
            _ => {
                let value = self.value(DType::U32.into(), depth - 1);
                let bound = self.random.between(1, 120);
                let bound_u32 = self.b.constant(bound as u32);
                let value = self.b.alu(Alu::Rem, &[value, bound_u32]);
                return (self.b.cast(Type::Index, value), bound - 1);
            }
        };
        (self.b.alu(op, &operands), most)
    }

    /// Generates a transcendental function of an exact operand. Operands are limited to ±9, so that not all results are infinite.
    pub(super) fn transcendental(&mut self, dtype: DType) -> ExprId {
        let ops: Vec<Alu> = Alu::ALL.into_iter().filter(|op| op.is_transcendental()).collect();
        let op = self.random.pick(&ops);
        let mut operands = Vec::new();
        for _ in 0..op.arity() {
            let value = self.value(dtype.into(), 3);
            let (least, most) = (self.same_everywhere(dtype.into(), -9.0), self.same_everywhere(dtype.into(), 9.0));
            let raised = self.b.alu(Alu::Max, &[value, least]);
            let kept = self.b.alu(Alu::Min, &[raised, most]);
            operands.push(self.without_negative_zero(kept));
        }
        self.b.alu(op, &operands)
    }

    /// Generates a condition that is uniform in a work-group.
    pub(super) fn uniform_condition(&mut self) -> ExprId {
        let size = self.b.builtin(Builtin::GlobalSize(0));
        let (value, dtype) = match self.uniform.is_empty() || self.random.chance(30) {
            true => (self.b.cast(DType::U32, size), DType::U32),
            false => self.random.pick(&self.uniform),
        };
        let constant = self.constant(dtype.into());
        let op = if dtype == DType::Bool { Alu::Ne } else { self.random.pick(&[Alu::Lt, Alu::Le, Alu::Eq]) };
        self.b.alu(op, &[value, constant])
    }
}
