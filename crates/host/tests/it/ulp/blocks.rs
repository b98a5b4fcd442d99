//! Every function of `panoply_host::math` as a loop over a block, compiled for each instruction set that this machine supports.

use panoply_host::math::{Fused, Portable, double, single};

/// The instruction set for which a block is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Level {
    /// Returns the levels that this machine supports, the best first.
    pub fn available() -> Vec<Level> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let has_fma = std::is_x86_feature_detected!("fma");
            if has_fma
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vl")
            {
                levels.push(Level::Avx512);
            }
            if has_fma && std::is_x86_feature_detected!("avx2") {
                levels.push(Level::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(Level::Neon);
        levels.push(Level::Portable);
        levels
    }
}

/// A block function of one operand.
pub type Unary<T> = fn(Level, &[T], &mut [T]);
/// A block function of two operands.
pub type Binary<T> = fn(Level, &[T], &[T], &mut [T]);
/// A block function of three operands.
pub type Ternary<T> = fn(Level, &[T], &[T], &[T], &mut [T]);

macro_rules! block {
    ($type:ty, $module:ident :: $name:ident, $($x:ident),+) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
        fn avx512($($x: &[$type],)+ out: &mut [$type]) {
            let len = out.len();
            $(let $x = &$x[..len];)+
            for i in 0..len {
                out[i] = $module::$name::<Fused>($($x[i]),+);
            }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2($($x: &[$type],)+ out: &mut [$type]) {
            let len = out.len();
            $(let $x = &$x[..len];)+
            for i in 0..len {
                out[i] = $module::$name::<Fused>($($x[i]),+);
            }
        }
        #[cfg(target_arch = "aarch64")]
        fn neon($($x: &[$type],)+ out: &mut [$type]) {
            let len = out.len();
            $(let $x = &$x[..len];)+
            for i in 0..len {
                out[i] = $module::$name::<Fused>($($x[i]),+);
            }
        }
        fn portable($($x: &[$type],)+ out: &mut [$type]) {
            let len = out.len();
            $(let $x = &$x[..len];)+
            for i in 0..len {
                out[i] = $module::$name::<Portable>($($x[i]),+);
            }
        }
        fn block(level: Level, $($x: &[$type],)+ out: &mut [$type]) {
            match level {
                // SAFETY: `Level::available`, the only source of levels, has checked that the machine has these features.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { avx512($($x,)+ out) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2($($x,)+ out) },
                #[cfg(target_arch = "aarch64")]
                Level::Neon => neon($($x,)+ out),
                Level::Portable => portable($($x,)+ out),
            }
        }
        block
    }};
}

macro_rules! tables {
    ($type:ty, $module:ident, $unary:ident, $binary:ident, $ternary:ident) => {
        /// Returns the functions of one operand by name.
        pub fn $unary() -> Vec<(&'static str, Unary<$type>)> {
            vec![
                ("exp", block!($type, $module::exp, x)),
                ("exp2", block!($type, $module::exp2, x)),
                ("expm1", block!($type, $module::expm1, x)),
                ("ln", block!($type, $module::ln, x)),
                ("log2", block!($type, $module::log2, x)),
                ("log1p", block!($type, $module::log1p, x)),
                ("sin", block!($type, $module::sin, x)),
                ("cos", block!($type, $module::cos, x)),
                ("tan", block!($type, $module::tan, x)),
                ("sin_near", block!($type, $module::sin_near, x)),
                ("cos_near", block!($type, $module::cos_near, x)),
                ("tan_near", block!($type, $module::tan_near, x)),
                ("atan", block!($type, $module::atan, x)),
                ("tanh", block!($type, $module::tanh, x)),
                ("erf", block!($type, $module::erf, x)),
                ("rsqrt", block!($type, $module::rsqrt, x)),
                ("sqrt", block!($type, $module::sqrt, x)),
                ("floor", block!($type, $module::floor, x)),
                ("ceil", block!($type, $module::ceil, x)),
                ("round", block!($type, $module::round, x)),
                ("trunc", block!($type, $module::trunc, x)),
            ]
        }

        /// Returns the functions of two operands by name.
        pub fn $binary() -> Vec<(&'static str, Binary<$type>)> {
            vec![("pow", block!($type, $module::pow, x, y)), ("rem", block!($type, $module::rem, x, y))]
        }

        /// Returns the functions of three operands by name.
        pub fn $ternary() -> Vec<(&'static str, Ternary<$type>)> {
            vec![("fma", block!($type, $module::fma, x, y, z))]
        }
    };
}

tables!(f32, single, unary_f32, binary_f32, ternary_f32);
tables!(f64, double, unary_f64, binary_f64, ternary_f64);

/// The remainder for small quotients, which only f32 has.
pub const REM_NEAR: Binary<f32> = block!(f32, single::rem_near, x, y);
