//! Kernels of the suite.

use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, AtomicOp, Builtin, CollectiveOp, ExprId, Guard, MemId, ReduceOp, Scope};
use panoply_ir::{DType, Type};

/// Builds `x[i] = 2 x[i] + add`, whose result depends on the number and order of launches.
pub fn double_add() -> Builder {
    let mut b = Builder::new("double_add");
    let add = b.scalar("add", DType::U32);
    let x = b.buffer("x", DType::U32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let old = b.load(x, i, Guard::Checked);
    let two = b.constant(2u32);
    let twice = b.alu(Alu::Mul, &[old, two]);
    let next = b.alu(Alu::Add, &[twice, add]);
    b.store(x, i, next, Guard::Checked);
    b
}

/// Builds `out[i] = x + 100 y + 10000 z + 1`, where `i` is the linear index for the launch's global size.
pub fn places() -> Builder {
    let mut b = Builder::new("places");
    let out = b.buffer("out", DType::U32, Access::Out);
    let ids = [0, 1, 2].map(|axis| b.builtin(Builtin::GlobalId(axis)));
    let sizes = [0, 1].map(|axis| b.builtin(Builtin::GlobalSize(axis)));
    let planes = multiply_add(&mut b, ids[2], sizes[1], ids[1]);
    let at = multiply_add(&mut b, planes, sizes[0], ids[0]);
    let (hundred, one) = (b.index(100), b.index(1));
    let high = multiply_add(&mut b, ids[2], hundred, ids[1]);
    let number = multiply_add(&mut b, high, hundred, ids[0]);
    let number = b.alu(Alu::Add, &[number, one]);
    let word = b.cast(DType::U32, number);
    b.store(out, at, word, Guard::Checked);
    b
}

fn multiply_add(b: &mut Builder, x: ExprId, y: ExprId, z: ExprId) -> ExprId {
    let product = b.alu(Alu::Mul, &[x, y]);
    b.alu(Alu::Add, &[product, z])
}

/// Builds a kernel in which every work-item adds 1 to the first counter and its id to the second.
pub fn census() -> Builder {
    let mut b = Builder::new("census");
    let counters = b.buffer("counters", DType::U32, Access::InOut);
    let id = b.builtin(Builtin::GlobalId(0));
    let (first, second, one) = (b.index(0), b.index(1), b.constant(1u32));
    let word = b.cast(DType::U32, id);
    b.atomic(AtomicOp::Add, counters, first, one, None, Guard::Checked);
    b.atomic(AtomicOp::Add, counters, second, word, None, Guard::Checked);
    b
}

/// With work-groups of 16: `out[i]` is the local id, plus 100 times the group id, plus 10000 times the global size.
pub fn whole_groups() -> Builder {
    let mut b = grouped("whole_groups");
    let out = b.buffer("out", DType::U32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let numbers = [Builtin::LocalId(0), Builtin::GroupId(0), Builtin::GlobalSize(0)].map(|number| b.builtin(number));
    let hundred = b.index(100);
    let low = multiply_add(&mut b, numbers[1], hundred, numbers[0]);
    let ten_thousand = b.index(10_000);
    let all = multiply_add(&mut b, numbers[2], ten_thousand, low);
    let word = b.cast(DType::U32, all);
    b.store(out, i, word, Guard::Checked);
    b
}

/// With work-groups of 16: reverses the elements of each work-group through shared memory.
pub fn reverse_groups() -> Builder {
    let mut b = grouped("reverse_groups");
    let x = b.buffer("x", DType::U32, Access::InOut);
    let shared = b.shared("held", DType::U32, 16);
    let (i, local) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::LocalId(0)));
    let mine = b.load(x, i, Guard::Checked);
    b.store(shared, local, mine, Guard::Checked);
    b.barrier();
    let last = b.index(15);
    let mirrored = b.alu(Alu::Sub, &[last, local]);
    let theirs = b.load(shared, mirrored, Guard::Checked);
    b.store(x, i, theirs, Guard::Checked);
    b
}

/// With work-groups of 16: the inclusive scan of the work-group, plus 1000 times its maximum.
pub fn collectives() -> Builder {
    let mut b = grouped("collectives");
    let x = b.buffer("x", DType::U32, Access::InOut);
    let i = b.builtin(Builtin::GlobalId(0));
    let loaded = b.load(x, i, Guard::Checked);
    let mine = b.bind("mine", loaded);
    let running = b.collective(CollectiveOp::InclusiveScan(ReduceOp::Sum), Scope::Group, mine);
    let largest = b.collective(CollectiveOp::Reduce(ReduceOp::Max), Scope::Group, mine);
    let thousand = b.constant(1000u32);
    let result = multiply_add(&mut b, largest, thousand, running);
    b.store(x, i, result, Guard::Checked);
    b
}

