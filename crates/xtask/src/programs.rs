//! Runs the workspace's test programs in parallel, one per core: `cargo test` runs them sequentially, and each waits for its slowest test.

use crate::repo::Repo;
use crate::shell::{cargo, command, quiet, stream};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A process that runs tests: those of one module of a test program, all of a program, or the documentation's examples.
pub struct Program {
    /// The module or program in the source tree, such as `crates/nn/tests/it/losses`, or `documentation`.
    pub name: String,
    command: Command,
}

/// Result of a program.
pub struct ProgramResult {
    /// Name of the [`Program`].
    pub name: String,
    /// All its output, in order.
    pub lines: Vec<String>,
    /// True if it succeeded; an error if it could not run.
    pub succeeded: Result<bool, String>,
    /// Wall-clock time.
    pub duration: Duration,
}

/// Builds all test programs of the workspace and returns those that `wanted` accepts by name. Integration tests are one program for each
/// crate, and each module of it runs in a separate process: a slow module occupies one core while others run on the rest.
///
/// # Errors
/// A program that does not compile; cargo prints why.
pub fn built(repo: &Repo, wanted: impl Fn(&str) -> bool) -> Result<Vec<Program>, String> {
    let arguments = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let mut artifacts = Vec::new();
    let succeeded = stream(&mut cargo(repo, &arguments), |line| {
        let is_message = line.starts_with('{');
        if is_message {
            artifacts.push(line.to_string());
        }
        !is_message
    })?;
    if !succeeded {
        return Err("the tests do not compile".to_string());
    }
    // Tests of procedural macros load the standard library from this folder, which cargo would add to the search path.
    let libraries = quiet(command(repo, "rustc").args(["--print", "target-libdir"]))?;
    let mut programs = Vec::new();
    for program in artifacts.iter().filter_map(|artifact| program(repo, artifact, libraries.trim())) {
        programs.extend(modules(program)?);
    }
    programs.retain(|program| wanted(&program.name));
    programs.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
    Ok(programs)
}

/// Modules that take longest. They start first, so that no core waits for them at the end.
const LONGEST: &[&str] = &["crates/tensor/tests/it/ops", "crates/runtime/tests/it/random_kernels"];

/// Returns the position in [`LONGEST`], or its length for other programs.
fn rank(program: &Program) -> usize {
    LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
}

/// The modules of a program of integration tests, each as a program that runs its tests alone; other programs unchanged.
fn modules(Program { name, mut command }: Program) -> Result<Vec<Program>, String> {
    let Some(folder) = name.strip_suffix("/main.rs") else { return Ok(vec![Program { name, command }]) };
    let listed = quiet(clone(&mut command).args(["--list", "--format", "terse"]))?;
    let mut modules = BTreeMap::<&str, Vec<&str>>::new();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let (module, _) = test.split_once("::").ok_or_else(|| format!("{name}: {test} is in no module"))?;
        modules.entry(module).or_default().push(test);
    }
    let program = |(module, tests): (&str, Vec<&str>)| {
        let mut command = clone(&mut command);
        command.arg("--exact").args(tests);
        Program { name: format!("{folder}/{module}"), command }
    };
    Ok(modules.into_iter().map(program).collect())
}

/// A command with the same program, arguments, folder and environment.
fn clone(command: &mut Command) -> Command {
    let mut clone = Command::new(command.get_program());
    clone.args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        clone.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => clone.env(name, value),
            None => clone.env_remove(name),
        };
    }
    clone
}

/// The examples in the documentation, which rustdoc builds and runs.
pub fn documentation(repo: &Repo) -> Program {
    let command = cargo(repo, &["test", "--workspace", "--doc", "--no-fail-fast", "--", "--show-output"]);
    Program { name: "documentation".to_string(), command }
}

/// Returns the program of one of cargo's JSON messages; `None` if it is not about a test program.
fn program(repo: &Repo, artifact: &str, libraries: &str) -> Option<Program> {
    let is_test = artifact.split_once("\"profile\":")?.1.split_once('}')?.0.contains("\"test\":true");
    let (executable, source) = (field(artifact, "executable")?, field(artifact, "src_path")?);
    let manifest = PathBuf::from(field(artifact, "manifest_path")?);
    let name = PathBuf::from(source).strip_prefix(&repo.root).ok()?.to_string_lossy().into_owned();
    if !is_test {
        return None;
    }
    let folder = manifest.parent()?;
    // `…#panoply-ir@0.1.0`, or `…/panoply#0.1.0` if the folder has the name of the package.
    let id = field(artifact, "package_id")?.split_once('#')?.1;
    let package = id.split_once('@').map_or_else(|| folder.file_name(), |(package, _)| Some(package.as_ref()))?;
    let mut command = command(repo, executable);
    command.arg("--show-output").current_dir(folder);
    command.env("CARGO_MANIFEST_DIR", folder).env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.env("CARGO_PKG_NAME", package);
    let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(libraries)).chain(std::env::split_paths(&inherited));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).ok()?);
    Some(Program { name, command })
}

