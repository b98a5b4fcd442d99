//! Random kernels before and after optimization, run by the interpreter: results are equal, and every bounds proof
//! holds.
//!
//! `PANOPLY_TEST_FULL=1` runs ten thousand kernels, otherwise some hundred. A failure prints the seed.

use panoply_compile::opt::{Options, PASSES, optimize};
use panoply_ir::interpret::{Access, Arg, Observer, run};
use panoply_ir::kernel::{Args, Block, Expr, ExprId, Guard, Kernel, MemId, Op};
use panoply_ir::random::{self, Case, CaseArg};
use panoply_ir::{Alu, Error, Result, Target, Type, Verified};

fn seeds() -> std::ops::Range<u64> {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    0..if full { 10_000 } else { 300 }
}

fn agree(case: &Case, expected: &[Vec<u8>], kernel: Verified<Kernel>, what: &str) {
    let after = Case { kernel, ..case.clone() };
    let found =
        after.interpret(1).unwrap_or_else(|error| panic!("seed {}, {what}: {error}\n{}", case.seed, *after.kernel));
    if let Err(difference) = case.compare(expected, &found, 0.0) {
        panic!("{what}: {difference}\n{}\nbecame\n{}", *case.kernel, *after.kernel);
    }
}

#[test]
fn all_passes_preserve_results() {
    for seed in seeds() {
        let options =
            random::Options { transcendentals: seed % 2 == 0, matrices: seed % 4 > 1, ..random::Options::default() };
        let case = random::case(seed, &options);
        let expected = case.interpret(1).expect("random kernels run");
        for target in [Target::cpu(), Target::opencl_minimum(), Target::cuda_minimum(80)] {
            let after = optimize(case.kernel.clone(), &target, &Options::default());
            proofs_hold(&case, &after);
            agree(&case, &expected, after, &format!("all passes for {}", target.name));
        }
    }
}

#[test]
fn each_pass_preserves_results() {
    for seed in seeds().step_by(3) {
        let case = random::case(seed, &random::Options::default());
        let expected = case.interpret(1).expect("random kernels run");
        for pass in PASSES {
            let after = pass.apply(case.kernel.clone(), &Target::opencl_minimum(), &Options::default());
            agree(&case, &expected, after, pass.name);
        }
    }
}

#[test]
fn any_fuel_preserves_results() {
    for seed in seeds().step_by(10) {
        let case = random::case(seed, &random::Options::default());
        let expected = case.interpret(1).expect("random kernels run");
        for fuel in [0, 1, 3, 10, 30, 100] {
            let options = Options { fuel: Some(fuel) };
            let after = optimize(case.kernel.clone(), &Target::opencl_minimum(), &options);
            agree(&case, &expected, after, &format!("fuel {fuel}"));
        }
    }
}

/// Runs a kernel with the indices of all guarded accesses clamped to 0 if out of bounds, so that only proven accesses
/// can be out of bounds.
fn proofs_hold(case: &Case, kernel: &Verified<Kernel>) {
    let lens = case.args.iter().map(|given| if let CaseArg::Buffer(bytes) = given { bytes.len() } else { 1 });
    if lens.min() == Some(0) {
        return;
    }
    let mut clamped = (**kernel).clone();
    let mut body = std::mem::take(&mut clamped.body);
    clamp_block(&mut clamped, &mut body);
    clamped.body = body;
    let clamped = super::proven(clamped).expect("clamping keeps a kernel well formed");
    let mut buffers = case.buffers();
    let args = case.args.iter().zip(&mut buffers).map(|(given, bytes)| match given {
        CaseArg::Buffer(_) => Arg::Write(bytes),
        CaseArg::Scalar(value) => Arg::Scalar(*value),
        CaseArg::Index(value) => Arg::Index(*value),
    });
    let result = run(&clamped, case.grid, case.group, &mut args.collect::<Vec<Arg>>(), &mut Inside);
    if let Err(error) = result {
        panic!("seed {}: {error}\n{}\nbecame\n{}", case.seed, *case.kernel, **kernel);
    }
}

