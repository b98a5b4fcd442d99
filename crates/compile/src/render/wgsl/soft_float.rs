//! Helper functions for operations without an exact WGSL expression, included only when a kernel needs them.
//!
//! Floats are decomposed into integers, so the results do not depend on how the device's own operations round, flush or
//! fuse. The texts are templates: `$f` is the float type, `$u` the unsigned integer of its width, and `$NAME` its
//! constants.

use std::collections::BTreeSet;

use panoply_ir::DType;

use super::int64::Wide;
use super::ops::ordered;

/// Largest divisor for which WGSL limits the error of a quotient of two f32: 2 to the 126.
pub(super) const MAX_DIVISOR: f32 = 8.507_059e37;

/// Implementations of a fused multiply-add on devices whose own is not fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fused {
    /// f32, computed in integers.
    Integers,
    /// f32, computed in f64.
    Doubles,
    /// f64, computed in integers.
    Wide,
}

impl Fused {
    fn dtype(self) -> DType {
        match self {
            Fused::Integers | Fused::Doubles => DType::F32,
            Fused::Wide => DType::F64,
        }
    }
}

/// A helper function. Each can call those declared before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Function {
    /// Minimum of two 64-bit integers, or of two floats with NaN propagation.
    Min(DType),
    /// Maximum, likewise.
    Max(DType),
    /// Absolute value of an i64; wraps.
    Abs(DType),
    /// Population count of a u64: WGSL's own function operates on 32 bits.
    CountOnes,
    /// Quotient of two integers, defined for every divisor.
    Div(DType),
    /// Remainder of two integers, likewise.
    Rem(DType),
    /// Quotient of two f32, with the error of WGSL's for every divisor.
    Quotient,
    /// Exact remainder of two floats.
    Remainder(DType),
    /// Conversion of f32 or f64 to an integer: truncates, saturates, maps NaN to 0.
    Saturate(DType, DType),
    /// Both conversions between the bits of a 16-bit float and f32.
    Bits(DType),
    /// Rounding of f32 to a 16-bit float, as f32.
    Round(DType),
    /// Truncation of f64. Mesa 22.3 returns the argument for some with a fraction, and 0 for those between -1 and 0.
    TruncF64,
    /// Rounding of f64 to the nearest integer, ties to even. Mesa 22.3 computes it wrongly too.
    RoundF64,
    /// a × b + c with one rounding.
    Fma(Fused),
    /// An operation on pairs of words, for devices without 64-bit integers.
    Wide(Wide),
    /// A word of another lane of the subgroup.
    Shuffle {
        /// Work-items of a subgroup.
        subgroup: u32,
        /// Work-items of a group.
        items: u32,
    },
}

/// The helper functions that a program needs.
#[derive(Default)]
pub(super) struct Soft(BTreeSet<Function>);

impl Soft {
    /// Requests a function and returns its name.
    pub fn call(&mut self, function: Function) -> String {
        self.0.insert(function);
        match function {
            Function::Round(dtype) => {
                self.0.insert(Function::Bits(dtype));
            }
            Function::Wide(wide) => wide.needs().iter().for_each(|need| {
                self.call(Function::Wide(*need));
            }),
            _ => {}
        }
        function.name()
    }

    /// Requests the conversions of a 16-bit float and returns the name of one, such as `f16_from_bits` or `f16_bits`.
    pub fn bits(&mut self, dtype: DType, to_bits: bool) -> String {
        self.0.insert(Function::Bits(dtype));
        format!("{dtype}_{}", if to_bits { "bits" } else { "from_bits" })
    }

    /// Returns true if the program reads the work-item's lane in the device's own subgroup.
    pub fn shuffles(&self) -> bool {
        self.0.iter().any(|function| matches!(function, Function::Shuffle { .. }))
    }

    /// Returns the text of all requested functions.
    pub fn source(&self) -> String {
        self.0.iter().map(|function| function.template()).collect()
    }
}

