//! Conversions of floats to integers against Rust's `as`.

use panoply_cpu::vm::ops::convert::As;
use panoply_cpu::vm::ops::loops::Unary;
use panoply_host::isa::Portable;

#[test]
fn float_to_integer_conversion_equals_as() {
    macro_rules! check {
        ($a:ident: $($r:ident)*) => {
            let ends = [0.0, -0.0, 0.5, -0.9, 1e30, -1e30, $a::MAX, $a::MIN, $a::INFINITY, $a::NEG_INFINITY, $a::NAN];
            let powers = (0..70).flat_map(|power| {
                let x = $a::powi(2.0, power);
                [x, x.next_down(), x.next_up(), x - 1.0, -x, -x.next_down(), -x.next_up(), 1.0 - x]
            });
            for x in ends.into_iter().chain(powers) {
                $(assert_eq!(As::<$a, $r>::apply::<Portable>(x), x as $r, "{x} as {}", stringify!($r));)*
            }
        };
    }
    check!(f32: i8 i16 i32 i64 u8 u16 u32 u64);
    check!(f64: i8 i16 i32 i64 u8 u16 u32 u64);
}
