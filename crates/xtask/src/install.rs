//! `cargo xtask setup`, also `install`: installs what the tests need, with the ordinary clients: apt, pip in `.tools/venv` and folders
//! beside it, rustup.
//!
//! A tool that cannot be installed never fails a run: the installation is tried twice, then reported in one line, and the tests that need
//! the tool report it too. If everything is installed, this costs a few file look-ups.

use crate::icd;
use crate::repo::Repo;
use crate::shell::{cargo, command, interactive, on_path, quiet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A tool that the tests need and a new machine lacks.
struct Tool {
    name: &'static str,
    /// The checks that are skipped without it.
    loses: &'static str,
    present: fn(&Repo) -> bool,
    how: Installer,
}

enum Installer {
    /// Debian packages.
    Apt(&'static [&'static str]),
    /// Python packages for `.tools/venv`, published as binaries for one architecture only.
    Pip { arch: &'static str, packages: &'static [&'static str] },
    /// A Python package with programs and libraries, for a folder of its own below `.tools`.
    Prefix { arch: &'static str, folder: &'static str, package: &'static str },
    /// A component of the Rust toolchain.
    Rustup(&'static str),
    /// A program that belongs to a library, in the version of the library in Cargo.lock.
    Cargo { program: &'static str, library: &'static str },
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "rustfmt",
        loses: "the format check",
        present: |repo| quiet(&mut cargo(repo, &["fmt", "--version"])).is_ok(),
        how: Installer::Rustup("rustfmt"),
    },
    Tool {
        name: "clippy",
        loses: "the lints",
        present: |repo| quiet(&mut cargo(repo, &["clippy", "--version"])).is_ok(),
        how: Installer::Rustup("clippy"),
    },
    Tool {
        name: "OpenCL loader",
        loses: "every OpenCL test",
        present: |_| icd::library("libOpenCL.so.1").is_some(),
        how: Installer::Apt(&["ocl-icd-libopencl1"]),
    },
    Tool {
        name: "PoCL",
        loses: "OpenCL tests on PoCL",
        present: |_| icd::pocl().is_some(),
        how: Installer::Apt(&["pocl-opencl-icd"]),
    },
    Tool {
        name: "Intel's CPU OpenCL runtime",
        loses: "OpenCL tests with f16, subgroups and SPIR-V",
        present: |repo| icd::intel(repo).is_some(),
        // The second package is an undeclared dependency of the first.
        how: Installer::Pip {
            arch: "x86_64",
            packages: &["intel-opencl-rt==2026.2.*", "intel-cmplr-lib-rt==2026.2.*"],
        },
    },
    Tool {
        name: "oclgrind",
        loses: "the check for data races and out-of-bounds accesses in OpenCL kernels",
        present: |_| icd::oclgrind().is_some(),
        how: Installer::Apt(&["oclgrind"]),
    },
    Tool {
        name: "Mesa's Vulkan on the CPU",
        loses: "every Vulkan test",
        present: |_| icd::library("libvulkan.so.1").is_some() && icd::lavapipe().is_some(),
        how: Installer::Apt(&["libvulkan1", "mesa-vulkan-drivers"]),
    },
    Tool {
        name: "Chromium, and SwiftShader in it",
        loses: "Vulkan with minimum capabilities, and WebGPU",
        present: |_| on_path("chromium") && icd::swiftshader().is_some(),
        how: Installer::Apt(&["chromium"]),
    },
    Tool {
        name: "wasm-bindgen",
        loses: "the page that computes in a browser",
        present: |repo| wasm_bindgen(repo).is_some(),
        how: Installer::Cargo { program: "wasm-bindgen-cli", library: "wasm-bindgen" },
    },
    Tool {
        name: "Open MPI",
        loses: "training in several processes under Open MPI 4",
        present: |_| on_path("mpirun") && icd::library("libmpi.so.40").is_some(),
        how: Installer::Apt(&["openmpi-bin"]),
    },
    Tool {
        name: "MPICH",
        loses: "training in several processes under MPICH 4",
        // Debian renames the library, so that it can be installed beside Open MPI.
        present: |_| {
            on_path("mpiexec") && ["libmpich.so.12", "libmpi.so.12"].iter().any(|name| icd::library(name).is_some())
        },
        how: Installer::Apt(&["mpich"]),
    },
    Tool {
        name: "Open MPI 5",
        loses: "training in several processes under Open MPI 5",
        present: |repo| has_mpi(repo, "openmpi-5", &["libmpi.so.40"]),
        how: Installer::Prefix { arch: "x86_64", folder: "openmpi-5", package: "openmpi==5.*" },
    },
    Tool {
        name: "MPICH 5",
        loses: "training in several processes under MPICH 5, by the interfaces of MPICH and of MPI 5.0",
        present: |repo| has_mpi(repo, "mpich-5", &["libmpi.so.12", "libmpi_abi.so.1"]),
        how: Installer::Prefix { arch: "x86_64", folder: "mpich-5", package: "mpich==5.*" },
    },
    Tool {
        name: "tmux",
        loses: "the dashboard in a terminal",
        present: |_| on_path("tmux"),
        how: Installer::Apt(&["tmux"]),
    },
    Tool {
        name: "onnxruntime",
        loses: "the check of ONNX files",
        present: |repo| onnxruntime(repo).is_some(),
        how: Installer::Pip { arch: "x86_64", packages: &["onnxruntime==1.*", "numpy"] },
    },
    Tool {
        name: "ONNX's test cases",
        loses: "the expected outputs of every ONNX operator",
        present: |repo| has_package(repo, "onnx"),
        // The wheels of later versions have no test cases.
        how: Installer::Pip { arch: "x86_64", packages: &["onnx==1.20.1"] },
    },
    Tool {
        name: "OpenAI's Python client",
        loses: "the check of `serve` with it",
        present: |repo| has_package(repo, "openai"),
        how: Installer::Pip { arch: "x86_64", packages: &["openai==3.*"] },
    },
    Tool {
        name: "Playwright",
        loses: "the chat page of `serve` in Chromium",
        present: |repo| has_package(repo, "playwright"),
        how: Installer::Pip { arch: "x86_64", packages: &["playwright==1.*"] },
    },
    Tool {
        name: "NVIDIA's ptxas",
        loses: "the compilation of CUDA kernels for every GPU from Maxwell to Blackwell",
        present: |repo| ptxas(repo).is_some(),
        // The last version that supports both the oldest and the newest architecture.
        how: Installer::Pip { arch: "x86_64", packages: &["nvidia-cuda-nvcc-cu12==12.9.86"] },
    },
    Tool {
        name: "NVIDIA's NVRTC",
        loses: "external kernels in CUDA C++",
        present: |repo| nvrtc(repo).is_some(),
        how: Installer::Pip { arch: "x86_64", packages: &["nvidia-cuda-nvrtc-cu12==12.9.86"] },
    },
    Tool {
        name: "Khronos' SPIR-V tools",
        loses: "the comparison of generated SPIR-V with their assembler, and its validation",
        present: |_| on_path("spirv-as") && on_path("spirv-val"),
        how: Installer::Apt(&["spirv-tools"]),
    },
    Tool {
        name: "Khronos' glslang",
        loses: "the validation of HLSL kernels for DirectX 12",
        present: |_| on_path("glslangValidator"),
        how: Installer::Apt(&["glslang-tools"]),
    },
    Tool {
        name: "clang for AMD's GPUs",
        loses: "the compilation of HIP kernels for every GPU from Vega to RDNA 4",
        present: |_| on_path("clang-19") && on_path("ld.lld-19"),
        how: Installer::Apt(&["clang-19", "lld-19"]),
    },
    Tool {
        name: "AMD's runtime compiler",
        loses: "the compilation of HIP kernels by the compiler that a driver uses",
        present: |_| icd::library("libamdhip64.so.5").is_some() && icd::library("libhiprtc-builtins.so.5").is_some(),
        how: Installer::Apt(&["libamdhip64-5", "libhiprtc-builtins5"]),
    },
];

impl Tool {
    /// Returns a line that says what would be installed, and by which program.
    fn plan(&self) -> String {
        let how = match self.how {
            Installer::Apt(packages) => format!("apt-get install {}", packages.join(" ")),
            Installer::Pip { packages, .. } => format!("pip install {}, into .tools/venv", packages.join(" ")),
            Installer::Prefix { folder, package, .. } => format!("pip install {package}, into .tools/{folder}"),
            Installer::Rustup(component) => format!("rustup component add {component}"),
            Installer::Cargo { program, .. } => format!("cargo install {program}, into .tools"),
        };
        format!("{}: {how}", self.name)
    }
}

/// Returns the Python that can run ONNX files.
pub fn onnxruntime(repo: &Repo) -> Option<PathBuf> {
    has_package(repo, "onnxruntime").then(|| repo.venv().join("bin").join("python"))
}

/// Returns true if the Python of `.tools/venv` has a package.
fn has_package(repo: &Repo, package: &str) -> bool {
    let versions = std::fs::read_dir(repo.venv().join("lib"));
    let has = |version: std::fs::DirEntry| version.path().join("site-packages").join(package).is_dir();
    versions.is_ok_and(|versions| versions.flatten().any(has))
}

/// Returns wasm-bindgen, if it has the version of the library.
pub fn wasm_bindgen(repo: &Repo) -> Option<PathBuf> {
    let program = repo.tools().join("bin").join("wasm-bindgen");
    let version = quiet(command(repo, &program).arg("--version")).ok()?;
    (version.split_whitespace().nth(1) == locked(repo, "wasm-bindgen").as_deref()).then_some(program)
}

/// Returns the version of a crate in Cargo.lock.
fn locked(repo: &Repo, name: &str) -> Option<String> {
    let lock = std::fs::read_to_string(repo.root.join("Cargo.lock")).ok()?;
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0.to_string())
}

/// Returns the path where pip installs NVIDIA's assembler.
fn ptxas(repo: &Repo) -> Option<PathBuf> {
    nvidia(repo, "cuda_nvcc/bin/ptxas")
}

/// Returns the path where pip installs NVIDIA's compiler for CUDA C++.
fn nvrtc(repo: &Repo) -> Option<PathBuf> {
    nvidia(repo, "cuda_nvrtc/lib/libnvrtc.so.12")
}

fn nvidia(repo: &Repo, file: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(repo.venv().join("lib")).ok()?;
    let at = |version: std::fs::DirEntry| version.path().join("site-packages/nvidia").join(file);
    versions.flatten().map(at).find(|file| file.is_file())
}

/// Handling of a missing tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Install it.
    Install,
    /// Only report it.
    Name,
}

/// State of apt's package lists in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageLists {
    /// Possibly outdated.
    Unknown,
    /// Updated in this run.
    Fresh,
}

