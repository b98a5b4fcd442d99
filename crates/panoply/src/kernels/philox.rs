//! Random numbers by Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
//! 2011): the generator encrypts a counter, so any work-item computes its own numbers independently.

use crate::{kernel, kernel_fn};

use super::job::{Data, Job, JobArg, JobLaunch};
use super::{BuiltinKernel, CheckResult, Size};

/// Returns the four 32-bit words of a counter under a key.
#[kernel_fn]
pub fn philox4x32(
    mut c0: u32,
    mut c1: u32,
    mut c2: u32,
    mut c3: u32,
    mut k0: u32,
    mut k1: u32,
) -> (u32, u32, u32, u32) {
    for _ in 0..10 {
        let product0 = 0xd251_1f53u64 * c0 as u64;
        let product1 = 0xcd9e_8d57u64 * c2 as u64;
        c0 = (product1 >> 32) as u32 ^ c1 ^ k0;
        c2 = (product0 >> 32) as u32 ^ c3 ^ k1;
        c1 = product1 as u32;
        c3 = product0 as u32;
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    (c0, c1, c2, c3)
}

/// Fills `out` with the words of the counters `first`, `first + 1`, … under a seed; each work-item computes four.
#[kernel]
pub fn random_words(seed0: u32, seed1: u32, first: u32, out: &mut [u32]) {
    let i = global_index();
    let (a, b, c, d) = philox4x32(first.wrapping_add(i as u32), 0, 0, 0, seed0, seed1);
    out[4 * i] = a;
    out[4 * i + 1] = b;
    out[4 * i + 2] = c;
    out[4 * i + 3] = d;
}

/// Computes the words for given counters and keys: six words in, four words out.
#[kernel]
pub fn cipher(blocks: &[u32], out: &mut [u32]) {
    let i = global_index();
    let from = i * 6;
    let (a, b, c, d) = philox4x32(
        blocks[from],
        blocks[from + 1],
        blocks[from + 2],
        blocks[from + 3],
        blocks[from + 4],
        blocks[from + 5],
    );
    out[i * 4] = a;
    out[i * 4 + 1] = b;
    out[i * 4 + 2] = c;
    out[i * 4 + 3] = d;
}

pub(super) const BUILTIN: BuiltinKernel = BuiltinKernel {
    name: "philox",
    about: "counter-based random numbers (Philox)",
    source: include_str!("philox.rs"),
    kernels: &[("random_words", random_words::build), ("cipher", cipher::build)],
    job,
};

/// The published test vectors (Random123, `kat_vectors`): counter, key, result.
const VECTORS: [[u32; 10]; 3] = [
    [0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    [!0, !0, !0, !0, !0, !0, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    [
        0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
        0x24126ea1,
    ],
];

fn job(size: Size, seed: u64) -> Job {
    let blocks = size.pick(300, 1 << 18, 1 << 22);
    let published: Vec<u32> = VECTORS.iter().flat_map(|vector| &vector[..6]).copied().collect();
    let words = [JobArg::from(seed as u32), JobArg::from((seed >> 32) as u32), JobArg::from(FIRST), JobArg::Write(2)];
    Job {
        data: vec![Data::of(&published), Data::zeros::<u32>(4 * VECTORS.len()), Data::zeros::<u32>(4 * blocks)],
        steps: vec![
            JobLaunch::new(cipher::build, VECTORS.len(), vec![JobArg::Read(0), JobArg::Write(1)]),
            JobLaunch::new(random_words::build, blocks, words.to_vec()),
        ],
        check,
        bytes: 16 * blocks as u64,
        // Ten rounds of two products, four exclusive ors and two additions.
        ops: 80 * blocks as u64,
    }
}

/// Close to the maximum, so that the counter wraps.
const FIRST: u32 = u32::MAX - 100;

/// Checks the published vectors, and for a sample of the counters the words computed round by round as in the paper.
fn check(job: &Job, after: &[Data]) -> CheckResult {
    let published: Vec<u32> = VECTORS.iter().flat_map(|vector| &vector[6..]).copied().collect();
    let (JobArg::Scalar(seed0), JobArg::Scalar(seed1)) = (job.steps[1].args[0], job.steps[1].args[1]) else {
        return CheckResult::exact(&[0], &[1]);
    };
    let key = (seed1.bits << 32) | seed0.bits;
    let words = after[2].elements::<u32>();
    let (mut have, mut want) = (Vec::new(), Vec::new());
    for (i, block) in words.chunks(4).enumerate().step_by((words.len() / 40_000).max(1)) {
        have.extend_from_slice(block);
        want.extend((0..10).fold([FIRST.wrapping_add(i as u32), 0, 0, 0], |block, round| one_round(block, key, round)));
    }
    CheckResult::exact(&after[1].elements(), &published).and(CheckResult::exact(&have, &want))
}

/// Computes one round of a block; the key of each round is computed from the first key.
fn one_round([l0, r0, l1, r1]: [u32; 4], key: u64, round: u32) -> [u32; 4] {
    let bumped = |half: u64, weyl: u32| (half as u32).wrapping_add(weyl.wrapping_mul(round));
    let (high0, low0) = wide(l0, 0xd2511f53);
    let (high1, low1) = wide(l1, 0xcd9e8d57);
    [high1 ^ r0 ^ bumped(key, 0x9e3779b9), low1, high0 ^ r1 ^ bumped(key >> 32, 0xbb67ae85), low0]
}

fn wide(a: u32, b: u32) -> (u32, u32) {
    let product = (a as u128 * b as u128).to_le_bytes();
    let word = |at: usize| u32::from_le_bytes([product[at], product[at + 1], product[at + 2], product[at + 3]]);
    (word(4), word(0))
}