impl Function {
    fn name(self) -> String {
        match self {
            Function::Min(dtype) => format!("min_{dtype}"),
            Function::Max(dtype) => format!("max_{dtype}"),
            Function::Abs(dtype) => format!("abs_{dtype}"),
            Function::CountOnes => "count_ones_u64".to_string(),
            Function::Div(dtype) => format!("div_{dtype}"),
            Function::Rem(dtype) | Function::Remainder(dtype) => format!("rem_{dtype}"),
            Function::Quotient => "quotient".to_string(),
            Function::Saturate(from, to) => format!("{to}_from_{from}"),
            Function::Bits(_) => unreachable!("these are two functions, see `bits`"),
            Function::Round(dtype) => format!("round_{dtype}"),
            Function::TruncF64 => "trunc_f64".to_string(),
            Function::RoundF64 => "round_f64".to_string(),
            Function::Fma(float) => format!("fma_{}", float.dtype()),
            Function::Wide(wide) => wide.name().to_string(),
            Function::Shuffle { .. } => "shuffled".to_string(),
        }
    }

    fn template(self) -> String {
        match self {
            Function::Min(t) | Function::Max(t) => {
                let (name, sign) = (self.name(), if matches!(self, Function::Min(_)) { "<" } else { ">" });
                let nan = match t {
                    DType::F32 => "((bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u) || ",
                    DType::F64 => "((bitcast<u64>(a) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu) || ",
                    _ => "",
                };
                let [a, b] = ["a", "b"].map(|text| if t == DType::I64 { ordered(text) } else { text.to_string() });
                format!("fn {name}(a: {t}, b: {t}) -> {t} {{ return select(b, a, {nan}({a} {sign} {b})); }}\n")
            }
            Function::Abs(t) => {
                format!(
                    "fn abs_{t}(a: {t}) -> {t} {{ return select(a, -a, {} < {}); }}\n",
                    ordered("a"),
                    ordered("0li")
                )
            }
            Function::CountOnes => COUNT_ONES.to_string(),
            Function::Div(t) => division(t, "div", "/", "0"),
            Function::Rem(t) => division(t, "rem", "%", "a"),
            Function::Remainder(t) => filled(REMAINDER, t),
            Function::Quotient => quotient(),
            Function::Saturate(from, to) => saturate(from, to),
            Function::Bits(DType::F16) => F16.to_string(),
            Function::Bits(_) => BF16.to_string(),
            Function::Round(t) => format!("fn round_{t}(x: f32) -> f32 {{ return {t}_from_bits({t}_bits(x)); }}\n"),
            Function::TruncF64 => TRUNC_F64.to_string(),
            Function::RoundF64 => ROUND_F64.to_string(),
            Function::Fma(Fused::Doubles) => FMA_IN_F64.to_string(),
            Function::Fma(float) => filled(FMA, float.dtype()),
            Function::Wide(wide) => wide.text().to_string(),
            Function::Shuffle { subgroup, items } => {
                let mask = format!("{:#x}u", !(subgroup - 1));
                SHUFFLE.replace("$ITEMS", &items.to_string()).replace("$FIRST", &mask)
            }
        }
    }
}

/// Returns the text of the quotient of two f32. Above [`MAX_DIVISOR`] both are divided by 4, which is exact for a divisor, and for a
/// dividend whose quotient is not 0.
fn quotient() -> String {
    format!(
        "fn quotient(a: f32, b: f32) -> f32 {{\n    let scale = select(1.0f, 0.25f, abs(b) > {MAX_DIVISOR:e}f);\n    \
         return (a * scale) / (b * scale);\n}}\n"
    )
}