/// Runs `cargo xtask install`.
pub fn run(repo: &Repo) -> bool {
    let skipped = ensure(repo, Missing::Install);
    skipped.iter().for_each(|line| println!("{line}"));
    println!("OpenCL drivers for the tests: OCL_ICD_VENDORS={}", icd::all(repo).display());
    println!("{} of {} tools are installed", TOOLS.len() - skipped.len(), TOOLS.len());
    true
}

/// Looks for every tool, installs what is missing if allowed, and returns one line per tool that is still missing.
pub fn ensure(repo: &Repo, missing: Missing) -> Vec<String> {
    let mut skipped = Vec::new();
    let mut apt_lists = PackageLists::Unknown;
    let absent: Vec<&Tool> = TOOLS.iter().filter(|tool| !(tool.present)(repo)).collect();
    if missing == Missing::Install {
        let plan: Vec<String> =
            absent.iter().filter(|tool| obstacle(repo, tool).is_none()).map(|tool| tool.plan()).collect();
        if !plan.is_empty() {
            println!("the tests need what is missing here; this run installs:\n  {}", plan.join("\n  "));
        }
    }
    for tool in absent {
        let result = match missing {
            Missing::Install => install(repo, tool, &mut apt_lists),
            Missing::Name => Err("not installed; run `cargo xtask install`".to_string()),
        };
        if let Err(why) = result {
            skipped.push(format!("SKIPPED: {}, {}: {why}", tool.name, tool.loses));
        }
    }
    if let Err(why) = icd::write(repo) {
        skipped.push(format!("SKIPPED: folders for OCL_ICD_VENDORS: {why}"));
    }
    skipped
}