fn grouped(name: &str) -> Builder {
    let mut b = Builder::new(name);
    b.group_size([16, 1, 1]);
    b
}

/// Builds `out[0] = value` for a scalar of this type between two other scalars, so that a wrong size would shift them.
pub fn keep(dtype: DType) -> Builder {
    let mut b = Builder::new(format!("keep_{dtype}"));
    let before = b.scalar("before", DType::U32);
    let value = b.scalar("value", dtype);
    let out = b.buffer("out", dtype, Access::Out);
    let after = b.scalar("after", DType::U8);
    let others = b.buffer("others", DType::U32, Access::Out);
    let (zero, one) = (b.index(0), b.index(1));
    b.store(out, zero, value, Guard::Checked);
    b.store(others, zero, before, Guard::Checked);
    let after = b.cast(DType::U32, after);
    b.store(others, one, after, Guard::Checked);
    b
}

/// Stores two indices as 32-bit words: the low halves, then the high halves if the device has 64-bit integers.
pub fn keep_indices(int64: bool) -> Builder {
    let mut b = Builder::new("keep_indices");
    let values = [b.scalar("a", Type::Index), b.scalar("b", Type::Index)];
    let out = b.buffer("out", DType::U32, Access::Out);
    let half = b.index(1 << 16);
    let high = |b: &mut Builder, value: ExprId| {
        let shifted = b.alu(Alu::Div, &[value, half]);
        b.alu(Alu::Div, &[shifted, half])
    };
    for (i, value) in values.into_iter().enumerate() {
        let at = b.index(i as u64);
        let low = b.cast(DType::U32, value);
        b.store(out, at, low, Guard::Checked);
        if int64 {
            let (at, high) = (b.index(i as u64 + 2), high(&mut b, value));
            let high = b.cast(DType::U32, high);
            b.store(out, at, high, Guard::Checked);
        }
    }
    b
}

/// Builds `buffer[k][i] += scalar[k]` for `buffers` buffers.
pub fn many(buffers: usize) -> Builder {
    let mut b = Builder::new("many");
    let pairs: Vec<(MemId, ExprId)> = (0..buffers)
        .map(|k| (b.buffer(&format!("x{k}"), DType::U32, Access::InOut), b.scalar(&format!("a{k}"), DType::U32)))
        .collect();
    let i = b.builtin(Builtin::GlobalId(0));
    for (x, a) in pairs {
        let old = b.load(x, i, Guard::Checked);
        let sum = b.alu(Alu::Add, &[old, a]);
        b.store(x, i, sum, Guard::Checked);
    }
    b
}

/// Builds `y[i] = x[i + 1] + 100 × length of x` with guarded accesses; work-items beyond either length test the guards.
pub fn neighbors() -> Builder {
    let mut b = Builder::new("neighbors");
    let x = b.buffer("x", DType::U32, Access::In);
    let y = b.buffer("y", DType::U32, Access::Out);
    let (i, one, hundred) = (b.builtin(Builtin::GlobalId(0)), b.index(1), b.constant(100u32));
    let next = b.alu(Alu::Add, &[i, one]);
    let value = b.load(x, next, Guard::Checked);
    let length = b.len(x);
    let length = b.cast(DType::U32, length);
    let sum = multiply_add(&mut b, length, hundred, value);
    b.store(y, i, sum, Guard::Checked);
    b
}

/// Adds 1 to `x[0]` many times sequentially: a slow launch.
pub fn slow() -> Builder {
    let mut b = Builder::new("slow");
    let times = b.scalar("times", DType::U32);
    let x = b.buffer("x", DType::U32, Access::InOut);
    let (i, zero, one) = (b.builtin(Builtin::GlobalId(0)), b.constant(0u32), b.constant(1u32));
    b.begin_for("iteration", zero, times, one);
    let old = b.load(x, i, Guard::Checked);
    let sum = b.alu(Alu::Add, &[old, one]);
    b.store(x, i, sum, Guard::Checked);
    b.end();
    b
}

/// Returns the atomic operations defined for a type, in the order of their results.
pub fn atomics_of(dtype: DType) -> &'static [AtomicOp] {
    let all = &[AtomicOp::Add, AtomicOp::Exchange, AtomicOp::Min, AtomicOp::Max, AtomicOp::CompareExchange];
    if dtype.is_float() { &all[..2] } else { all }
}