/// Returns the text of integer division without a branch: a divisor that would trap is replaced, and then the result.
fn division(t: DType, name: &str, sign: &str, by_zero: &str) -> String {
    let suffix = match t {
        DType::I32 => "i",
        DType::I64 => "li",
        DType::U64 => "lu",
        _ => "u",
    };
    let (zero, one) = (format!("0{suffix}"), format!("1{suffix}"));
    let by_zero = if by_zero == "0" { &zero } else { by_zero };
    if !t.is_signed() {
        return format!(
            "fn {name}_{t}(a: {t}, b: {t}) -> {t} {{ return select(a {sign} select(b, {one}, b == {zero}), {by_zero}, b == {zero}); }}\n"
        );
    }
    let by_minus_one = if sign == "/" { format!("{zero} - a") } else { zero.clone() };
    format!(
        "fn {name}_{t}(a: {t}, b: {t}) -> {t} {{\n    let d = select(b, {one}, (b == {zero}) || (b == -{one}));\n    \
         return select(select(a {sign} d, {by_minus_one}, b == -{one}), {by_zero}, b == {zero});\n}}\n"
    )
}

/// Returns the text of a saturating conversion. The bounds are powers of two, so they are exact in either float type.
fn saturate(from: DType, to: DType) -> String {
    let (float, word, nan) = match from {
        DType::F64 => ("lf", "u64", "0x7ffffffffffffffflu) > 0x7ff0000000000000lu"),
        _ => ("f", "u32", "0x7fffffffu) > 0x7f800000u"),
    };
    let (register, suffix) = match (to.is_signed(), to.bytes() == 8) {
        (true, true) => ("i64", "li"),
        (true, false) => ("i32", "i"),
        (false, true) => ("u64", "lu"),
        (false, false) => ("u32", "u"),
    };
    let bits = to.bits() - u32::from(to.is_signed());
    let above = format!("{:?}{float}", 2f64.powi(bits as i32));
    let most = (1u128 << bits) - 1;
    let (below, least) = if to.is_signed() {
        (format!("x <= -{above}"), format!("(-{most}{suffix} - 1{suffix})"))
    } else {
        (format!("x <= 0.0{float}"), format!("0{suffix}"))
    };
    format!(
        "fn {to}_from_{from}(x: {from}) -> {register} {{\n    if (bitcast<{word}>(x) & {nan} {{ return 0{suffix}; }}\n    \
         if x >= {above} {{ return {most}{suffix}; }}\n    if {below} {{ return {least}; }}\n    return {register}(x);\n}}\n"
    )
}

/// Instantiates a template for a float type.
fn filled(template: &str, float: DType) -> String {
    let words: [(&str, &str); 9] = match float {
        DType::F64 => [
            ("$f", "f64"),
            ("$u", "u64"),
            ("$n", "lu"),
            ("$MAGNITUDE", "0x7fffffffffffffff"),
            ("$INFINITY", "0x7ff0000000000000"),
            ("$FRACTION", "0xfffffffffffff"),
            ("$LEADING", "0x10000000000000"),
            ("$WIDTH", "64"),
            ("$PLACES", "52"),
        ],
        _ => [
            ("$f", "f32"),
            ("$u", "u32"),
            ("$n", "u"),
            ("$MAGNITUDE", "0x7fffffff"),
            ("$INFINITY", "0x7f800000"),
            ("$FRACTION", "0x7fffff"),
            ("$LEADING", "0x800000"),
            ("$WIDTH", "32"),
            ("$PLACES", "23"),
        ],
    };
    let wide = float == DType::F64;
    let more: [(&str, &str); 8] = [
        ("$BIAS", if wide { "1075" } else { "150" }),
        ("$LARGEST", if wide { "2047" } else { "255" }),
        ("$STEP", if wide { "10" } else { "7" }),
        ("$HALF", if wide { "32" } else { "16" }),
        ("$LOW", if wide { "0xffffffff" } else { "0xffff" }),
        ("$PRODUCT", if wide { "20" } else { "14" }),
        ("$ADDEND", if wide { "9" } else { "6" }),
        ("$CLZ", if wide { CLZ_64 } else { CLZ_32 }),
    ];
    let mut text = template.to_string();
    let mut words: Vec<_> = words.into_iter().chain(more).collect();
    // A longer placeholder can begin with a shorter one.
    words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    for (word, meaning) in words {
        text = text.replace(word, meaning);
    }
    text.replace("NAME", float.name())
}