fn install(repo: &Repo, tool: &Tool, apt_lists: &mut PackageLists) -> Result<(), String> {
    if let Some(obstacle) = obstacle(repo, tool) {
        return Err(obstacle);
    }
    println!("installing {} …", tool.name);
    let mut result = attempt(repo, tool, apt_lists);
    if let Err(why) = &result {
        println!("cannot install {} ({why}); trying again …", tool.name);
        // The usual causes are temporary: a lock held by another apt, outdated lists, a busy mirror.
        std::thread::sleep(Duration::from_secs(2));
        *apt_lists = PackageLists::Unknown;
        result = attempt(repo, tool, apt_lists);
    }
    result?;
    match (tool.present)(repo) {
        true => Ok(()),
        false => Err("installed, but its files were not found".to_string()),
    }
}

/// Returns an obstacle that a second attempt would not remove.
fn obstacle(repo: &Repo, tool: &Tool) -> Option<String> {
    match tool.how {
        Installer::Apt(packages) => apt_obstacle(repo, packages),
        Installer::Pip { arch, .. } | Installer::Prefix { arch, .. } => {
            let published = std::env::consts::ARCH == arch && cfg!(target_os = "linux");
            (!published).then(|| format!("only published for {arch} Linux"))
        }
        Installer::Cargo { library, .. } => {
            locked(repo, library).is_none().then(|| format!("Cargo.lock has no {library}"))
        }
        Installer::Rustup(component) => {
            (!on_path("rustup")).then(|| format!("rustup not found; install {component} of the toolchain manually"))
        }
    }
}