struct Inside;

impl Observer for Inside {
    fn access(&mut self, access: Access) -> Result<()> {
        if access.element.is_some_and(|element| element < access.len) {
            return Ok(());
        }
        Err(Error::mistake(format!("a bounds proof is wrong: {access:?}")))
    }
}

fn clamp_block(kernel: &mut Kernel, block: &mut Block) {
    for stmt in block {
        match &mut stmt.op {
            Op::Let { value, .. } | Op::Assign { value, .. } => *value = clamp(kernel, *value),
            Op::Collective { op, value, .. } => {
                *value = clamp(kernel, *value);
                op.operands_mut().into_iter().for_each(|operand| *operand = clamp(kernel, *operand));
            }
            Op::Store { mem, index, value, guard } => {
                *value = clamp(kernel, *value);
                if let (Type::Vector(dtype, _), Guard::Checked) = (kernel.exprs.ty(*value), *guard) {
                    *value = kernel.exprs.intern(Expr::Extract(*value, 0), Type::Scalar(dtype));
                }
                *index = clamp(kernel, *index);
                *index = led(kernel, *mem, *index, *guard);
            }
            Op::Atomic { mem, index, value, expected, guard, .. } => {
                *value = clamp(kernel, *value);
                *expected = expected.map(|expected| clamp(kernel, expected));
                *index = clamp(kernel, *index);
                *index = led(kernel, *mem, *index, *guard);
            }
            Op::If { condition, then, otherwise } => {
                *condition = clamp(kernel, *condition);
                clamp_block(kernel, then);
                clamp_block(kernel, otherwise);
            }
            Op::For { start, end, step, body, .. } => {
                for bound in [start, end, step] {
                    *bound = clamp(kernel, *bound);
                }
                clamp_block(kernel, body);
            }
            Op::While { condition, body } => {
                *condition = clamp(kernel, *condition);
                clamp_block(kernel, body);
            }
            Op::Barrier | Op::Break | Op::Continue | Op::Return => {}
        }
    }
}

/// Returns the expression with the indices of all guarded loads clamped.
fn clamp(kernel: &mut Kernel, root: ExprId) -> ExprId {
    let ty = kernel.exprs.ty(root);
    let mut operands = Vec::new();
    let expr = kernel.exprs.get(root);
    expr.operands().iter().for_each(|operand| operands.push(clamp(kernel, *operand)));
    let mut operands = operands.into_iter();
    let expr = match expr.map_operands(|_| operands.next().expect("the number of operands is unchanged")) {
        Expr::Load { mem, index, lanes, guard: Guard::Checked } => {
            // Only the first lane of a vector is loaded with a clamped index; it is broadcast to the others.
            let index = led(kernel, mem, index, Guard::Checked);
            let first = Expr::Load { mem, index, lanes: 1, guard: Guard::Checked };
            if lanes == 1 {
                first
            } else {
                let dtype = kernel.mem(mem).dtype;
                Expr::Splat(kernel.exprs.intern(first, Type::Scalar(dtype)), lanes)
            }
        }
        other => other,
    };
    kernel.exprs.intern(expr, ty)
}

/// Returns the index, or 0 if it is out of bounds.
fn led(kernel: &mut Kernel, mem: MemId, index: ExprId, guard: Guard) -> ExprId {
    if guard != Guard::Checked {
        return index;
    }
    let len = kernel.exprs.intern(Expr::Len(mem), Type::Index);
    let zero = kernel.exprs.intern(Expr::Index(0), Type::Index);
    let inside = kernel.exprs.intern(Expr::Alu(Alu::Lt, Args::new(&[index, len])), Type::BOOL);
    kernel.exprs.intern(Expr::Alu(Alu::Select, Args::new(&[inside, index, zero])), Type::Index)
}
