//! Lowers collectives of a subgroup to 32-bit shuffles.
//!
//! A reduction is a butterfly: at each width w from half the subgroup down to 1, lane l adds lane l xor w, which for
//! the lanes below w is l + w. The pairs are those of the tree, so the bits are the same. The last subgroup of a group
//! can be partial; missing lanes are then skipped.

use panoply_ir::kernel::{Builtin, CollectiveOp, Expr, ExprId, LocalId, Op, Scope};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{Alu, DType, Scalar, Type};

use super::{Expander, Writer};
use crate::opt::walk::KernelExt;

impl Expander<'_> {
    fn whole_subgroups(&self) -> bool {
        self.subgroup > 1 && self.items.is_multiple_of(self.subgroup)
    }

    /// Returns true if a group is one subgroup, so that its reductions need no shared memory.
    pub(super) fn is_one_subgroup(&self) -> bool {
        self.whole_subgroups() && self.items == self.subgroup
    }
}

impl Writer<'_, '_> {
    /// Returns true if there are subgroups and all of them are full.
    pub(super) fn whole_subgroups(&self) -> bool {
        self.expander.whole_subgroups()
    }

    /// Returns the result of a subgroup collective.
    pub(super) fn subgroup(&mut self, op: CollectiveOp, value: ExprId) -> ExprId {
        match op {
            CollectiveOp::Reduce(op) => self.reduce_subgroup(op, value),
            CollectiveOp::InclusiveScan(op) => self.scan_subgroup(op, value),
            CollectiveOp::ExclusiveScan(op) => {
                let scan = self.scan_subgroup(op, value);
                let (before, first) = self.earlier(scan, 1);
                let identity = self.identity(op, value);
                self.kernel().alu(Alu::Select, &[first, identity, before])
            }
            CollectiveOp::Broadcast(from) => {
                let from = self.number(from);
                self.shuffle(value, from)
            }
            CollectiveOp::Shuffle(lane) => {
                let there = self.is_there(lane);
                let own = self.own_lane();
                let lane = match there {
                    Some(there) => self.kernel().alu(Alu::Select, &[there, lane, own]),
                    None => lane,
                };
                self.shuffle(value, lane)
            }
            CollectiveOp::Mma(_) => unreachable!("the verifier permits matrix products only in groups"),
        }
    }

    pub(super) fn reduce_subgroup(&mut self, op: ReduceOp, value: ExprId) -> ExprId {
        let mut sum = self.bind(value);
        let mut width = self.expander.subgroup / 2;
        while width > 0 {
            let (own, distance) = (self.own_lane(), self.number(width));
            let mut other = self.kernel().alu(Alu::Xor, &[own, distance]);
            let there = if self.whole_subgroups() { None } else { self.is_there(other) };
            if let Some(there) = there {
                other = self.kernel().alu(Alu::Select, &[there, other, own]);
            }
            let theirs = self.shuffle(sum, other);
            let mut both = self.kernel().alu(op.alu(), &[sum, theirs]);
            if let Some(there) = there {
                both = self.kernel().alu(Alu::Select, &[there, both, sum]);
            }
            sum = self.bind(both);
            width /= 2;
        }
        // Lanes can have combined a pair in opposite order, which affects the sign of a zero.
        let first = self.number(0);
        self.shuffle(sum, first)
    }

    /// Emits Hillis and Steele's inclusive scan.
    fn scan_subgroup(&mut self, op: ReduceOp, value: ExprId) -> ExprId {
        let mut scan = self.bind(value);
        let mut distance = 1;
        while distance < self.expander.subgroup {
            let (before, first) = self.earlier(scan, distance);
            let both = self.kernel().alu(op.alu(), &[before, scan]);
            let taken = self.kernel().alu(Alu::Select, &[first, scan, both]);
            scan = self.bind(taken);
            distance *= 2;
        }
        scan
    }

    /// Returns the value `distance` lanes before, and the condition that there is no such lane.
    fn earlier(&mut self, value: ExprId, distance: u32) -> (ExprId, ExprId) {
        let (own, distance) = (self.own_lane(), self.number(distance));
        let first = self.kernel().alu(Alu::Lt, &[own, distance]);
        let before = self.kernel().alu(Alu::Sub, &[own, distance]);
        let lane = self.kernel().alu(Alu::Select, &[first, own, before]);
        (self.shuffle(value, lane), first)
    }