fn apt_obstacle(repo: &Repo, packages: &[&str]) -> Option<String> {
    let by_hand = packages.join(" ");
    if !on_path("apt-get") {
        return Some(format!("apt-get not found; install the equivalent of the Debian packages {by_hand} manually"));
    }
    let may = is_root(repo) || on_path("sudo");
    (!may).then(|| format!("needs root, but sudo was not found; run as root: apt-get install {by_hand}"))
}

fn attempt(repo: &Repo, tool: &Tool, apt_lists: &mut PackageLists) -> Result<(), String> {
    match tool.how {
        Installer::Apt(packages) => apt(repo, packages, apt_lists),
        Installer::Pip { packages, .. } => {
            venv(repo, &repo.venv(), apt_lists)?;
            pip(repo, &repo.venv(), packages)
        }
        Installer::Prefix { folder, package, .. } => {
            venv(repo, &repo.venv(), apt_lists)?;
            let folder = repo.tools().join(folder);
            pip(repo, &repo.venv(), &["--prefix", &folder.to_string_lossy(), package])
        }
        Installer::Cargo { program, library } => {
            let (root, version) = (repo.tools(), locked(repo, library).unwrap_or_default());
            let cargo = cargo(repo, &[]).get_program().to_string_lossy().into_owned();
            let install = ["install", program, "--version", &version, "--debug", "--no-default-features", "--root"];
            quiet(limited(repo, &cargo, 30, &install).arg(root)).map(drop)
        }
        Installer::Rustup(component) => {
            quiet(&mut limited(repo, "rustup", 5, &["component", "add", component])).map(drop)
        }
    }
}

fn apt(repo: &Repo, packages: &[&str], lists: &mut PackageLists) -> Result<(), String> {
    // A fresh container has no package lists.
    if *lists == PackageLists::Unknown {
        quiet(&mut as_root(repo, &["update", "-o", "Acquire::http::Timeout=30"]))?;
        *lists = PackageLists::Fresh;
    }
    let mut install = vec!["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"];
    install.extend(packages);
    quiet(&mut as_root(repo, &install)).map(drop)
}

fn as_root(repo: &Repo, apt: &[&str]) -> Command {
    let environment = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    if is_root(repo) {
        return limited(repo, "env", 15, &[&environment[1..], apt].concat());
    }
    if interactive() {
        let mut sudo = command(repo, "sudo");
        sudo.args(environment).args(apt).stdin(Stdio::inherit());
        return sudo;
    }
    limited(repo, "sudo", 15, &[&["--non-interactive"], &environment[..], apt].concat())
}

