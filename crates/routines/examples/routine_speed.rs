//! Throughput of the CPU's routines, as the fastest of many runs.
//!
//!     cargo run --release -p panoply-cpu --example routine_speed [threads] [part of a name]

use std::time::Instant;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Attention, Conv, ConvAxis, Gemm, Layout, Operand, Routine};
use panoply_ir::{DType, Scalar, bf16, f16};
use panoply_routines::run;

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

/// Returns the time of the fastest run in seconds.
fn fastest(pool: &Pool, routine: Routine) -> f64 {
    let memory = |operand: Operand| -> Vec<u64> {
        let value = |i: u64| (i * 7 % 13) as f32 / 13.0 - 0.4;
        let bytes = |i: u64| match operand.dtype {
            DType::F64 => f64::from(value(i)).to_le_bytes().to_vec(),
            DType::F16 => f16::from_f32(value(i)).to_le_bytes().to_vec(),
            DType::BF16 => bf16::from_f32(value(i)).to_le_bytes().to_vec(),
            _ => value(i).to_le_bytes().to_vec(),
        };
        let all: Vec<u8> = (0..operand.elems.unwrap_or(0)).flat_map(bytes).collect();
        all.chunks(8).map(|word| word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))).collect()
    };
    let mut memory: Vec<Vec<u64>> = routine.operands().map(memory).collect();
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while begin.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        // SAFETY: the buffers have the lengths of the routine and do not overlap.
        unsafe { run(pool, Isa::best(), &routine, &buffers) };
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn gemm(dtype: DType, batch: usize, [m, n, k]: [usize; 3], transposed: [bool; 2]) -> Gemm {
    let layout = |rows: usize, columns: usize, transposed: bool| {
        let (row, column) = if transposed { (1, rows) } else { (columns, 1) };
        Layout { offset: 0, batch: rows * columns, row, column }
    };
    let (a, b, c) = (layout(m, k, transposed[0]), layout(k, n, transposed[1]), layout(m, n, false));
    Gemm { dtype, tf32: false, bias: false, batch, m, n, k, a, b, c }
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok());
    let pool = threads.map_or_else(Pool::for_machine, Pool::new);
    let wanted = std::env::args().nth(2).unwrap_or_default();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for (batch, [m, n, k]) in [
            (1, [256; 3]),
            (1, [512; 3]),
            (1, [1024; 3]),
            (1, [2048; 3]),
            (1, [64, 512, 784]),
            (1, [32, 512, 128]),
            (1, [1024, 256, 512]),
            (1, [128, 1024, 256]),
            (1, [128, 256, 1024]),
            (1, [1, 4096, 1024]),
            (64, [128, 128, 64]),
        ] {
            for transposed in [[false, false], [false, true], [true, false]] {
                let gemm = gemm(dtype, batch, [m, n, k], transposed);
                let transposed =
                    ["", " a transposed", " b transposed"][usize::from(transposed[0]) + 2 * usize::from(transposed[1])];
                report(&pool, &wanted, Routine::Gemm(gemm), transposed, 2.0 * (batch * m * n * k) as f64);
            }
        }
    }
    let convs = [
        conv(8, 1, [64, 64], [56, 56], 3, 1),
        conv(64, 1, [1, 32], [28, 28], 3, 1),
        conv(64, 1, [32, 64], [14, 14], 3, 1),
        conv(8, 1, [64, 128], [56, 56], 3, 2),
        conv(8, 1, [256, 64], [56, 56], 1, 1),
        conv(1, 1, [512, 512], [7, 7], 3, 1),
        conv(1, 1, [64, 64], [56, 56], 3, 1),
        conv(1, 1, [128, 128], [28, 28], 3, 1),
        conv(1, 1, [256, 256], [14, 14], 3, 1),
        conv(1, 1, [16, 96], [112, 112], 1, 1),
        conv(1, 1, [32, 192], [28, 28], 1, 1),
        conv(1, 1, [960, 160], [7, 7], 1, 1),
        conv(8, 64, [64, 64], [56, 56], 3, 1),
        conv(1, 32, [32, 32], [112, 112], 3, 1),
        conv(1, 144, [144, 144], [56, 56], 3, 2),
        conv(1, 384, [384, 384], [14, 14], 3, 1),
        conv(1, 960, [960, 960], [7, 7], 3, 1),
        conv(8, 1, [3, 64], [224, 224], 7, 2),
    ];
    for conv in convs {
        let macs = [conv.batch, conv.groups, conv.inputs, conv.outputs].iter().product::<usize>()
            * conv.sizes().iter().product::<usize>()
            * conv.positions().iter().product::<usize>();
        for routine in [Routine::Conv(conv), Routine::ConvBackwardData(conv), Routine::ConvBackwardFilter(conv)] {
            report(&pool, &wanted, routine, "", 2.0 * macs as f64);
        }
    }
    for attention in [attention(16, 1024, 64, true), attention(16, 1024, 64, false), attention(32, 128, 64, false)] {
        let Attention { heads, queries, keys, width, past, .. } = attention;
        let half = if past.is_some() { 0.5 } else { 1.0 };
        let flops = 4.0 * (heads * queries * keys * width) as f64 * half;
        report(&pool, &wanted, Routine::Attention(attention), "", flops);
        report(&pool, &wanted, Routine::AttentionBackward(attention), "", 2.5 * flops);
    }
}

fn report(pool: &Pool, wanted: &str, routine: Routine, variant: &str, flops: f64) {
    let name = format!("{routine}{variant}");
    if name.contains(wanted) && panoply_routines::offers(&routine) {
        let seconds = fastest(pool, routine);
        println!("{name:<70} {:>9.3} ms {:>7.1} GFLOP/s", seconds * 1e3, flops / seconds / 1e9);
    }
}
