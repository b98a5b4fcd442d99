//! What the environment asks for, seen by processes of their own: this program runs itself again.

use std::process::{Command, Output};

/// What a process with these variables prints; `child` says what it does.
fn child(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture", "--test-threads", "1"]);
    for name in ["PANOPLY_DEVICE", "PANOPLY_POOL", "PANOPLY_CACHE_DIR", "PANOPLY_THREADS", "PANOPLY_LOG"] {
        command.env_remove(name);
    }
    command.env("PANOPLY_TEST_CHILD", "1").envs(variables.iter().copied()).output().unwrap()
}

/// Nothing, unless another test started this process.
#[test]
fn the_other_process() {
    if std::env::var_os("PANOPLY_TEST_CHILD").is_none() {
        return;
    }
    match panoply_runtime::select(None) {
        Err(error) => println!("\nerror: {error}"),
        Ok(selection) => {
            let device = selection.device.clone();
            drop(device.allocate(1000).unwrap());
            println!("\nselected {} by {:?}, keeps {}", device, selection.how, device.stats().reserved);
            let explicit = panoply_runtime::select(Some("cpu:checked")).unwrap();
            println!("explicit {} by {:?}", explicit.device, explicit.how);
            device.scope(|| println!("scope {:?}", panoply_runtime::select(None).unwrap().how));
            device.set_default();
            println!("default {:?}", panoply_runtime::select(None).unwrap().how);
        }
    }
}

fn says(variables: &[(&str, &str)], expected: &str) {
    let output = child(variables);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(expected), "{variables:?}: {text}\n{output:?}");
}

#[test]
fn the_environment_chooses_where_the_program_does_not() {
    says(&[("PANOPLY_DEVICE", "cpu")], "selected cpu by Environment, keeps 1024\n");
    says(
        &[("PANOPLY_DEVICE", "cpu:checked")],
        "selected cpu:checked by Environment, keeps 1024\nexplicit cpu:checked by Explicit\nscope Scope\ndefault Default\n",
    );
    says(&[("PANOPLY_DEVICE", "auto")], "by Auto");
    says(&[], "by Auto");
}

#[test]
fn the_pool_can_be_turned_off() {
    says(&[("PANOPLY_DEVICE", "cpu"), ("PANOPLY_POOL", "0")], "selected cpu by Environment, keeps 0\n");
}

#[test]
fn nonsense_is_an_error_and_nothing_is_chosen_instead() {
    says(
        &[("PANOPLY_DEVICE", "gpu")],
        "error: gpu: no such kind of device; one of cuda, rocm, metal, oneapi, opencl, vulkan, dx12, webgpu, cpu\n  \
         asked for by PANOPLY_DEVICE\n",
    );
    says(&[("PANOPLY_DEVICE", "cpu:3")], "try cpu or `panoply devices`\n  asked for by PANOPLY_DEVICE\n");
    says(
        &[("PANOPLY_DEVICE", "webgpu:0")],
        "error: webgpu:0: no such device; no WebGPU here: it is for programs in browsers; use vulkan, metal or dx12 here\n  \
         asked for by PANOPLY_DEVICE\n",
    );
    says(&[("PANOPLY_THREADS", "0")], "error: PANOPLY_THREADS=0: write a number from 1 to 4096\n");
    says(&[("PANOPLY_POOL", "much")], "error: PANOPLY_POOL=much: write 0, 1 or a size such as 64MiB\n");
}

#[test]
fn the_log_tells_the_choice_once() {
    let output = child(&[("PANOPLY_LOG", "info")]);
    let log = String::from_utf8_lossy(&output.stderr);
    let choices = log.lines().filter(|line| line.starts_with("panoply: ")).count();
    assert_eq!(choices, 1, "{log}");
    let output = child(&[("PANOPLY_LOG", "off")]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panoply: "));
}
