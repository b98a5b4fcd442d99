//! The functions of the language, each under its name in [`super::super::language`].

use panoply_ir::kernel::{AtomicOp, Builtin, CollectiveOp, Expr, ExprId, MemId, Mma, ReduceOp, Scope};
use panoply_ir::{Alu, DType, Math, Scalar};

use super::Emitter;

macro_rules! ids {
    ($($name:ident => $builtin:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(axis)`.")]
        pub fn $name(&self, axis: usize) -> ExprId {
            self.builtin(Builtin::$builtin(self.axis(axis)))
        }
    )*};
}

macro_rules! collectives {
    ($($name:ident => $scope:ident, $op:ident($reduce:ident);)*) => {$(
        #[doc = concat!("`", stringify!($name), "(value)`.")]
        pub fn $name(&self, value: ExprId) -> ExprId {
            self.collective(CollectiveOp::$op(ReduceOp::$reduce), Scope::$scope, value)
        }
    )*};
}

impl Emitter {
    ids! {
        global_id => GlobalId;
        local_id => LocalId;
        group_id => GroupId;
        global_size => GlobalSize;
        group_size => GroupSize;
        num_groups => GroupCount;
    }

    collectives! {
        group_sum => Group, Reduce(Sum);
        group_product => Group, Reduce(Prod);
        group_min => Group, Reduce(Min);
        group_max => Group, Reduce(Max);
        group_inclusive_sum => Group, InclusiveScan(Sum);
        group_inclusive_product => Group, InclusiveScan(Prod);
        group_inclusive_min => Group, InclusiveScan(Min);
        group_inclusive_max => Group, InclusiveScan(Max);
        group_exclusive_sum => Group, ExclusiveScan(Sum);
        group_exclusive_product => Group, ExclusiveScan(Prod);
        group_exclusive_min => Group, ExclusiveScan(Min);
        group_exclusive_max => Group, ExclusiveScan(Max);
        subgroup_sum => Subgroup, Reduce(Sum);
        subgroup_product => Subgroup, Reduce(Prod);
        subgroup_min => Subgroup, Reduce(Min);
        subgroup_max => Subgroup, Reduce(Max);
        subgroup_inclusive_sum => Subgroup, InclusiveScan(Sum);
        subgroup_inclusive_product => Subgroup, InclusiveScan(Prod);
        subgroup_inclusive_min => Subgroup, InclusiveScan(Min);
        subgroup_inclusive_max => Subgroup, InclusiveScan(Max);
        subgroup_exclusive_sum => Subgroup, ExclusiveScan(Sum);
        subgroup_exclusive_product => Subgroup, ExclusiveScan(Prod);
        subgroup_exclusive_min => Subgroup, ExclusiveScan(Min);
        subgroup_exclusive_max => Subgroup, ExclusiveScan(Max);
    }

    /// `group_broadcast(value, lane)`.
    pub fn group_broadcast(&self, value: ExprId, lane: usize) -> ExprId {
        self.collective(CollectiveOp::Broadcast(lane as u32), Scope::Group, value)
    }

    /// `subgroup_broadcast(value, lane)`.
    pub fn subgroup_broadcast(&self, value: ExprId, lane: usize) -> ExprId {
        self.collective(CollectiveOp::Broadcast(lane as u32), Scope::Subgroup, value)
    }

    /// `subgroup_shuffle(value, lane)`.
    pub fn subgroup_shuffle(&self, value: ExprId, lane: ExprId) -> ExprId {
        self.collective(CollectiveOp::Shuffle(lane), Scope::Subgroup, value)
    }

    /// `mma_fragment_zero()`.
    pub fn mma_fragment_zero(&self) -> ExprId {
        let mut builder = self.builder.borrow_mut();
        let zero = builder.constant(0f32);
        builder.splat(zero, Mma::ELEMENTS)
    }

    /// `mma_fragment_get(fragment, number)`.
    pub fn mma_fragment_get(&self, fragment: ExprId, number: ExprId) -> ExprId {
        match self.expr(number) {
            Expr::Index(number) if number < Mma::ELEMENTS.into() => {
                self.builder.borrow_mut().extract(fragment, number as u8)
            }
            _ => {
                self.mistake("the element number of `mma_fragment_get` must be a constant below 4");
                self.host(0f32)
            }
        }
    }

    /// `mma_m16n8k16_f16(sums, …)`.
    #[allow(clippy::too_many_arguments, reason = "same as the kernel language's function")]
    pub fn mma_m16n8k16_f16(
        &self,
        sums: ExprId,
        a0: ExprId,
        a1: ExprId,
        a2: ExprId,
        a3: ExprId,
        b0: ExprId,
        b1: ExprId,
    ) -> ExprId {
        self.product(DType::F16, sums, [a0, a1, a2, a3], [b0, b1])
    }

    /// `mma_m16n8k16_bf16(sums, …)`.
    #[allow(clippy::too_many_arguments, reason = "same as the kernel language's function")]
    pub fn mma_m16n8k16_bf16(
        &self,
        sums: ExprId,
        a0: ExprId,
        a1: ExprId,
        a2: ExprId,
        a3: ExprId,
        b0: ExprId,
        b1: ExprId,
    ) -> ExprId {
        self.product(DType::BF16, sums, [a0, a1, a2, a3], [b0, b1])
    }

    fn product(&self, dtype: DType, sums: ExprId, a: [ExprId; 4], b: [ExprId; 2]) -> ExprId {
        self.collective(CollectiveOp::Mma(Mma { dtype, a, b }), Scope::Group, sums)
    }

    /// `global_index()`.
    pub fn global_index(&self) -> ExprId {
        self.global_id(0)
    }

    /// `local_index()`: x + size.x * (y + size.y * z).
    pub fn local_index(&self) -> ExprId {
        let planes = self.mul(self.group_size(1), self.local_id(2));
        let rows = self.mul(self.group_size(0), self.add(self.local_id(1), planes));
        self.add(self.local_id(0), rows)
    }

    /// `subgroup_lane_id()`.
    pub fn subgroup_lane_id(&self) -> ExprId {
        self.builtin(Builtin::SubgroupLane)
    }

    /// `subgroup_size()`.
    pub fn subgroup_size(&self) -> ExprId {
        self.builtin(Builtin::SubgroupSize)
    }

    /// `barrier()`.
    pub fn barrier(&self) {
        self.builder.borrow_mut().barrier();
    }

    /// `atomic_add(&mut mem[index], value)`.
    pub fn atomic_add(&self, mem: MemId, index: ExprId, value: ExprId) -> ExprId {
        self.atomic(AtomicOp::Add, mem, index, value, None)
    }

    /// `atomic_min(&mut mem[index], value)`.
    pub fn atomic_min(&self, mem: MemId, index: ExprId, value: ExprId) -> ExprId {
        self.atomic(AtomicOp::Min, mem, index, value, None)
    }

    /// `atomic_max(&mut mem[index], value)`.
    pub fn atomic_max(&self, mem: MemId, index: ExprId, value: ExprId) -> ExprId {
        self.atomic(AtomicOp::Max, mem, index, value, None)
    }

    /// `atomic_exchange(&mut mem[index], value)`.
    pub fn atomic_exchange(&self, mem: MemId, index: ExprId, value: ExprId) -> ExprId {
        self.atomic(AtomicOp::Exchange, mem, index, value, None)
    }

    /// `atomic_compare_exchange(&mut mem[index], expected, value)`.
    pub fn atomic_compare_exchange(&self, mem: MemId, index: ExprId, expected: ExprId, value: ExprId) -> ExprId {
        self.atomic(AtomicOp::CompareExchange, mem, index, value, Some(expected))
    }

    /// `select(condition, a, b)`.
    pub fn select(&self, condition: ExprId, a: ExprId, b: ExprId) -> ExprId {
        self.alu(Alu::Select, &[condition, a, b])
    }

    /// `minimum(a, b)`.
    pub fn minimum(&self, a: ExprId, b: ExprId) -> ExprId {
        self.alu(Alu::Min, &[a, b])
    }

    /// `maximum(a, b)`.
    pub fn maximum(&self, a: ExprId, b: ExprId) -> ExprId {
        self.alu(Alu::Max, &[a, b])
    }

    /// `erf(x)`.
    pub fn erf(&self, x: ExprId) -> ExprId {
        self.alu(Alu::Math(Math::Erf), &[x])
    }

    fn atomic(&self, op: AtomicOp, mem: MemId, index: ExprId, value: ExprId, expected: Option<ExprId>) -> ExprId {
        self.builder.borrow_mut().atomic(op, mem, index, value, expected, self.guard.get())
    }

    fn collective(&self, op: CollectiveOp, scope: Scope, value: ExprId) -> ExprId {
        self.builder.borrow_mut().collective(op, scope, value)
    }

    fn axis(&self, axis: usize) -> u8 {
        if axis > 2 {
            self.mistake(format!("there is no axis {axis}; axes are 0, 1 and 2"));
        }
        axis.min(2) as u8
    }

    /// Returns a constant of an element type with these bits.
    pub(super) fn bits(&self, dtype: DType, bits: u64) -> ExprId {
        self.constant(Scalar::from_i128(dtype, bits.into()))
    }
}
