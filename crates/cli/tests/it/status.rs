//! `panoply backends`, `summary`, `default`, `status` and `selftest`, on this machine and with a driver that crashes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn panoply(arguments: &[&str], library_path: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.args(arguments).env_remove("PANOPLY_DEVICE");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    command.output().unwrap()
}

#[track_caller]
fn json(arguments: &[&str], library_path: Option<&Path>) -> Value {
    let output = panoply(&[arguments, &["--json"]].concat(), library_path);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{errors}"))
}

fn kind<'a>(document: &'a Value, list: &str, kind: &str) -> &'a Value {
    document[list].as_array().unwrap().iter().find(|one| one["backend"] == kind).unwrap()
}

#[test]
fn device_commands_agree() {
    let (backends, devices) = (json(&["backends"], None), json(&["devices"], None));
    let (summary, default) = (json(&["summary"], None), json(&["default"], None));
    for (document, view) in
        [(&backends, "backends"), (&devices, "devices"), (&summary, "summary"), (&default, "default")]
    {
        assert_eq!(document["schema"], 1, "{view}");
    }
    let names: Vec<&str> =
        backends["backends"].as_array().unwrap().iter().map(|one| one["backend"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "rocm", "metal", "oneapi", "opencl", "vulkan", "dx12", "webgpu", "cpu"]);
    for one in backends["backends"].as_array().unwrap() {
        let other = kind(&devices, "backends", one["backend"].as_str().unwrap());
        assert_eq!(one["available"], other["available"]);
        assert_eq!(one["available"] == false, one["reason"].is_string(), "{one}");
        // A backend that cannot exist here has no fix.
        match one["backend"].as_str().unwrap() {
            "metal" if cfg!(not(target_vendor = "apple")) => assert!(one["fix"].is_null(), "{one}"),
            "dx12" if cfg!(not(windows)) => assert!(one["fix"].is_null(), "{one}"),
            "webgpu" => assert!(one["fix"].is_null(), "{one}"),
            // Without an Intel GPU oneAPI cannot exist here either.
            "oneapi" => assert!(one["available"] == false || one["fix"].is_null(), "{one}"),
            _ => assert_eq!(one["available"] == false, one["fix"].is_string(), "{one}"),
        }
    }
    assert_eq!(kind(&summary, "backends", "cpu")["hardware"], 1);
    assert_eq!(default["device"], devices["recommended"]);
}

