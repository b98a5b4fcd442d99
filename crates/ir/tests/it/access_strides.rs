//! Access analysis of kernels, compared with their accesses in the interpreter.

use panoply_ir::builder::Builder;
use panoply_ir::interpret::{self, Access, Arg, Observer};
use panoply_ir::kernel::{self, Builtin, ExprId, Guard, Kernel, MemId};
use panoply_ir::strides::{can_write_in_place, is_linear, strides};
use panoply_ir::verify::verify;
use panoply_ir::{Alu, DType, Result};

const GRID: [u64; 3] = [5, 4, 3];
const LEN: u64 = 400;

/// Observer of the elements of one memory that each work-item accesses.
struct Touched(MemId, Vec<([u64; 3], u64)>);

impl Observer for Touched {
    fn access(&mut self, access: Access) -> Result<()> {
        if access.mem == self.0 {
            self.1.push((access.item.global, access.element.unwrap_or(u64::MAX)));
        }
        Ok(())
    }
}

/// Returns a kernel that reads at one index and writes at another.
fn kernel(read: fn(&mut Builder) -> ExprId, write: fn(&mut Builder) -> ExprId) -> Kernel {
    let mut b = Builder::new("walk");
    let (x, y) = (b.buffer("x", DType::I32, kernel::Access::In), b.buffer("y", DType::I32, kernel::Access::Out));
    let at = read(&mut b);
    let value = b.load(x, at, Guard::Checked);
    let at = write(&mut b);
    b.store(y, at, value, Guard::Checked);
    b.finish().unwrap()
}

/// Returns a linear function of the global ids plus a constant.
fn sum(b: &mut Builder, factors: [u64; 3], constant: u64) -> ExprId {
    let mut sum = b.index(constant);
    for (axis, factor) in factors.into_iter().enumerate() {
        let (id, factor) = (b.builtin(Builtin::GlobalId(axis as u8)), b.index(factor));
        let term = b.alu(Alu::Mul, &[factor, id]);
        sum = b.alu(Alu::Add, &[term, sum]);
    }
    sum
}

fn own(b: &mut Builder) -> ExprId {
    let rows = sum(b, [0, 5, 20], 0);
    let rows = b.bind("rows", rows);
    let column = b.builtin(Builtin::GlobalId(0));
    b.alu(Alu::Add, &[rows, column])
}

/// Returns the strides of the buffer that is read, after comparing both buffers with the interpreter.
fn checked(kernel: Kernel) -> Option<[u64; 3]> {
    let kernel = verify(kernel).unwrap();
    for mem in [MemId(0), MemId(1)] {
        let derived = strides(&kernel, mem);
        let (mut x, mut y) = (vec![0; 4 * LEN as usize], vec![0; 4 * LEN as usize]);
        let mut touched = Touched(mem, Vec::new());
        let mut args = [Arg::Write(&mut x), Arg::Write(&mut y)];
        interpret::run(&kernel, GRID, [1; 3], &mut args, &mut touched).unwrap();
        for (item, element) in touched.1 {
            let expected = derived.map(|of| (0..3).map(|axis| of[axis] * item[axis]).sum());
            assert!(expected.is_none_or(|expected: u64| expected == element), "{derived:?} in {kernel:?}");
        }
    }
    strides(&kernel, MemId(0))
}

#[test]
fn linear_indices_have_strides() {
    assert_eq!(checked(kernel(own, own)), Some([1, 5, 20]));
    assert_eq!(checked(kernel(|b| sum(b, [3, 0, 7], 0), own)), Some([3, 0, 7]));
    assert!(is_linear([1, 5, 20], GRID) && is_linear([1, 5, 99], [5, 4, 1]) && is_linear([0, 7, 1], [1, 1, 3]));
    assert!(!is_linear([1, 5, 21], GRID) && !is_linear([3, 0, 7], GRID) && !is_linear([5, 1, 20], [4, 5, 3]));
}

#[test]
fn nonlinear_indices_have_no_strides() {
    let shifted: fn(&mut Builder) -> ExprId = |b| sum(b, [1, 5, 20], 1);
    let quotient: fn(&mut Builder) -> ExprId = |b| {
        let (x, two) = (b.builtin(Builtin::GlobalId(0)), b.index(2));
        b.alu(Alu::Div, &[x, two])
    };
    let twice: fn(&mut Builder) -> ExprId = |b| {
        let (at, x) = (own(b), MemId(0));
        let shifted = sum(b, [1, 5, 20], 3);
        let (value, other) = (b.load(x, at, Guard::Checked), b.load(x, shifted, Guard::Checked));
        let (value, other) = (b.cast(DType::U32, value), b.cast(DType::U32, other));
        let both = b.alu(Alu::Add, &[value, other]);
        let none = b.cast(panoply_ir::Type::Index, both);
        let zero = b.index(0);
        let none = b.alu(Alu::Mul, &[none, zero]);
        b.alu(Alu::Add, &[at, none])
    };
    let length: fn(&mut Builder) -> ExprId = |b| b.len(MemId(0));
    for read in [shifted, quotient, twice, length] {
        assert_eq!(checked(kernel(read, own)), None);
    }
    let huge: fn(&mut Builder) -> ExprId = |b| {
        let (x, many) = (b.builtin(Builtin::GlobalId(0)), b.index(u64::MAX / 2));
        let x = b.alu(Alu::Mul, &[x, many]);
        b.alu(Alu::Mul, &[x, many])
    };
    assert_eq!(strides(&verify(kernel(huge, own)).unwrap(), MemId(0)), None);
}