/// Sets `old[k i + a] = x[k i + a]` and updates that element of `x` by the a-th of k atomic operations, with `value[i]` and
/// `expected[i]`.
pub fn atomics(dtype: DType) -> Builder {
    let mut b = Builder::new(format!("atomics_{dtype}"));
    let x = b.buffer("x", dtype, Access::InOut);
    let value = b.buffer("value", dtype, Access::In);
    let expected = b.buffer("expected", dtype, Access::In);
    let old = b.buffer("old", dtype, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let (value, expected) = (b.load(value, i, Guard::Checked), b.load(expected, i, Guard::Checked));
    let ops = atomics_of(dtype);
    for (a, op) in ops.iter().enumerate() {
        let (width, place) = (b.index(ops.len() as u64), b.index(a as u64));
        let at = multiply_add(&mut b, i, width, place);
        let expected = (*op == AtomicOp::CompareExchange).then_some(expected);
        let before = b.atomic(*op, x, at, value, expected, Guard::Checked);
        b.store(old, at, before, Guard::Checked);
    }
    b
}

/// Every work-item takes a number from `counters[0]` into `taken[i]`, applies its id to a maximum and a minimum, and adds 1 to `sum[0]`.
pub fn crowd() -> Builder {
    let mut b = Builder::new("crowd");
    let counters = b.buffer("counters", DType::I32, Access::InOut);
    let sum = b.buffer("sum", DType::F32, Access::InOut);
    let taken = b.buffer("taken", DType::I32, Access::Out);
    let id = b.builtin(Builtin::GlobalId(0));
    let (word, one, float) = (b.cast(DType::I32, id), b.constant(1i32), b.constant(1f32));
    let [first, second, third] = [0, 1, 2].map(|place| b.index(place));
    let mine = b.atomic(AtomicOp::Add, counters, first, one, None, Guard::Checked);
    b.store(taken, id, mine, Guard::Checked);
    b.atomic(AtomicOp::Max, counters, second, word, None, Guard::Checked);
    b.atomic(AtomicOp::Min, counters, third, word, None, Guard::Checked);
    b.atomic(AtomicOp::Add, sum, first, float, None, Guard::Checked);
    b
}

/// The tested collectives with their element types.
pub const COMBINED: &[(CollectiveOp, DType)] = &[
    (CollectiveOp::Reduce(ReduceOp::Sum), DType::F32),
    (CollectiveOp::Reduce(ReduceOp::Max), DType::F32),
    (CollectiveOp::Reduce(ReduceOp::Min), DType::F32),
    (CollectiveOp::Reduce(ReduceOp::Prod), DType::I32),
    (CollectiveOp::Reduce(ReduceOp::Min), DType::U32),
    (CollectiveOp::InclusiveScan(ReduceOp::Sum), DType::U32),
    (CollectiveOp::ExclusiveScan(ReduceOp::Sum), DType::I32),
    (CollectiveOp::InclusiveScan(ReduceOp::Min), DType::I32),
    (CollectiveOp::ExclusiveScan(ReduceOp::Max), DType::F32),
    (CollectiveOp::Broadcast(0), DType::F32),
];

/// With work-groups of this shape: `lanes[i]` is the lane plus 100 times the subgroup size, and `out[k i + c]` has the bits of the c-th
/// of k collectives over `x` within the work-group or subgroup, where `i` counts work-group after work-group.
pub fn combinations(group: [u32; 3], scope: Scope) -> Builder {
    let mut b = Builder::new("combinations");
    b.group_size(group);
    let x = b.buffer("x", DType::U32, Access::In);
    let out = b.buffer("out", DType::U32, Access::Out);
    let lanes = b.buffer("lanes", DType::U32, Access::Out);
    let [column, row, place] =
        [Builtin::LocalId(0), Builtin::LocalId(1), Builtin::GroupId(0)].map(|number| b.builtin(number));
    let (columns, rows) = (b.index(group[0].into()), b.index(group[1].into()));
    let row = multiply_add(&mut b, place, rows, row);
    let i = multiply_add(&mut b, row, columns, column);
    let (lane, size) = (b.builtin(Builtin::SubgroupLane), b.builtin(Builtin::SubgroupSize));
    let hundred = b.index(100);
    let both = multiply_add(&mut b, size, hundred, lane);
    let both = b.cast(DType::U32, both);
    b.store(lanes, i, both, Guard::Checked);
    let loaded = b.load(x, i, Guard::Checked);
    let mine = b.bind("mine", loaded);
    for (c, (op, dtype)) in COMBINED.iter().enumerate() {
        let part = if *dtype == DType::U32 { mine } else { b.bitcast(*dtype, mine) };
        let result = b.collective(*op, scope, part);
        let bits = if *dtype == DType::U32 { result } else { b.bitcast(DType::U32, result) };
        let (width, place) = (b.index(COMBINED.len() as u64), b.index(c as u64));
        let at = multiply_add(&mut b, i, width, place);
        b.store(out, at, bits, Guard::Checked);
    }
    b
}