/// One line for each device comes first, then what could work; the rest only with `--all`.
#[test]
fn devices_that_work_come_first() {
    let document = json(&["devices"], None);
    let names: Vec<&str> = document["backends"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one["devices"].as_array().into_iter().flatten())
        .map(|device| device["device"].as_str().unwrap())
        .collect();
    let stdout = |arguments: &[&str]| String::from_utf8(panoply(arguments, None).stdout).unwrap();
    let shown = stdout(&["devices"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[..names.len()].iter().all(|line| line.starts_with("✓ ")), "{shown}");
    assert!(names.iter().all(|name| lines.iter().filter(|line| line.starts_with(&format!("✓ {name} "))).count() == 1));
    let default = lines.iter().find(|line| line.ends_with(", the default")).unwrap();
    assert!(default.starts_with(&format!("✓ {} ", document["recommended"].as_str().unwrap())), "{shown}");
    assert!(!shown.contains("\n  WebGPU: ") && shown.contains("`panoply devices --all` lists the reasons"), "{shown}");
    assert!(stdout(&["devices", "--all"]).contains("\n  WebGPU: WebGPU is only available in browsers"));
}

#[test]
fn color_follows_no_color_and_the_terminal() {
    let shown = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.arg("devices").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(shown(&[("CLICOLOR_FORCE", "1")]).starts_with("\u{1b}[32m✓\u{1b}[0m "));
    assert!(!shown(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!shown(&[]).contains('\u{1b}'), "stdout is a pipe");
}

#[test]
fn quiet_and_verbose_change_stderr() {
    let arguments = ["predict", "--device", "cpu", "missing.safetensors"];
    let stderr = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.args(arguments).args(more).env_remove("PANOPLY_DEVICE");
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let usual = stderr(&[]);
    assert!(usual.starts_with("device: cpu (") && usual.lines().count() == 2, "{usual}");
    assert!(stderr(&["--quiet"]).starts_with("panoply: ") && stderr(&["-q"]).lines().count() == 1);
    let verbose = String::from_utf8(panoply(&["train", "missing.csv", "-v"], None).stderr).unwrap();
    let rejected = json(&["default"], None)["device_info"]["rejected"].as_array().unwrap().len();
    assert_eq!(verbose.lines().filter(|line| line.starts_with("  not ")).count(), rejected, "{verbose}");
}

#[test]
fn strict_fails_without_an_accelerator() {
    let expected = if json(&["default"], None)["device_info"]["is_fallback"] == true { 3 } else { 0 };
    for command in [&["default", "--strict"][..], &["selftest", "--suite", "kernels", "--strict"]] {
        let output = panoply(command, None);
        assert_eq!(output.status.code(), Some(expected), "{}", String::from_utf8_lossy(&output.stderr));
    }
    if expected == 3 {
        // Before the work.
        let refused = panoply(&["train", "digits", "--strict"], None);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(3), 0));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("panoply: --strict: no accelerator was found"));
    }
    assert_eq!(panoply(&["default"], None).status.code(), Some(0));
    // An explicit request for the CPU is not a fallback.
    let mut chosen = Command::new(env!("CARGO_BIN_EXE_panoply"));
    chosen.args(["default", "--strict", "--json"]).env("PANOPLY_DEVICE", "cpu");
    let output = chosen.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["device_info"]["selected_by"], &document["device_info"]["is_fallback"]),
        (&"requested by PANOPLY_DEVICE".into(), &false.into())
    );
}

#[test]
fn unknown_environment_variable_is_reported() {
    let status = |json: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.arg("status").args(json).env_remove("PANOPLY_DEVICE");
        String::from_utf8(command.envs([("PANOPLY_DEVCIE", "cpu"), ("PANOPLY_LOG", "warn")]).output().unwrap().stdout)
            .unwrap()
    };
    let stdout = status(&[]);
    assert!(stdout.contains("setting    PANOPLY_DEVCIE=cpu, unknown variable: check its spelling\n"), "{stdout}");
    assert!(stdout.contains("setting    PANOPLY_LOG=warn\n"), "{stdout}");
    let document: Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert!(document["unknown_variables"].as_array().unwrap().contains(&"PANOPLY_DEVCIE".into()), "{document}");
}

#[test]
fn status_tests_every_device() {
    let status = json(&["status"], None);
    let cpu = kind(&status, "backends", "cpu");
    let tried: Vec<&str> = cpu["tests"].as_array().unwrap().iter().map(|one| one["device"].as_str().unwrap()).collect();
    assert_eq!(tried, ["cpu", "cpu:checked"]);
    assert_eq!(status["problems"], 0);
    // Lines with ✗ are about backends that are not here, so the last line does not deny problems.
    let shown = String::from_utf8(panoply(&["status"], None).stdout).unwrap();
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("All devices that were found work; ✗ marks what "), "{shown}");
    assert!(shown.contains("WebGPU is only available in browsers\n") && !shown.contains("another backend"), "{shown}");
    for one in status["backends"].as_array().unwrap().iter().flat_map(|kind| kind["tests"].as_array().unwrap()) {
        assert_eq!(one["passed"], true, "{one}");
    }
}