/// Returns a text field of cargo's messages; the fields used here have unique names.
fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let after = message.split_once(&format!("\"{name}\":\""))?.1;
    after.split_once('"').map(|(text, _)| text)
}

/// Runs the programs in their order on all cores, each after `prepare`; calls `on_result` with each result.
pub fn run(programs: Vec<Program>, prepare: impl Fn(&mut Command) + Sync, mut on_result: impl FnMut(ProgramResult)) {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(programs.len());
    let waiting = Mutex::new(programs.into_iter());
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, waiting, prepare) = (sender.clone(), &waiting, &prepare);
            scope.spawn(move || {
                while let Some(Program { name, mut command }) =
                    waiting.lock().ok().and_then(|mut programs| programs.next())
                {
                    prepare(&mut command);
                    let (started, mut lines) = (Instant::now(), Vec::new());
                    let succeeded = stream(&mut command, |line| {
                        lines.push(line.to_string());
                        false
                    });
                    let result = ProgramResult { name, lines, succeeded, duration: started.elapsed() };
                    if sender.send(result).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().for_each(&mut on_result);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/a#panoply-a@0.1.0","manifest_path":"/r/crates/a/Cargo.toml","target":{"kind":["test"],"name":"deep","src_path":"/r/crates/a/tests/deep.rs","test":true},"profile":{"opt_level":"1","test":true},"features":[],"executable":"/r/target/debug/deps/deep-1","fresh":true}"#;

    fn found(artifact: &str) -> Option<Program> {
        program(&Repo { root: PathBuf::from("/r") }, artifact, "/lib")
    }

    #[test]
    fn test_program_runs_in_its_package_folder() {
        let found = found(TEST).unwrap();
        assert_eq!(found.name, "crates/a/tests/deep.rs");
        assert_eq!(found.command.get_program(), "/r/target/debug/deps/deep-1");
        assert_eq!(found.command.get_current_dir(), Some(PathBuf::from("/r/crates/a").as_path()));
        assert_eq!(package(&found), Some("panoply-a".as_ref()));
        let named_as_its_folder = self::found(&TEST.replace("#panoply-a@", "#")).unwrap();
        assert_eq!(package(&named_as_its_folder), Some("a".as_ref()));
    }

    fn package(program: &Program) -> Option<&std::ffi::OsStr> {
        program.command.get_envs().find(|(name, _)| *name == "CARGO_PKG_NAME")?.1
    }

    #[test]
    fn only_tests_are_programs() {
        assert!(
            found(&TEST.replace("\"opt_level\":\"1\",\"test\":true", "\"opt_level\":\"1\",\"test\":false")).is_none()
        );
        assert!(found(&TEST.replace("\"/r/target/debug/deps/deep-1\"", "null")).is_none());
    }

    #[test]
    fn modules_of_a_program_are_processes() {
        let repo = Repo { root: std::env::temp_dir() };
        let script =
            "if [ $2 = --list ]; then printf 'b::x: test\\na::y: test\\nb::c::z: test\\n'; else echo $WORD $@; fi";
        let mut command = command(&repo, "sh");
        command.args(["-c", script, "sh", "--show-output"]).env("WORD", "one");
        let modules = modules(Program { name: "crates/x/tests/it/main.rs".to_string(), command }).unwrap();
        let mut ends = Vec::new();
        run(modules, |_| {}, |end| ends.push((end.name, end.lines)));
        ends.sort();
        let line = |text: &str| text.to_string();
        assert_eq!(ends[0], (line("crates/x/tests/it/a"), vec![line("one --show-output --exact a::y")]));
        assert_eq!(ends[1], (line("crates/x/tests/it/b"), vec![line("one --show-output --exact b::x b::c::z")]));
    }

    #[test]
    fn outputs_of_programs_are_separated() {
        let repo = Repo { root: std::env::temp_dir() };
        let shell = |name: &str, script: &str| {
            let mut command = command(&repo, "sh");
            command.args(["-c", script]);
            Program { name: name.to_string(), command }
        };
        let programs = vec![shell("a", "echo $WORD; echo 2"), shell("b", "echo b; exit 3"), shell("c", "echo c")];
        let mut ends = Vec::new();
        let prepare = |command: &mut Command| {
            command.env("WORD", "one");
        };
        run(programs, prepare, |end| ends.push((end.name, end.lines, end.succeeded)));
        ends.sort();
        let line = |text: &str| text.to_string();
        assert_eq!(ends[0], (line("a"), vec![line("one"), line("2")], Ok(true)));
        assert_eq!(ends[1], (line("b"), vec![line("b")], Ok(false)));
        assert_eq!(ends[2], (line("c"), vec![line("c")], Ok(true)));
    }
}