const F16: &str = "\
fn f16_from_bits(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let rest = bits & 0x7fffu;
    if rest >= 0x7c00u { return bitcast<f32>(sign | 0x7f800000u | (rest << 13u)); }
    if rest >= 0x400u { return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u)); }
    return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 5.9604645e-8f));
}
fn f16_bits(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let sign = (u >> 16u) & 0x8000u;
    let a = u & 0x7fffffffu;
    if a > 0x7f800000u { return sign | 0x7e00u; }
    if a >= 0x477ff000u { return sign | 0x7c00u; }
    if a >= 0x38800000u { return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u); }
    let exponent = a >> 23u;
    if exponent < 102u { return sign; }
    let significand = (a & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    let kept = significand >> shift;
    let lost = significand << (32u - shift);
    return sign | (kept + u32((lost > 0x80000000u) || ((lost == 0x80000000u) && ((kept & 1u) == 1u))));
}
";

const BF16: &str = "\
fn bf16_from_bits(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn bf16_bits(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let rounded = (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
    return select(rounded, (u >> 16u) | 64u, (u & 0x7fffffffu) > 0x7f800000u);
}
";

const COUNT_ONES: &str = "\
fn count_ones_u64(x: u64) -> u64 { return u64(countOneBits(u32(x)) + countOneBits(u32(x >> 32u))); }
";

const CLZ_32: &str = "countLeadingZeros(x)";
const CLZ_64: &str = "select(countLeadingZeros(u32(x >> 32u)), 32u + countLeadingZeros(u32(x)), (x >> 32u) == 0lu)";

/// Subgroups are aligned parts of the device's subgroups if these consist of consecutive work-items, which WGSL does
/// not guarantee and the driver tests. Otherwise the words are exchanged through shared memory: collectives are in
/// uniform control flow.
const SHUFFLE: &str = "\
override subgroups_consecutive: bool = false;
var<workgroup> words_of_all: array<u32, $ITEMS>;
fn shuffled(word: u32, lane: u32, item: u32, own: u32) -> u32 {
    if subgroups_consecutive { return subgroupShuffle(word, (own & $FIRST) | lane); }
    words_of_all[item] = word;
    workgroupBarrier();
    let theirs = words_of_all[(item & $FIRST) | lane];
    workgroupBarrier();
    return theirs;
}
";

/// Long division of the significands, several bits of the quotient at a time.
const REMAINDER: &str = "\
fn leading_rem_NAME(x: $u) -> u32 { return $CLZ; }
fn rem_NAME(x: $f, y: $f) -> $f {
    let a = bitcast<$u>(x) & $MAGNITUDE$n;
    let b = bitcast<$u>(y) & $MAGNITUDE$n;
    let sign = bitcast<$u>(x) & ~$MAGNITUDE$n;
    if (a >= $INFINITY$n) || (b > $INFINITY$n) || (b == 0$n) { return bitcast<$f>(a | $INFINITY$n | ($LEADING$n >> 1u)); }
    if a < b { return x; }
    var ea = i32(a >> $PLACESu);
    var eb = i32(b >> $PLACESu);
    var ma = (a & $FRACTION$n) | select($LEADING$n, 0$n, ea == 0);
    var mb = (b & $FRACTION$n) | select($LEADING$n, 0$n, eb == 0);
    ea = max(ea, 1);
    eb = max(eb, 1);
    let shift = leading_rem_NAME(mb) - ($WIDTHu - 1u - $PLACESu);
    mb = mb << shift;
    eb = eb - i32(shift);
    var left = ea - eb;
    // The dividend's significand may be the shorter one, if it has no leading bit.
    let room = leading_rem_NAME(ma) - ($WIDTHu - 1u - $PLACESu);
    ma = ma << room;
    left = left - i32(room);
    ma = ma % mb;
    loop {
        if left <= 0 { break; }
        let places = min(left, $STEP);
        ma = (ma << u32(places)) % mb;
        left = left - places;
    }
    if ma == 0$n { return bitcast<$f>(sign); }
    let lead = leading_rem_NAME(ma) - ($WIDTHu - 1u - $PLACESu);
    ma = ma << lead;
    let e = eb - i32(lead);
    if e >= 1 { return bitcast<$f>(sign | ((ma & $FRACTION$n) | ($u(e) << $PLACESu))); }
    return bitcast<$f>(sign | (ma >> u32(1 - e)));
}
";

