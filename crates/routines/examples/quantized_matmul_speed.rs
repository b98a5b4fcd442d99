//! Speed of products with packed weights on the matrices of a LLaMA of 1.1 billion weights: bytes of weights a second for one column,
//! operations a second for many, and the bytes a second that a loop over the same memory reads. Encodings take turns; medians.
//!
//!     cargo run --release -p panoply-routines --example quantized_matmul_speed [threads] [rounds] [columns] [encodings, as Q4_0,Q8_0]
//!         [instruction set] [stored]

use std::hint::black_box;
use std::time::Instant;

use panoply_host::huge_pages::Pages;
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{QuantizedMatmul, Routine};
use panoply_ir::{DType, Encoding};
use panoply_routines::run;

/// Bytes of weights that one pass reads: several times what a cache holds.
const BYTES: usize = 640 << 20;
/// Rows and columns of the matrices of a block.
const SHAPES: [[usize; 2]; 7] =
    [[2048, 2048], [256, 2048], [256, 2048], [2048, 2048], [5632, 2048], [5632, 2048], [2048, 5632]];

/// Whole blocks of the model that fit the memory, one product after another; seconds and bytes of weights.
fn pass(
    pool: &Pool,
    isa: Isa,
    encoding: Encoding,
    interleaved: bool,
    m: usize,
    most: usize,
    memory: &mut [u64],
) -> (f64, usize) {
    let mut x: Vec<f32> = (0..m * 5632).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect();
    let mut output = vec![0.0f32; m * 5632];
    let interleaved = interleaved && encoding.can_interleave(16);
    let of = |[n, k]: [usize; 2]| QuantizedMatmul { dtype: DType::F32, encoding, m, n, k, interleaved };
    let bytes = |of: &QuantizedMatmul| of.n * of.row_bytes().expect("whole blocks");
    let block: usize = SHAPES.iter().map(|shape| bytes(&of(*shape))).sum();
    let start = memory.as_mut_ptr().cast::<u8>();
    let begin = Instant::now();
    let mut at = 0;
    while at + block <= most {
        for shape in SHAPES {
            let of = of(shape);
            let buffers = [x.as_mut_ptr().cast(), start.wrapping_add(at), output.as_mut_ptr().cast()];
            // SAFETY: the buffers are as long as the routine says, and apart.
            unsafe { run(pool, isa, &Routine::QuantizedMatmul(of), &buffers) };
            at += bytes(&of);
        }
    }
    (begin.elapsed().as_secs_f64(), at)
}

/// Seconds in which all memory is read.
fn read(pool: &Pool, memory: &[u64]) -> f64 {
    let begin = Instant::now();
    let parts: Vec<&[u64]> = memory.chunks(1 << 16).collect();
    pool.run(parts.len(), &|part| {
        let mut sums = [0u64; 32];
        for words in parts[part].chunks_exact(32) {
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum |= word);
        }
        black_box(sums);
    });
    begin.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (pool, rounds, columns) = (Pool::new(number(0, 2)), number(1, 15), number(2, 512));
    let isa = std::env::args()
        .nth(5)
        .and_then(|name| Isa::ALL.into_iter().find(|isa| isa.name() == name))
        .unwrap_or(Isa::best());
    let interleaved = std::env::args().nth(6).is_none_or(|how| how != "stored");
    let wanted =
        |encoding: &Encoding| words.get(3).is_none_or(|names| names.split(',').any(|name| name == encoding.name()));
    let encodings: Vec<Encoding> = Encoding::ALL.into_iter().filter(wanted).collect();
    // Numbers of moderate size, whatever they are read as.
    let word = |i: u64| {
        (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ i << 7) & 0xbfff_bfff_bfff_bfff | 0x2000_2000_2000_2000
    };
    let pages = Pages::huge(BYTES).expect("huge pages can be mapped");
    // SAFETY: the pages are as long, zeroed, and used by nothing else.
    let memory = unsafe { std::slice::from_raw_parts_mut(pages.start.as_ptr().cast::<u64>(), BYTES / 8) };
    memory.iter_mut().zip(0..).for_each(|(to, i)| *to = word(i));
    let mut speeds = vec![[Vec::new(), Vec::new()]; encodings.len()];
    let mut reads = Vec::new();
    for _ in 0..rounds {
        reads.push(BYTES as f64 / read(&pool, memory) / 1e9);
        for (encoding, [decode, prefill]) in encodings.iter().zip(&mut speeds) {
            let (seconds, bytes) = pass(&pool, isa, *encoding, interleaved, 1, BYTES, memory);
            decode.push(bytes as f64 / seconds / 1e9);
            if columns > 0 {
                let elems = SHAPES.iter().map(|[n, k]| n * k).sum::<usize>();
                let most = elems / encoding.block_elems() * encoding.block_bytes();
                let (seconds, _) = pass(&pool, isa, *encoding, interleaved, columns, most, memory);
                prefill.push(2.0 * elems as f64 * columns as f64 / seconds / 1e9);
            }
        }
    }
    let limit = median(reads);
    println!("{isa}, {} threads; reading: {limit:.1} GB/s", pool.threads());
    println!("{:6} {:>12} {:>9} {:>16}", "", "1 column", "of read", format!("{columns} columns"));
    for (encoding, [decode, prefill]) in encodings.iter().zip(speeds) {
        let (decode, name) = (median(decode), encoding.name());
        let prefill = if columns > 0 { median(prefill) } else { 0.0 };
        println!("{name:6} {decode:>7.1} GB/s {:>8.0}% {prefill:>10.0} GOP/s", 100.0 * decode / limit);
    }
}