#[test]
fn selftest_runs_every_suite() {
    let parts = |document: &Value| {
        let mut parts: Vec<String> = document["checks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|check| check["suite"].as_str().unwrap().to_string())
            .collect();
        parts.dedup();
        parts
    };
    let all = json(&["selftest", "--device", "cpu"], None);
    assert_eq!(parts(&all), ["contract", "kernels", "functions", "ops", "training"]);
    assert_eq!(all["failed"], 0);
    assert!(all["passed"].as_u64().unwrap() > 400, "{}", all["passed"]);
    let sine = all["checks"].as_array().unwrap().iter().find(|check| check["check"] == "sin").unwrap();
    assert!(sine["max_error"].as_f64().unwrap() > 0.5 && sine["tolerance"] == 2.0, "{sine}");
    let some = json(&["selftest", "--device", "cpu", "--suite", "contract,functions"], None);
    assert_eq!(parts(&some), ["contract", "functions"]);
}

#[test]
fn exhaustive_selftest_checks_all_16_bit_inputs() {
    let arguments = ["selftest", "--device", "cpu", "--suite", "functions", "--exhaustive"];
    let document =
        json(&[&arguments[..], &["--dtypes", "f16,bf16", "--operations", "exp,cast to f32,div"]].concat(), None);
    let checks: Vec<(&str, f64)> = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["check"].as_str().unwrap(), check["tolerance"].as_f64().unwrap()))
        .collect();
    let names: Vec<&str> = checks.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["exp, f16", "cast to f32, f16", "div, f16", "exp, bf16", "cast to f32, bf16", "div, bf16"]);
    assert!((0.5..0.501).contains(&checks[0].1) && checks[1].1 == 0.0 && checks[2].1 >= 0.5, "{checks:?}");
    assert_eq!((&document["failed"], &document["passed"]), (&0.into(), &6.into()));
    let refused = panoply(&["selftest", "--exhaustive", "--operations", "softmax"], None);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("recip"), "the possible values are listed");
    assert_eq!(panoply(&["selftest", "--dtypes", "f16"], None).status.code(), Some(2), "needs --exhaustive");
    for nothing in [&["--dtypes", "f16", "--operations", "cast to f16"][..], &["--suite", "ops"]] {
        let refused = panoply(&[&["selftest", "--exhaustive"], nothing].concat(), None);
        assert!(!refused.status.success(), "{nothing:?}");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(
            message.contains("--exhaustive does not check cast to f16 in f16") || message.contains("`functions`"),
            "{message}"
        );
    }
}

/// A kernel whose last work-group does not run on the simulated driver, and a file for its settings.
#[cfg(target_os = "linux")]
#[test]
fn exhaustive_selftest_fails_on_a_wrong_kernel() {
    let folder = std::env::temp_dir().join(format!("panoply-status-exhaustive-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libcuda.so.1");
    let _ = std::fs::remove_file(&library);
    std::os::unix::fs::symlink(panoply_driver_sim::library(), &library).unwrap();
    let run = |settings: &str| {
        Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["selftest", "--device", "cuda:0", "--suite", "functions", "--exhaustive"])
            .args(["--dtypes", "bf16", "--operations", "floor", "--json"])
            .envs([("LD_LIBRARY_PATH", folder.as_os_str()), ("PANOPLY_FAKE_CUDA", settings.as_ref())])
            .env("PANOPLY_CACHE_DIR", "")
            .output()
            .unwrap()
    };
    let right = run("");
    assert_eq!(right.status.code(), Some(0), "{}", String::from_utf8_lossy(&right.stdout));
    let wrong = run("wrong=floor_");
    let document: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!((wrong.status.code(), &document["failed"]), (Some(1), &1.into()), "{document}");
    assert!(document["checks"][0]["result"].as_str().unwrap().contains("at "), "{document}");
}

/// Creates a folder with a libcuda whose code runs when it is loaded.
#[cfg(target_os = "linux")]
fn planted(name: &str, code: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-status-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("driver.c");
    std::fs::write(&source, format!("__attribute__((constructor)) static void start(void) {{ {code} }}")).unwrap();
    let library = folder.join("libcuda.so.1");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O0", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    folder
}