    /// Returns the condition that a subgroup has a lane; `None` if it always has.
    fn is_there(&mut self, lane: ExprId) -> Option<ExprId> {
        let size = self.expander.subgroup;
        if let Expr::Const(Scalar { bits: 0, .. }) = self.kernel().exprs.get(lane) {
            return None;
        }
        let mut present = self.number(size);
        if !self.whole_subgroups() {
            // The number of lanes from the first of this subgroup to the end of the group, at most a full subgroup.
            let (items, item, own) = (self.expander.items, self.expander.lane, self.own_lane());
            let (items, item) = (self.number(items), self.kernel().expr(Expr::Cast(Type::Scalar(DType::U32), item)));
            let first = self.kernel().alu(Alu::Sub, &[item, own]);
            let rest = self.kernel().alu(Alu::Sub, &[items, first]);
            present = self.kernel().alu(Alu::Min, &[present, rest]);
        }
        Some(self.kernel().alu(Alu::Lt, &[lane, present]))
    }

    fn own_lane(&mut self) -> ExprId {
        let lane = self.kernel().expr(Expr::Builtin(Builtin::SubgroupLane));
        self.kernel().expr(Expr::Cast(Type::Scalar(DType::U32), lane))
    }

    fn number(&mut self, value: u32) -> ExprId {
        self.kernel().expr(Expr::Const(Scalar { dtype: DType::U32, bits: value.into() }))
    }

    /// Stores the value in a local, so that it is computed once.
    fn bind(&mut self, value: ExprId) -> ExprId {
        let ty = self.kernel().exprs.ty(value);
        let local = self.kernel().new_local("part", ty, false);
        self.push(Op::Let { local, value });
        self.kernel().expr(Expr::Local(local))
    }

    /// Returns the value of another lane, which must exist; values of any element type are split into 32-bit words.
    fn shuffle(&mut self, value: ExprId, lane: ExprId) -> ExprId {
        let dtype = self.kernel().exprs.ty(value).dtype().expect("a collective's operand has an element type");
        match dtype {
            DType::U32 | DType::I32 | DType::F32 => self.shuffle_word(value, lane),
            DType::Bool | DType::U8 | DType::U16 => self.shuffle_as(DType::U32, value, lane),
            DType::I8 | DType::I16 => self.shuffle_as(DType::I32, value, lane),
            // Conversion of a 16-bit float to f32 is exact.
            DType::F16 | DType::BF16 => self.shuffle_as(DType::F32, value, lane),
            DType::U64 | DType::I64 | DType::F64 => {
                let (long, word) = (Type::Scalar(DType::U64), Type::Scalar(DType::U32));
                let bits = if dtype == DType::U64 { value } else { self.kernel().expr(Expr::Bitcast(long, value)) };
                let half = self.kernel().expr(Expr::Const(Scalar { dtype: DType::U64, bits: 32 }));
                let upper = self.kernel().alu(Alu::Shr, &[bits, half]);
                let [low, high] = [bits, upper].map(|bits| {
                    let part = self.kernel().expr(Expr::Cast(word, bits));
                    let theirs = self.shuffle_word(part, lane);
                    self.kernel().expr(Expr::Cast(long, theirs))
                });
                let high = self.kernel().alu(Alu::Shl, &[high, half]);
                let both = self.kernel().alu(Alu::Or, &[high, low]);
                if dtype == DType::U64 { both } else { self.kernel().expr(Expr::Bitcast(Type::Scalar(dtype), both)) }
            }
        }
    }

    /// Shuffles in a wider type that represents every value.
    fn shuffle_as(&mut self, wider: DType, value: ExprId, lane: ExprId) -> ExprId {
        let narrow = self.kernel().exprs.ty(value);
        let wide = self.kernel().expr(Expr::Cast(Type::Scalar(wider), value));
        let theirs = self.shuffle_word(wide, lane);
        self.kernel().expr(Expr::Cast(narrow, theirs))
    }

    fn shuffle_word(&mut self, value: ExprId, lane: ExprId) -> ExprId {
        let ty = self.kernel().exprs.ty(value);
        let result: LocalId = self.kernel().new_local("theirs", ty, false);
        let op = CollectiveOp::Shuffle(lane);
        self.push(Op::Collective { op, scope: Scope::Subgroup, value, result });
        self.kernel().expr(Expr::Local(result))
    }
}
