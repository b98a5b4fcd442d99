//! What the CPU's routines reach, the fastest of many runs.
//!
//!     cargo run --release -p panoply-cpu --example routine_speed [threads] [part of a name]

use std::time::Instant;

use panoply_cpu::pool::Pool;
use panoply_cpu::routine::run;
use panoply_cpu::vm::isa::Isa;
use panoply_ir::routine::{Attention, Conv, ConvAxis, Routine};
use panoply_ir::{DType, Scalar};

fn conv(batch: usize, groups: usize, channels: [usize; 2], lengths: [usize; 2], size: usize, stride: usize) -> Conv {
    let axis = |length: usize| {
        let padding = size / 2;
        let positions = (length + 2 * padding - size) / stride + 1;
        ConvAxis { length, size, positions, stride, dilation: 1, padding }
    };
    let axes = [ConvAxis::NONE, axis(lengths[0]), axis(lengths[1])];
    Conv { dtype: DType::F32, batch, groups, inputs: channels[0] / groups, outputs: channels[1] / groups, axes }
}

fn attention(heads: usize, length: usize, width: usize, causal: bool) -> Attention {
    Attention {
        dtype: DType::F32,
        batch: 1,
        heads,
        key_heads: heads,
        queries: length,
        keys: length,
        width,
        depth: width,
        past: causal.then_some(0),
        scale: Scalar::from_f64(DType::F32, 1.0 / (width as f64).sqrt()),
        mask: None,
    }
}

/// The fastest run, in seconds.
fn fastest(pool: &Pool, routine: Routine) -> f64 {
    let mut memory: Vec<Vec<f32>> = routine
        .operands()
        .map(|operand| (0..operand.elems.unwrap_or(0)).map(|i| (i * 7 % 13) as f32 / 13.0 - 0.4).collect())
        .collect();
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while begin.elapsed().as_secs_f64() < 0.5 {
        let start = now();
        // SAFETY: the buffers are as long as the routine says, and apart.
        unsafe { run(pool, Isa::best(), &routine, &buffers) }.expect("routines do not fail");
        best = best.min(now() - start);
    }
    best
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok());
    let pool = threads.map_or_else(Pool::for_machine, Pool::new);
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let convs = [
        conv(8, 1, [64, 64], [56, 56], 3, 1),
        conv(64, 1, [1, 32], [28, 28], 3, 1),
        conv(64, 1, [32, 64], [14, 14], 3, 1),
        conv(8, 1, [64, 128], [56, 56], 3, 2),
        conv(8, 1, [256, 64], [56, 56], 1, 1),
        conv(1, 1, [512, 512], [7, 7], 3, 1),
        conv(8, 64, [64, 64], [56, 56], 3, 1),
        conv(8, 1, [3, 64], [224, 224], 7, 2),
    ];
    for conv in convs {
        let macs = [conv.batch, conv.groups, conv.inputs, conv.outputs].iter().product::<usize>()
            * conv.sizes().iter().product::<usize>()
            * conv.positions().iter().product::<usize>();
        for routine in [Routine::Conv(conv), Routine::ConvInput(conv), Routine::ConvFilters(conv)] {
            report(&pool, &wanted, routine, 2.0 * macs as f64);
        }
    }
    for attention in [attention(16, 1024, 64, true), attention(16, 1024, 64, false), attention(32, 128, 64, false)] {
        let Attention { heads, queries, keys, width, past, .. } = attention;
        let half = if past.is_some() { 0.5 } else { 1.0 };
        let flops = 4.0 * (heads * queries * keys * width) as f64 * half;
        report(&pool, &wanted, Routine::Attention(attention), flops);
        report(&pool, &wanted, Routine::AttentionGradient(attention), 2.5 * flops);
    }
}

fn report(pool: &Pool, wanted: &str, routine: Routine, flops: f64) {
    let name = routine.to_string();
    if name.contains(wanted) && panoply_cpu::routine::offers(&routine) {
        let seconds = fastest(pool, routine);
        println!("{name:<70} {:>9.3} ms {:>7.1} GFLOP/s", seconds * 1e3, flops / seconds / 1e9);
    }
}

fn now() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
