//! Passes the optimization level of this crate, which cargo tells build scripts only, to `src/build_profile.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=PANOPLY_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
}