#[cfg(target_os = "linux")]
#[test]
fn crashing_driver_disables_only_its_backend() {
    let folder = planted("crash", "*(volatile int *)8 = 1;");
    let backends = json(&["backends"], Some(&folder));
    let cuda = kind(&backends, "backends", "cuda");
    assert_eq!(cuda["reason"], "the driver crashed (signal 11) during device discovery");
    assert!(cuda["fix"].as_str().unwrap().contains("nvidia-smi"));
    assert_eq!(kind(&backends, "backends", "cpu")["available"], true);

    let named = panoply(&["selftest", "--device", "cuda:0"], Some(&folder));
    assert_eq!(named.status.code(), Some(1), "an error, not a crash");
    let stderr = String::from_utf8_lossy(&named.stderr);
    assert!(stderr.contains("cuda:0: device not found") && stderr.contains("crashed (signal 11)"), "{stderr}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A library of the right name for another architecture: the system's loader skips it and reports only that none was found.
#[cfg(target_os = "linux")]
#[test]
fn library_for_another_architecture_is_reported() {
    let folder = planted("foreign", "");
    let library = folder.join("libcuda.so.1");
    let mut elf = std::fs::read(&library).unwrap();
    // ELF machine numbers of x86-64 and AArch64.
    let other: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    elf[18..20].copy_from_slice(&other.to_le_bytes());
    std::fs::write(&library, elf).unwrap();
    let dir = std::fs::canonicalize(&library).unwrap().display().to_string();
    let expected =
        format!("{dir} is for another architecture, so it is skipped; install the one for {}", std::env::consts::ARCH);
    for (view, list) in [("backends", "backends"), ("devices", "backends"), ("status", "backends")] {
        let document = json(&[view], Some(&folder));
        let cuda = kind(&document, list, "cuda");
        assert_eq!(cuda["reason"], "libcuda.so.1 cannot be loaded", "{view}");
        assert_eq!(cuda["notes"], serde_json::json!([expected]), "{view}");
        let output = panoply(&[view], Some(&folder));
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains(&format!("    {expected}\n")), "{view}: {stdout}");
        assert_eq!(output.status.code(), Some(0), "{view}: a missing backend is not a failure");
    }
    let named = panoply(&["selftest", "--device", "cuda:0"], Some(&folder));
    assert_eq!(named.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&named.stderr);
    assert!(stderr.contains("cuda:0: device not found; no CUDA here") && stderr.contains(&expected), "{stderr}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A tiny LLaMA; reference results of `transformers` are in `crates/llm/tests/fixtures`.
const TINY_LLAMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/fixtures/tiny-Q8_0.gguf");

#[test]
fn run_generates_the_reference_text() {
    let arguments = ["run", TINY_LLAMA, "the quick brown fox", "--temperature", "0", "-n", "16", "--device", "cpu"];
    let document = json(&arguments, None);
    // From the greedy continuation of `transformers`, which the tests of `llm` compare token by token.
    assert_eq!(document["prompt_tokens"], 9);
    assert_eq!(document["completion_tokens"], 16);
    assert_eq!(document["finish_reason"], "length");
    let output = panoply(&arguments, None);
    let text = document["text"].as_str().unwrap();
    // A control character in the text does not reach the terminal.
    let shown = text.replace('\u{1e}', "\\u{1e}");
    assert!(shown != text && !shown.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{shown}\n"));
    assert!(String::from_utf8(output.stderr).unwrap().contains("9 prompt tokens"));
}

#[test]
fn run_reports_invalid_models_and_settings() {
    let error = |arguments: &[&str]| {
        let output = panoply(arguments, None);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["run", "Cargo.toml", "a"]).contains("it is not a GGUF file"));
    assert!(error(&["run", "missing.gguf", "a"]).contains("cannot read missing.gguf"));
    let refusal = error(&["run", TINY_LLAMA, "a", "--context-length", "65"]);
    assert!(refusal.contains("context length 65") && refusal.contains("choose another --context-length"), "{refusal}");
}

/// A Vulkan layer of Mesa writes an error if no user is logged in; the command turns it off.
#[test]
fn devices_are_listed_without_messages_of_drivers() {
    for folder in [None, Some("")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
        command.arg("devices").env_remove("XDG_RUNTIME_DIR").env_remove("NODEVICE_SELECT");
        let output = command.envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder))).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("XDG_RUNTIME_DIR"), "{errors}");
    }
}
