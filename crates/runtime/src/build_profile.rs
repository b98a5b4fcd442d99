//! The optimization level of this build.

use crate::log;

/// Optimization level of this crate: `0` to `3`, `s` or `z`, independent of `debug_assertions`.
pub const OPT_LEVEL: &str = env!("PANOPLY_OPT_LEVEL");

/// Logs a warning if this crate was built without optimization.
pub(crate) fn warn_if_unoptimized() {
    if OPT_LEVEL == "0" {
        log::warn(|| {
            "built without optimization, so the CPU device and the host are many times slower; build with --release, or set \
             `[profile.dev.package.\"*\"] opt-level = 3` in Cargo.toml"
                .to_string()
        });
    }
}
