//! Which single rewrite of the passes makes a kernel wrong, found by running them on less and less fuel.

use panoply_compile::opt::{Options, optimize, optimize_observed};
use panoply_ir::kernel::Kernel;
use panoply_ir::{Target, Verified};

/// More rewrites than any kernel here takes.
const MUCH: u32 = 1 << 20;

/// The pass and the rewrite with which a kernel becomes wrong, as lines that went and lines that came; none if all passes together leave
/// it right.
pub fn first_wrong(
    kernel: &Verified<Kernel>,
    target: &Target,
    wrong: impl Fn(&Verified<Kernel>) -> bool,
) -> Option<String> {
    let with = |fuel| Options { fuel: Some(fuel) };
    let is_wrong = |fuel| wrong(&optimize(kernel.clone(), target, &with(fuel)));
    // Right with the one, wrong with the other.
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

/// The lines that two texts do not share.
fn difference(before: &str, after: &str) -> String {
    let only = |sign: char, one: &str, other: &str| -> String {
        let lines = one.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("{sign} {}\n", line.trim())).collect()
    };
    only('-', before, after) + &only('+', after, before)
}

/// Two rewrites of two passes are declared wrong, alone and together with right ones before and behind them.
#[test]
fn the_wrong_rewrite_is_named() {
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