/// Clears the bits below 1.
const TRUNC_F64: &str = "\
fn trunc_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    let exponent = u32(bits >> 52u) & 0x7ffu;
    if exponent < 1023u { return bitcast<f64>(bits & 0x8000000000000000lu); }
    let fraction = 0xffffffffffffflu >> min(exponent - 1023u, 52u);
    return bitcast<f64>(bits & ~fraction);
}
";

/// Adds a half, or the largest number below it if the integer part is even, and clears the bits below 1. A carry into the
/// exponent gives the next power of two.
const ROUND_F64: &str = "\
fn round_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    let sign = bits & 0x8000000000000000lu;
    let exponent = u32(bits >> 52u) & 0x7ffu;
    if exponent < 1023u {
        return bitcast<f64>(sign | select(0lu, 0x3ff0000000000000lu, (bits ^ sign) > 0x3fe0000000000000lu));
    }
    if exponent > 1074u { return x; }
    let places = 1075u - exponent;
    let half = 1lu << (places - 1u);
    // From 1 to 2 this is the last bit of the exponent, which is set.
    let odd = (bits >> places) & 1lu;
    let carried = bits + half - 1lu + odd;
    return bitcast<f64>(carried & ~((half << 1u) - 1lu));
}
";

/// The product is exact in f64. Its sum with the addend is rounded to odd, so that rounding it again to f32 equals a
/// single rounding: S. Boldo, G. Melquiond, *Emulation of a FMA and correctly rounded sums: proved algorithms using
/// rounding to odd*, 2008.
const FMA_IN_F64: &str = "\
override fused_f32: bool = false;
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    if fused_f32 { return fma(a, b, c); }
    let p = f64(a) * f64(b);
    let q = f64(c);
    let sum = p + q;
    let part = sum - p;
    let lost = (p - (sum - part)) + (q - part);
    let bits = bitcast<u64>(sum);
    let inexact = ((lost > 0.0lf) || (lost < 0.0lf)) && ((bits & 1lu) == 0lu);
    let odd = select(bits - 1lu, bits + 1lu, (lost > 0.0lf) == (sum > 0.0lf));
    return f32(bitcast<f64>(select(bits, odd, inexact)));
}
";

