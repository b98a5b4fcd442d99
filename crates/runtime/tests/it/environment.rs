//! Environment variables, tested in child processes: the test program runs itself again.

use std::process::{Command, Output};

use panoply_runtime::Device;

/// Runs a child process with these variables and returns its output; see `the_other_process`.
fn child(variables: &[(&str, &str)]) -> Output {
    run(Command::new(std::env::current_exe().unwrap()), variables)
}

/// Like [`child`], for a command that starts this program.
fn run(mut command: Command, variables: &[(&str, &str)]) -> Output {
    command.args(["--exact", "environment::the_other_process", "--nocapture", "--test-threads", "1"]);
    for name in ["PANOPLY_DEVICE", "PANOPLY_POOL", "PANOPLY_CACHE_DIR", "PANOPLY_THREADS", "PANOPLY_LOG"] {
        command.env_remove(name);
    }
    command.env("PANOPLY_TEST_CHILD", "1").envs(variables.iter().copied()).output().unwrap()
}

/// The body of the child processes; does nothing unless another test started the process.
#[test]
fn the_other_process() {
    if std::env::var_os("PANOPLY_TEST_CHILD").is_none() {
        return;
    }
    match Device::auto() {
        Ok(device) => println!("\nauto {device}"),
        Err(error) => println!("\nauto error: {error}"),
    }
    match panoply_runtime::select_device(None) {
        Ok(selection) if std::env::var_os("PANOPLY_TEST_CHILD").is_some_and(|job| job == "fill") => {
            fill(&selection.device)
        }
        Err(error) => println!("\nerror: {error}"),
        Ok(selection) => {
            let device = selection.device.clone();
            drop(device.allocate(1000).unwrap());
            println!("\nselected {} by {:?}, keeps {}", device, selection.selected_by, device.memory_stats().reserved);
            let explicit = panoply_runtime::select_device(Some("cpu:checked")).unwrap();
            println!("explicit {} by {:?}", explicit.device, explicit.selected_by);
            device.scope(|| println!("scope {:?}", panoply_runtime::select_device(None).unwrap().selected_by));
            device.set_default();
            println!("default {:?}", panoply_runtime::select_device(None).unwrap().selected_by);
            let threads = explicit.device.info().compute_units as usize;
            println!("has {threads} threads, {:?} started", workers(threads - 1));
        }
    }
}

/// Returns the number of the CPU device's threads in this process, where the system shows it. Waits because a new thread names itself with
/// a delay.
fn workers(expected: usize) -> Option<usize> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let count = named_threads()?;
        if count >= expected || std::time::Instant::now() > deadline {
            return Some(count);
        }
        std::thread::yield_now();
    }
}

fn named_threads() -> Option<usize> {
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    Some(tasks.map(name).filter(|name| name.starts_with("panoply-cpu-")).count())
}

/// Fills a pool of 16 MiB in steps of one eighth, then frees and allocates again.
fn fill(device: &Device) {
    let eighth = || device.allocate(2 << 20).unwrap();
    let mut held: Vec<_> = (0..7).map(|_| eighth()).collect();
    eprintln!("seven");
    held.push(eighth());
    eprintln!("eight");
    held.pop();
    held.push(eighth());
}

fn says(variables: &[(&str, &str)], expected: &str) {
    let output = child(variables);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(expected), "{variables:?}: {text}\n{output:?}");
}

#[test]
fn environment_selects_the_device_by_default() {
    says(&[("PANOPLY_DEVICE", "cpu")], "selected cpu by Environment, keeps 1024\n");
    says(
        &[("PANOPLY_DEVICE", "cpu:checked")],
        "selected cpu:checked by Environment, keeps 1024\nexplicit cpu:checked by Explicit\nscope Scope\ndefault Default\n",
    );
    says(&[("PANOPLY_DEVICE", "auto")], "by Auto");
    says(&[], "by Auto");
}

