//! Expanded matrix products against the interpreter, which computes them directly.

use panoply_compile::opt::{Options, optimize};
use panoply_ir::interpret::{Arg, run};
use panoply_ir::kernel::Kernel;
use panoply_ir::{Target, Verified};

/// Returns words of finite elements of every magnitude, including denormals.
fn words(count: u32, seed: u32) -> Vec<u8> {
    let word = |i: u32| (i.wrapping_add(seed).wrapping_mul(0x9E37_79B9) ^ i.wrapping_mul(0x85EB_CA6B)) & 0xBFFF_BFFF;
    (0..count).flat_map(|i| word(i).to_ne_bytes()).collect()
}

fn results(kernel: &Verified<Kernel>, group: [u32; 3]) -> Vec<u8> {
    let (a, b, mut c) = (words(512, 1), words(512, 2), words(512, 3));
    let args = &mut [Arg::Read(&a), Arg::Read(&b), Arg::Write(&mut c)];
    run(kernel, group.map(u64::from), group, args, &mut ()).expect("the kernel runs");
    c
}

/// Two products, one of them in a loop, with words from various places. The order of additions is defined, so the bits
/// are equal.
#[test]
fn expanded_products_match_interpreter() {
    for group in [[32, 1, 1], [16, 6, 1], [4, 4, 4]] {
        for dtype in ["f16", "bf16"] {
            let [x, y, z] = group;
            let source = format!(
                "kernel k(a: &[u32], b: &[u32], c: &mut [f32]) group({x}, {y}, {z}) {{
                    let i: index = add(local_id.x, mul({x}, add(local_id.y, mul({y}, local_id.z))))
                    let mut sum: f32x4 = c[mul(4, i); 4]
                    for k: index in 0..3 {{
                        let j: index = add(i, mul(k, 100))
                        let next: f32x4 = group_mma<{dtype}>(sum, a[j], a[add(j, 9)], a[add(j, 5)], a[mul(3, i)], b[j], b[i])
                        sum = next
                    }}
                    let last: f32x4 = group_mma<{dtype}>(sum, b[i], b[add(i, 1)], a[i], b[mul(2, i)], a[add(i, 7)], b[i])
                    c[mul(4, i)] = last
                }}"
            );
            let kernel = crate::opt::kernel(&source);
            let want = results(&kernel, group);
            for target in [Target::cpu(), Target::opencl_minimum(), Target::cuda_minimum(80)] {
                let made = optimize(kernel.clone(), &target, &Options::default());
                assert_eq!(made.to_string().contains("mma"), target.mma, "{}", target.name);
                assert!(want != words(512, 3) && want == results(&made, group), "{dtype} in groups of {group:?}");
            }
        }
    }
}