/// The exact product and the addend as integers of twice the width, added and rounded once.
const FMA: &str = "\
override fused_NAME: bool = false;
fn leading_fma_NAME(x: $u) -> u32 { return $CLZ; }
fn shifted_NAME(v: vec2<$u>, n: u32) -> vec2<$u> {
    // To the right; what is lost sets the last bit.
    if n == 0u { return v; }
    if n < $WIDTHu {
        let lost = $u((v.x << ($WIDTHu - n)) != 0$n);
        return vec2<$u>((v.x >> n) | (v.y << ($WIDTHu - n)) | lost, v.y >> n);
    }
    if n == $WIDTHu { return vec2<$u>(v.y | $u(v.x != 0$n), 0$n); }
    if n < 2u * $WIDTHu {
        let lost = $u((v.x | (v.y << (2u * $WIDTHu - n))) != 0$n);
        return vec2<$u>((v.y >> (n - $WIDTHu)) | lost, 0$n);
    }
    return vec2<$u>($u((v.x | v.y) != 0$n), 0$n);
}
fn fma_NAME(a: $f, b: $f, c: $f) -> $f {
    if fused_NAME { return fma(a, b, c); }
    let ua = bitcast<$u>(a) & $MAGNITUDE$n;
    let ub = bitcast<$u>(b) & $MAGNITUDE$n;
    let uc = bitcast<$u>(c) & $MAGNITUDE$n;
    // The product is exact, or too small beside the addend whatever it is.
    if (ua == 0$n) || (ub == 0$n) || (ua >= $INFINITY$n) || (ub >= $INFINITY$n) { return a * b + c; }
    if uc >= $INFINITY$n { return c; }
    let product_sign = (bitcast<$u>(a) ^ bitcast<$u>(b)) & ~$MAGNITUDE$n;
    let c_sign = bitcast<$u>(c) & ~$MAGNITUDE$n;
    var ea = i32(ua >> $PLACESu);
    var eb = i32(ub >> $PLACESu);
    var ec = i32(uc >> $PLACESu);
    let ma = (ua & $FRACTION$n) | select($LEADING$n, 0$n, ea == 0);
    let mb = (ub & $FRACTION$n) | select($LEADING$n, 0$n, eb == 0);
    let mc = (uc & $FRACTION$n) | select($LEADING$n, 0$n, ec == 0);
    // Normalized, so that no bit of a small product gets lost before the sum.
    let sa = leading_fma_NAME(ma) - ($WIDTHu - 1u - $PLACESu);
    let sb = leading_fma_NAME(mb) - ($WIDTHu - 1u - $PLACESu);
    ea = max(ea, 1) - i32(sa);
    eb = max(eb, 1) - i32(sb);
    ec = max(ec, 1);
    let na = ma << sa;
    let nb = mb << sb;
    let low = (na & $LOW$n) * (nb & $LOW$n);
    let middle = (na >> $HALFu) * (nb & $LOW$n) + (low >> $HALFu);
    let other = (na & $LOW$n) * (nb >> $HALFu) + (middle & $LOW$n);
    let high = (na >> $HALFu) * (nb >> $HALFu) + (middle >> $HALFu) + (other >> $HALFu);
    let bottom = (other << $HALFu) | (low & $LOW$n);
    var p = vec2<$u>(bottom << $PRODUCTu, (high << $PRODUCTu) | (bottom >> ($WIDTHu - $PRODUCTu)));
    var q = vec2<$u>(0$n, mc << $ADDENDu);
    let ep = ea + eb - 2 * $BIAS - $PRODUCT;
    let eq = ec - $BIAS - $ADDEND - $WIDTH;
    let distance = ep - eq;
    var e = ep;
    if distance >= 0 { q = shifted_NAME(q, u32(min(distance, 1000))); } else {
        p = shifted_NAME(p, u32(min(-distance, 1000)));
        e = eq;
    }
    var sign = product_sign;
    var r = p;
    if product_sign == c_sign {
        let sum = p.x + q.x;
        r = vec2<$u>(sum, p.y + q.y + $u(sum < p.x));
    } else {
        if (p.y < q.y) || ((p.y == q.y) && (p.x < q.x)) {
            let kept = p;
            p = q;
            q = kept;
            sign = c_sign;
        }
        r = vec2<$u>(p.x - q.x, p.y - q.y - $u(p.x < q.x));
        if (r.x | r.y) == 0$n { return bitcast<$f>(0$n); }
    }
    if r.y == 0$n {
        r = vec2<$u>(0$n, r.x);
        e = e - $WIDTH;
    }
    let lead = leading_fma_NAME(r.y);
    if lead > 0u {
        r = vec2<$u>(r.x << lead, (r.y << lead) | (r.x >> ($WIDTHu - lead)));
        e = e - i32(lead);
    }
    // The leading bit is the first now; this is its exponent as the float has it.
    var exponent = e + 2 * $WIDTH - 1 + $BIAS - $PLACES;
    if exponent >= $LARGEST { return bitcast<$f>(sign | $INFINITY$n); }
    if exponent < 1 {
        r = shifted_NAME(r, u32(min(1 - exponent, 1000)));
        exponent = 1;
    }
    let unused = $WIDTHu - 1u - $PLACESu;
    let kept = r.y >> unused;
    let lost = r.y << ($WIDTHu - unused);
    let half = $LEADING$n << ($WIDTHu - 1u - $PLACESu);
    let up = (lost > half) || ((lost == half) && ((r.x != 0$n) || ((kept & 1$n) == 1$n)));
    return bitcast<$f>(sign | ((($u(exponent) - 1$n) << $PLACESu) + kept + $u(up)));
}
";