#[test]
fn auto_uses_the_device_of_the_environment() {
    says(&[("PANOPLY_DEVICE", "cpu:checked")], "auto cpu:checked\n");
    says(&[("PANOPLY_DEVICE", "nonsense")], "auto error: nonsense: unknown backend");
    says(&[("PANOPLY_DEVICE", "cpu:3")], "auto error: cpu:3: device not found");
}

#[test]
fn pool_can_be_disabled() {
    says(&[("PANOPLY_DEVICE", "cpu"), ("PANOPLY_POOL", "0")], "selected cpu by Environment, keeps 0\n");
}

#[test]
fn nearly_full_pool_warns_once() {
    let full = [("PANOPLY_DEVICE", "cpu"), ("PANOPLY_POOL", "16MiB"), ("PANOPLY_TEST_CHILD", "fill")];
    let output = child(&full);
    let log = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(output.status.success(), "{log}");
    assert!(
        matches!(lines[..], ["seven", warning, "eight"] if warning.starts_with("panoply: cpu: 16.0 MiB of 16.0 MiB are in use")),
        "{log}"
    );
    let silent = child(&[&full[..], &[("PANOPLY_LOG", "off")]].concat());
    assert!(!String::from_utf8_lossy(&silent.stderr).contains("panoply:"), "{silent:?}");
}

#[test]
fn cpu_uses_the_requested_number_of_threads() {
    for threads in [1, 3, 7] {
        let started = if cfg!(target_os = "linux") { format!("{:?}", Some(threads - 1)) } else { "None".to_string() };
        let expected = format!("has {threads} threads, {started} started\n");
        says(&[("PANOPLY_DEVICE", "cpu"), ("PANOPLY_THREADS", &threads.to_string())], &expected);
    }
}

#[test]
fn cpu_uses_one_thread_per_available_core() {
    let taskset = |cores: &str| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", cores]);
        command
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("").trim();
    let first = allowed.split([',', '-']).next().unwrap_or("");
    if !taskset(first).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: threads under an affinity mask: no taskset here");
        return;
    }
    let mut command = taskset(first);
    command.arg(std::env::current_exe().unwrap());
    let output = run(command, &[("PANOPLY_DEVICE", "cpu")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("has 1 threads, Some(0) started\n"), "{output:?}");
    let all = std::thread::available_parallelism().unwrap().get();
    says(&[("PANOPLY_DEVICE", "cpu")], &format!("has {all} threads, Some({}) started\n", all - 1));
}

#[test]
fn invalid_values_are_errors_without_fallback() {
    says(
        &[("PANOPLY_DEVICE", "gpu")],
        "error: gpu: unknown backend; expected one of cuda, rocm, metal, oneapi, opencl, vulkan, dx12, webgpu, cpu\n  \
         requested by PANOPLY_DEVICE\n",
    );
    says(&[("PANOPLY_DEVICE", "cpu:3")], "try cpu or `panoply devices`\n  requested by PANOPLY_DEVICE\n");
    says(
        &[("PANOPLY_DEVICE", "webgpu:0")],
        "error: webgpu:0: device not found; no WebGPU here: WebGPU is only available in browsers; see `panoply devices`\n  \
         requested by PANOPLY_DEVICE\n",
    );
    says(&[("PANOPLY_THREADS", "0")], "error: PANOPLY_THREADS=0: write a number from 1 to 1024\n");
    says(&[("PANOPLY_THREADS", "4096")], "error: PANOPLY_THREADS=4096: write a number from 1 to 1024\n");
    says(&[("PANOPLY_POOL", "much")], "error: PANOPLY_POOL=much: write 0, 1 or a size such as 64MiB\n");
}

#[test]
fn log_reports_the_selection_once() {
    let output = child(&[("PANOPLY_LOG", "info")]);
    let log = String::from_utf8_lossy(&output.stderr);
    let choices = log.lines().filter(|line| line.starts_with("panoply: ")).count();
    assert_eq!(choices, 1, "{log}");
    let output = child(&[("PANOPLY_LOG", "off")]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panoply: "));
}
