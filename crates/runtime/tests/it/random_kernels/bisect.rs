//! Finds the optimizer rewrite that makes a kernel wrong, by bisecting over the passes' fuel.

use panoply_compile::opt::{Options, optimize, optimize_observed};
use panoply_ir::kernel::Kernel;
use panoply_ir::{Target, Verified};

/// More rewrites than any kernel here needs.
const MUCH: u32 = 1 << 20;

/// Returns the pass and the rewrite that makes a kernel wrong, as removed and added lines; `None` if all passes together keep it correct.
pub fn first_wrong(
    kernel: &Verified<Kernel>,
    target: &Target,
    wrong: impl Fn(&Verified<Kernel>) -> bool,
) -> Option<String> {
    let with = |fuel| Options { fuel: Some(fuel) };
    let is_wrong = |fuel| wrong(&optimize(kernel.clone(), target, &with(fuel)));
    // The kernel is correct with the first amount of fuel and wrong with the second.
    let (mut right, mut bad) = (0, MUCH);
    if !is_wrong(bad) {
        return None;
    }
    if is_wrong(right) {
        return Some("it is wrong before the first rewrite".to_string());
    }
    while bad - right > 1 {
        let middle = right.midpoint(bad);
        *(if is_wrong(middle) { &mut bad } else { &mut right }) = middle;
    }
    let stages = |fuel| {
        let mut stages = Vec::new();
        optimize_observed(kernel.clone(), target, &with(fuel), &mut |pass, made| {
            stages.push((pass.name, made.to_string()))
        });
        stages
    };
    let (before, after) = (stages(right), stages(bad));
    let ((pass, after), (_, before)) = after.into_iter().zip(before).find(|(after, before)| after != before)?;
    Some(format!("rewrite {bad}, of pass {pass}, makes it wrong:\n{}", difference(&before, &after)))
}

/// Returns the lines that differ between two texts.
fn difference(before: &str, after: &str) -> String {
    let only = |sign: char, one: &str, other: &str| -> String {
        let lines = one.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("{sign} {}\n", line.trim())).collect()
    };
    only('-', before, after) + &only('+', after, before)
}

/// Declares two rewrites of two passes wrong, alone and with correct ones before and after them.
#[test]
fn wrong_rewrite_is_found() {
    let source = "kernel k(x: &mut [u32]) {
        let i: index = global_id.x
        x[i] = add(x[i], add(1u32, 2u32))
        x[i] = mul(x[i], 8u32)
        for j: u32 in 0u32..2u32 {
            x[i] = add(x[i], j)
        }
        x[i] = rem(x[i], 16u32)
    }";
    let kernel = panoply_ir::verify::verify(panoply_ir::text::parse(source).unwrap()).unwrap();
    let target = Target::cpu();
    let found = |sign: &str| first_wrong(&kernel, &target, |made| made.to_string().contains(sign));
    let shift = found("shl(").expect("a product is a shift");
    assert!(shift.contains("of pass fold, makes it wrong:\n- x["), "{shift}");
    assert!(shift.lines().filter(|line| line.starts_with('-')).all(|line| line.contains("8u32)")), "{shift}");
    assert!(shift.lines().filter(|line| line.starts_with('+')).all(|line| line.contains(", 3u32)")), "{shift}");
    let unrolled =
        first_wrong(&kernel, &target, |made| !made.to_string().contains("for ")).expect("a loop is unrolled");
    assert!(unrolled.contains("of pass unroll, makes it wrong:\n- for j"), "{unrolled}");
    assert_eq!(found("exp("), None);
    assert_eq!(found("kernel").as_deref(), Some("it is wrong before the first rewrite"));
}
