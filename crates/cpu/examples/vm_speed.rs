//! Throughput of the vector machine on the kernels of the performance targets, compared with memory bandwidth.
//!
//! `cargo run --release -p panoply-cpu --example vm_speed [isa] [cache] [dump] [only=part of a name]`

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use panoply_cpu::memory::Allocation;
use panoply_cpu::vm::exec::Buffer;
use panoply_cpu::vm::launch::{Compiled, scalar_bits};
use panoply_device::{AllocId, Region};
use panoply_host::isa::Isa;
use panoply_host::math::{Fused, single};
use panoply_host::pool::Pool;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::*;
use panoply_ir::verify::{verify, verify_proven};
use panoply_ir::{Alu, DType, Math, Scalar};

/// Number of elements of a buffer: larger than the cache, or within it, which gives more stable timings on a busy machine.
static N: OnceLock<usize> = OnceLock::new();

fn n() -> usize {
    *N.get_or_init(|| if std::env::args().any(|arg| arg == "cache") { 1 << 20 } else { 16 << 20 })
}

fn main() {
    let isa = std::env::args().nth(1).and_then(|name| Isa::from_name(&name)).unwrap_or_else(Isa::best);
    let dump = std::env::args().any(|arg| arg == "dump");
    println!("{isa}, {} threads at most, {} M f32", Pool::for_machine().threads(), n() >> 20);
    println!("{:<34}{:>9}{:>9}   GB/s on 1 and 2 threads", "", 1, 2);
    let (x, y, z) = (data(1), data(2), data(3));
    let triad = [1, 2].map(|threads| triad(threads, x, y, z));
    row("triad a[i] = b[i] + s·c[i] (Rust)", triad, None);
    let kernels: [(&str, Kernel, usize); 6] = [
        ("y = exp(a·x + b)·tanh(x)", exp_tanh(), 2),
        ("y += a·x (saxpy)", saxpy(Guard::Checked), 3),
        ("y += a·x, index proven", saxpy(Guard::Proven), 3),
        ("copy", copy(), 2),
        ("sum, 64 elements per work-item", sums(), 1),
        ("if x > 0 { y = √x } else { y = x² }", branches(), 2),
    ];
    for (name, kernel, streams) in kernels {
        if !wanted(name) {
            continue;
        }
        // SAFETY: the buffers have as many elements as there are work-items.
        let verified = unsafe { verify_proven(kernel) }.expect("valid");
        let compiled = Compiled::new(Arc::new(verified), isa).expect("compiles");
        if dump {
            println!("{}", compiled.program());
        }
        let items = if name.starts_with("sum") { n() as u64 / SUM_ITERATIONS } else { n() as u64 };
        let scalars = scalars(compiled.kernel());
        let speed = [1, 2].map(|threads| {
            let pool = Pool::new(threads);
            let buffers =
                [&mut *x, &mut *y, &mut *z].map(|v| Buffer { ptr: v.as_mut_ptr().cast(), len: v.len() as u64 });
            let seconds = fastest(|| {
                // SAFETY: the buffers are vectors of this function.
                unsafe { compiled.launch(&pool, [items, 1, 1], &buffers, &scalars) }.expect("runs");
            });
            (streams * n() * 4) as f64 / seconds / 1e9
        });
        row(name, speed, Some(triad));
    }
    if wanted("exp, by hand") && Isa::Avx512.is_available() {
        let native = native_exp_tanh(x, y);
        println!("{:<34}{native:9.1}", "exp and tanh in one loop (AVX-512)");
    }
    if wanted("Mandelbrot") {
        mandelbrot_speed(isa, dump);
    }
    launches(isa);
    compile_time(isa);
}

/// Returns true if a row is selected by the argument `only=part of a name`, or if there is no such argument.
fn wanted(name: &str) -> bool {
    std::env::args().filter_map(|arg| arg.strip_prefix("only=").map(|part| name.contains(part))).all(|is| is)
}

fn row(name: &str, speed: [f64; 2], triad: Option<[f64; 2]>) {
    let share = triad.map(|triad| {
        format!("   {:3.0} % and {:3.0} % of triad", 100.0 * speed[0] / triad[0], 100.0 * speed[1] / triad[1])
    });
    println!("{name:<34}{:9.1}{:9.1}{}", speed[0], speed[1], share.unwrap_or_default());
}

fn fastest(mut f: impl FnMut()) -> f64 {
    f();
    (0..if n() < 2 << 20 { 300 } else { 15 })
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::MAX, f64::min)
}