/// Body of a kernel that reads x and writes y and z.
type Body = fn(&mut Builder, [MemId; 3]);

/// Returns y and z after a body ran with x and y as separate or as one memory; and whether `replaces` allows one memory.
fn ran(body: Body, joined: bool) -> (Vec<u8>, Vec<u8>, bool) {
    let mut b = Builder::new("replace");
    let z = b.buffer("z", DType::I32, kernel::Access::Out);
    let access = if joined { kernel::Access::InOut } else { kernel::Access::Out };
    let y = b.buffer("y", DType::I32, access);
    let x = if joined { y } else { b.buffer("x", DType::I32, kernel::Access::In) };
    body(&mut b, [x, y, z]);
    let kernel = verify(b.finish().unwrap()).unwrap();
    let numbers = || (0..LEN as i32).flat_map(|i| (i * 7).to_le_bytes()).collect::<Vec<u8>>();
    let (mut x, mut y, mut z) = (numbers(), numbers(), vec![0; 4 * LEN as usize]);
    let mut args = vec![Arg::Write(&mut z), Arg::Write(&mut y)];
    if !joined {
        args.push(Arg::Write(&mut x));
    }
    interpret::run(&kernel, GRID, [1; 3], &mut args, &mut Touched(MemId(9), Vec::new())).unwrap();
    (y, z, can_write_in_place(&kernel, MemId(1), GRID))
}

fn doubled(b: &mut Builder, [x, y, _]: [MemId; 3]) {
    let at = own(b);
    let value = b.load(x, at, Guard::Checked);
    let value = b.alu(Alu::Add, &[value, value]);
    b.store(y, at, value, Guard::Checked);
}

/// Doubles a work-item's own element and the one `apart` elements after it, with both loads before the stores.
fn pair(b: &mut Builder, [x, y]: [MemId; 2], apart: u64) {
    let first = own(b);
    let apart = b.index(apart);
    let second = b.alu(Alu::Add, &[first, apart]);
    let values = [first, second].map(|at| {
        let value = b.load(x, at, Guard::Checked);
        let twice = b.alu(Alu::Add, &[value, value]);
        b.bind("v", twice)
    });
    for (at, value) in [first, second].into_iter().zip(values) {
        b.store(y, at, value, Guard::Checked);
    }
}

#[test]
fn in_place_kernels_are_recognized() {
    let kept: Body = |b, [x, y, z]| {
        let at = own(b);
        let value = b.load(x, at, Guard::Checked);
        let value = b.bind("v", value);
        let twice = b.alu(Alu::Add, &[value, value]);
        b.store(y, at, twice, Guard::Checked);
        b.store(z, at, value, Guard::Checked);
    };
    let late: Body = |b, [x, y, z]| {
        doubled(b, [x, y, z]);
        let at = own(b);
        let value = b.load(x, at, Guard::Checked);
        b.store(z, at, value, Guard::Checked);
    };
    let again: Body = |b, mems| {
        let [start, end, step] = [0, 2, 1].map(|number| b.index(number));
        b.begin_for("t", start, end, step);
        doubled(b, mems);
        b.end();
    };
    let others: Body = |b, [x, y, _]| {
        let (at, value) = (own(b), sum(b, [0; 3], 0));
        let value = b.load(x, value, Guard::Checked);
        b.store(y, at, value, Guard::Checked);
    };
    // Elements 60 apart, which is the number of work-items; and neighbors, which are those of other work-items.
    let distant: Body = |b, [x, y, _]| pair(b, [x, y], 60);
    let near: Body = |b, [x, y, _]| pair(b, [x, y], 1);
    let cases: [(&str, Body, bool); 7] = [
        ("distant", distant, true),
        ("near", near, false),
        ("element", doubled, true),
        ("kept", kept, true),
        ("late", late, false),
        ("again", again, false),
        ("others", others, false),
    ];
    for (name, body, first) in cases {
        let (apart, joined) = (ran(body, false), ran(body, true));
        assert_eq!(joined.2, first, "{name}");
        assert!(!first || (&apart.0, &apart.1) == (&joined.0, &joined.1), "{name}: the results are equal");
    }
    // Two rejected kernels do give other results.
    assert!(ran(late, false).1 != ran(late, true).1 && ran(again, false).0 != ran(again, true).0);
}