pub fn is_root(repo: &Repo) -> bool {
    quiet(command(repo, "id").arg("-u")).is_ok_and(|user| user.trim() == "0")
}

/// Returns true if a folder below `.tools` has an MPI launcher and these libraries.
fn has_mpi(repo: &Repo, folder: &str, libraries: &[&str]) -> bool {
    let folder = repo.tools().join(folder);
    let has = |library: &&str| folder.join("lib").join(library).is_file();
    folder.join("bin/mpiexec").is_file() && libraries.iter().all(has)
}

/// Installs packages into an existing virtual environment.
pub fn pip(repo: &Repo, venv: &Path, packages: &[&str]) -> Result<(), String> {
    let python = venv.join("bin").join("python");
    let mut arguments = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "30"];
    arguments.extend(packages);
    quiet(&mut limited(repo, &python.to_string_lossy(), 15, &arguments)).map(drop)
}

/// Creates a virtual environment, if it is missing or incomplete.
pub fn venv(repo: &Repo, folder: &Path, apt_lists: &mut PackageLists) -> Result<(), String> {
    let python = folder.join("bin").join("python");
    if python.is_file() && quiet(command(repo, &python).args(["-m", "pip", "--version"])).is_ok() {
        return Ok(());
    }
    let folder = folder.to_string_lossy();
    let make = || quiet(&mut limited(repo, "python3", 5, &["-m", "venv", "--clear", &folder]));
    if make().is_ok() {
        return Ok(());
    }
    // Debian ships a part of Python's venv module in a separate package.
    let packages = ["python3-venv"];
    if let Some(obstacle) = apt_obstacle(repo, &packages) {
        return Err(format!("python3 cannot make a virtual environment: {obstacle}"));
    }
    apt(repo, &packages, apt_lists)?;
    make().map(drop)
}

/// Returns a command with a time limit, if coreutils are installed; otherwise a server that does not answer can block it forever.
pub fn limited(repo: &Repo, program: &str, minutes: u32, arguments: &[&str]) -> Command {
    if !on_path("timeout") {
        let mut plain = command(repo, program);
        plain.args(arguments);
        return plain;
    }
    let mut limited = command(repo, "timeout");
    limited.args(["--kill-after=10", &format!("{minutes}m"), program]).args(arguments);
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_install_returns_the_reason() {
        let nowhere = Repo { root: std::env::temp_dir().join(format!("panoply-xtask-install-{}", std::process::id())) };
        std::fs::create_dir_all(&nowhere.root).unwrap();
        let tool = Tool {
            name: "unobtainium",
            loses: "nothing",
            present: |_| false,
            how: Installer::Pip { arch: "no such architecture", packages: &[] },
        };
        assert_eq!(
            install(&nowhere, &tool, &mut PackageLists::Unknown),
            Err("only published for no such architecture Linux".to_string())
        );
        std::fs::remove_dir_all(nowhere.root).unwrap();
    }

    #[test]
    fn plan_names_the_packages() {
        let plan = |name: &str| TOOLS.iter().find(|tool| tool.name == name).unwrap().plan();
        assert_eq!(plan("PoCL"), "PoCL: apt-get install pocl-opencl-icd");
        assert_eq!(plan("MPICH 5"), "MPICH 5: pip install mpich==5.*, into .tools/mpich-5");
        assert_eq!(plan("onnxruntime"), "onnxruntime: pip install onnxruntime==1.* numpy, into .tools/venv");
    }

    #[test]
    fn reporting_missing_tools_installs_nothing() {
        let nowhere = Repo { root: std::env::temp_dir().join(format!("panoply-xtask-name-{}", std::process::id())) };
        std::fs::create_dir_all(&nowhere.root).unwrap();
        let skipped = ensure(&nowhere, Missing::Name);
        assert!(skipped.iter().any(|line| line.starts_with("SKIPPED: Intel's CPU OpenCL runtime, ")), "{skipped:?}");
        assert!(!nowhere.venv().exists());
        assert!(icd::all(&nowhere).is_dir());
        std::fs::remove_dir_all(nowhere.root).unwrap();
    }
}