/// Returns floats in device memory, which uses huge pages where available.
fn data(seed: u32) -> &'static mut [f32] {
    let bytes = 4 * n() as u64;
    let memory = Box::leak(Box::new(Allocation::new(bytes).expect("memory is available")));
    let first = memory.address(Region { alloc: AllocId(0), offset: 0, bytes }).cast::<f32>();
    // SAFETY: the allocation has this length, is aligned and never freed.
    let data = unsafe { std::slice::from_raw_parts_mut(first, n()) };
    for (i, x) in (0_u32..).zip(&mut *data) {
        *x = ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32) / (1 << 23) as f32 - 1.0;
    }
    data
}

fn triad(threads: usize, a: &mut [f32], b: &[f32], c: &[f32]) -> f64 {
    let pool = Pool::new(threads);
    let part = n() / threads;
    let address = a.as_mut_ptr() as usize;
    let seconds = fastest(|| {
        pool.run(threads, &|number| {
            let range = number * part..(number + 1) * part;
            // SAFETY: the parts are disjoint.
            let a = unsafe { std::slice::from_raw_parts_mut((address as *mut f32).add(range.start), part) };
            for ((a, b), c) in a.iter_mut().zip(&b[range.clone()]).zip(&c[range]) {
                *a = *b + 3.0 * *c;
            }
        });
    });
    (3 * n() * 4) as f64 / seconds / 1e9
}

fn scalars(kernel: &Kernel) -> Vec<u64> {
    let value = |param: &Param| match param {
        Param::Buffer(_) => 0,
        Param::Scalar { ty, .. } => scalar_bits(Scalar::from_f64(ty.dtype().expect("these kernels take floats"), 0.75)),
    };
    kernel.params.iter().map(value).collect()
}

fn exp_tanh() -> Kernel {
    let mut b = Builder::new("exp_tanh");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let (a, c) = (b.scalar("a", DType::F32), b.scalar("b", DType::F32));
    let i = b.builtin(Builtin::GlobalId(0));
    let v = b.load(x, i, Guard::Checked);
    let scaled = b.alu(Alu::Mul, &[a, v]);
    let moved = b.alu(Alu::Add, &[scaled, c]);
    let (e, t) = (b.alu(Alu::Math(Math::Exp), &[moved]), b.alu(Alu::Math(Math::Tanh), &[v]));
    let product = b.alu(Alu::Mul, &[e, t]);
    b.store(y, i, product, Guard::Checked);
    b.finish().expect("valid")
}

fn saxpy(guard: Guard) -> Kernel {
    let mut b = Builder::new("saxpy");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::InOut);
    let a = b.scalar("a", DType::F32);
    let i = b.builtin(Builtin::GlobalId(0));
    let len = b.len(y);
    let inside = b.alu(Alu::Lt, &[i, len]);
    b.begin_if(inside);
    let (xv, yv) = (b.load(x, i, guard), b.load(y, i, guard));
    let product = b.alu(Alu::Mul, &[a, xv]);
    let sum = b.alu(Alu::Add, &[yv, product]);
    b.store(y, i, sum, guard);
    b.end();
    b.finish().expect("valid")
}

fn copy() -> Kernel {
    let mut b = Builder::new("copy");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let v = b.load(x, i, Guard::Checked);
    b.store(y, i, v, Guard::Checked);
    b.finish().expect("valid")
}

/// Each group of 512 sums 512 columns of a part of the buffer.
fn sums() -> Kernel {
    let mut b = Builder::new("sums");
    b.group_size([512, 1, 1]);
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let (i, l, g) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::LocalId(0)), b.builtin(Builtin::GroupId(0)));
    let zero = b.constant(0_f32);
    let sum = b.declare("sum", zero, true);
    let (start, one, iterations, width) = (b.index(0), b.index(1), b.index(SUM_ITERATIONS), b.index(512));
    let piece = b.alu(Alu::Mul, &[g, iterations]);
    let k = b.begin_for("k", start, iterations, one);
    let row = b.alu(Alu::Add, &[piece, k]);
    let row = b.alu(Alu::Mul, &[row, width]);
    let at = b.alu(Alu::Add, &[row, l]);
    let v = b.load(x, at, Guard::Checked);
    let so_far = b.get(sum);
    let more = b.alu(Alu::Add, &[so_far, v]);
    b.assign(sum, more);
    b.end();
    let total = b.get(sum);
    b.store(y, i, total, Guard::Checked);
    b.finish().expect("valid")
}

