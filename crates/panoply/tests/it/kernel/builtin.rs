//! The built-in kernels on the interpreter and on every device present. Each has its own check.

use panoply::kernels::{self, Size};
use panoply::{Backend, Device};
use panoply_ir::verify::verify;

const SEED: u64 = 0x5eed;

#[test]
fn the_interpreter_agrees() {
    for builtin in kernels::ALL {
        let verdict = builtin.interpret(Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
        assert!(verdict.passed(), "{}: {verdict}", builtin.name);
    }
}

#[test]
fn every_device_agrees() {
    let devices = Device::list().expect("devices can be listed");
    for name in ["cpu", "cpu:checked"] {
        assert!(devices.iter().any(|device| device.device_string() == name), "{name} is always present: {devices:?}");
    }
    let mut wrong = Vec::new();
    for device in &devices {
        for builtin in kernels::ALL {
            match builtin.check(device, Size::Tiny, SEED) {
                Ok(verdict) if verdict.passed() => {}
                Ok(verdict) => wrong.push(format!("{} on {device}: {verdict}", builtin.name)),
                Err(error) => wrong.push(format!("{} on {device}: {error}", builtin.name)),
            }
        }
    }
    if !devices.iter().any(|device| device.info().kind == Backend::OpenCl) {
        eprintln!("SKIPPED: no OpenCL device is present, so the built-in kernels ran on the CPU only");
    }
    assert!(wrong.is_empty(), "seed {SEED:#x}\n{}", wrong.join("\n"));
}

#[test]
fn builtin_kernels_verify_and_their_text_parses_back() {
    for builtin in kernels::ALL {
        for (name, build) in builtin.kernels {
            let kernel = build().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(kernel.name, *name, "the table has the name of the kernel");
            let text = kernel.to_string();
            verify(kernel).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let again = panoply_ir::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(again.to_string(), text);
        }
    }
}

#[test]
fn names_are_unique_and_found() {
    for builtin in kernels::ALL {
        assert!(std::ptr::eq(kernels::find(builtin.name).unwrap(), builtin));
    }
    assert!(kernels::find("nothing").is_none());
}