/// Number of elements that a work-item of `sums` adds.
const SUM_ITERATIONS: u64 = 64;

fn branches() -> Kernel {
    let mut b = Builder::new("branches");
    let x = b.buffer("x", DType::F32, Access::In);
    let y = b.buffer("y", DType::F32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let v = b.load(x, i, Guard::Checked);
    let v = b.bind("v", v);
    let zero = b.constant(0_f32);
    let positive = b.alu(Alu::Lt, &[zero, v]);
    b.begin_if(positive);
    let root = b.alu(Alu::Sqrt, &[v]);
    b.store(y, i, root, Guard::Checked);
    b.begin_else();
    let square = b.alu(Alu::Mul, &[v, v]);
    b.store(y, i, square, Guard::Checked);
    b.end();
    b.finish().expect("valid")
}

/// The same functions in one loop that the compiler vectorizes for AVX-512: the limit of the machine without intermediate stores.
fn native_exp_tanh(x: &[f32], y: &mut [f32]) -> f64 {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma"))]
    fn all(x: &[f32], y: &mut [f32]) {
        for (x, y) in x.iter().zip(y) {
            *y = single::exp::<Fused>(0.75 * x + 0.75) * single::tanh::<Fused>(*x);
        }
    }
    // SAFETY: the caller asked for these instructions.
    let seconds = fastest(|| unsafe { all(x, y) });
    (2 * n() * 4) as f64 / seconds / 1e9
}

const SIDE: u64 = 1024;
const ITERATIONS: u32 = 256;

fn mandelbrot() -> Kernel {
    let mut b = Builder::new("mandelbrot");
    let out = b.buffer("out", DType::U32, Access::Out);
    let (gx, gy) = (b.builtin(Builtin::GlobalId(0)), b.builtin(Builtin::GlobalId(1)));
    let coordinate = |b: &mut Builder, id: ExprId, from: f32| {
        let value = b.cast(DType::F32, id);
        let (step, from) = (b.constant(3.0 / SIDE as f32), b.constant(from));
        let value = b.alu(Alu::Mul, &[value, step]);
        b.alu(Alu::Add, &[value, from])
    };
    let (cx, cy) = (coordinate(&mut b, gx, -2.0), coordinate(&mut b, gy, -1.5));
    let (cx, cy) = (b.bind("cx", cx), b.bind("cy", cy));
    let zero = b.constant(0_f32);
    let none = b.constant(0_u32);
    let (x, y) = (b.declare("x", zero, true), b.declare("y", zero, true));
    let iterations = b.declare("iterations", none, true);
    let (xv, yv, n) = (b.get(x), b.get(y), b.get(iterations));
    let (xx, yy) = (b.alu(Alu::Mul, &[xv, xv]), b.alu(Alu::Mul, &[yv, yv]));
    let norm = b.alu(Alu::Add, &[xx, yy]);
    let (four, limit, one, two) = (b.constant(4_f32), b.constant(ITERATIONS), b.constant(1_u32), b.constant(2_f32));
    let (near, early) = (b.alu(Alu::Le, &[norm, four]), b.alu(Alu::Lt, &[n, limit]));
    let going = b.alu(Alu::And, &[near, early]);
    b.begin_while(going);
    let difference = b.alu(Alu::Sub, &[xx, yy]);
    let next_x = b.alu(Alu::Add, &[difference, cx]);
    let next_x = b.bind("next", next_x);
    let product = b.alu(Alu::Mul, &[xv, yv]);
    let product = b.alu(Alu::Mul, &[product, two]);
    let next_y = b.alu(Alu::Add, &[product, cy]);
    b.assign(y, next_y);
    b.assign(x, next_x);
    let more = b.alu(Alu::Add, &[n, one]);
    b.assign(iterations, more);
    b.end();
    let width = b.index(SIDE);
    let at = b.alu(Alu::Mul, &[gy, width]);
    let at = b.alu(Alu::Add, &[at, gx]);
    b.store(out, at, n, Guard::Checked);
    b.finish().expect("valid")
}

fn mandelbrot_speed(isa: Isa, dump: bool) {
    let compiled = Compiled::new(Arc::new(verify(mandelbrot()).expect("valid")), isa).expect("compiles");
    if dump {
        println!("{}", compiled.program());
    }
    let mut out = vec![0_u32; (SIDE * SIDE) as usize];
    let buffers = [Buffer { ptr: out.as_mut_ptr().cast(), len: SIDE * SIDE }];
    let times = [1, 2].map(|threads| {
        let pool = Pool::new(threads);
        fastest(|| {
            // SAFETY: the buffer is a vector of this function.
            unsafe { compiled.launch(&pool, [SIDE, SIDE, 1], &buffers, &[0]) }.expect("runs");
        })
    });
    let steps: u64 = out.iter().map(|n| u64::from(*n)).sum();
    let native = native_mandelbrot(&mut out);
    let same = steps == out.iter().map(|n| u64::from(*n)).sum::<u64>();
    println!(
        "Mandelbrot {SIDE}², {ITERATIONS} iterations: {:.1} and {:.1} ms; by hand in 16 lanes {:.1} ms (1 thread); same picture: {same}",
        times[0] * 1e3,
        times[1] * 1e3,
        native * 1e3
    );
}

/// The same in loops over 16 lanes that the compiler vectorizes for AVX-512.
fn native_mandelbrot(out: &mut [u32]) -> f64 {
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma"))]
    fn picture(out: &mut [u32]) {
        for (block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (row, column) = (block * 16 / SIDE as usize, block * 16 % SIDE as usize);
            let cy = row as f32 * (3.0 / SIDE as f32) - 1.5;
            let cx: [f32; 16] = std::array::from_fn(|i| (column + i) as f32 * (3.0 / SIDE as f32) - 2.0);
            let (mut x, mut y, mut n) = ([0_f32; 16], [0_f32; 16], [0_u32; 16]);
            for _ in 0..ITERATIONS {
                let mut going = 0;
                for i in 0..16 {
                    let (xx, yy) = (x[i] * x[i], y[i] * y[i]);
                    let inside = u32::from(xx + yy <= 4.0);
                    going += inside;
                    n[i] += inside;
                    let next = xx - yy + cx[i];
                    y[i] = x[i] * y[i] * 2.0 + cy;
                    x[i] = next;
                }
                if going == 0 {
                    break;
                }
            }
            *out = n;
        }
    }
    #[cfg(target_arch = "x86_64")]
    if !Isa::Avx512.is_available() {
        return f64::NAN;
    }
    // SAFETY: the machine has these instructions.
    fastest(|| unsafe { picture(out) })
}

fn launches(isa: Isa) {
    let mut b = Builder::new("empty");
    let x = b.buffer("x", DType::F32, Access::In);
    let _ = x;
    let compiled = Compiled::new(Arc::new(verify(b.finish().expect("valid")).expect("valid")), isa).expect("compiles");
    let pool = Pool::for_machine();
    let mut x = [0_f32; 4];
    let buffers = [Buffer { ptr: x.as_mut_ptr().cast(), len: 4 }];
    const COUNT: usize = 10_000;
    let seconds = fastest(|| {
        for _ in 0..COUNT {
            // SAFETY: the buffer is an array of this function.
            unsafe { compiled.launch(&pool, [1, 1, 1], &buffers, &[0]) }.expect("runs");
        }
    });
    println!("empty launch: {:.0} ns (without the device's tables)", seconds / COUNT as f64 * 1e9);
}

/// Fifty lines, each of which uses the two before.
fn fifty_lines() -> Kernel {
    let mut b = Builder::new("fifty_lines");
    let (x, y) = (b.buffer("x", DType::F32, Access::In), b.buffer("y", DType::F32, Access::Out));
    let i = b.builtin(Builtin::GlobalId(0));
    let first = b.load(x, i, Guard::Checked);
    let mut values = vec![b.bind("first", first); 2];
    for line in 0..48 {
        let [.., before, last] = values[..] else { unreachable!("there are two to start with") };
        let alu = [Alu::Mul, Alu::Add, Alu::Sub, Alu::Max][line % 4];
        let value = b.alu(alu, &[before, last]);
        values.push(b.bind("value", value));
    }
    b.store(y, i, values[values.len() - 1], Guard::Checked);
    b.finish().expect("valid")
}

fn compile_time(isa: Isa) {
    for (name, kernel) in [("mandelbrot", mandelbrot()), ("50 lines", fifty_lines())] {
        let kernel = Arc::new(verify(kernel).expect("valid"));
        let seconds = fastest(|| {
            Compiled::new(Arc::clone(&kernel), isa).expect("compiles");
        });
        println!("compiling {name} ({} expressions): {:.0} µs", kernel.exprs.len(), seconds * 1e6);
    }
}
