//! A mistake that was never reported is logged once. The log is read from a child process, which is this program again.

use std::process::Command;

use panoply_tensor::{DType, Device, Tensor, eval};

/// Runs `the_other_process` in a child process with this log level and returns its stderr.
fn log_of(level: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "unreported_errors::the_other_process", "--nocapture", "--test-threads", "1"]);
    command.env("PANOPLY_TEST_CHILD", "1").env("PANOPLY_LOG", level).env_remove("PANOPLY_PANIC");
    let output = command.output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32)
}

/// Returns an invalid product.
#[track_caller]
fn wrong() -> Tensor {
    ones(&[2, 3]).matmul(&ones(&[4, 5]))
}

/// Makes unreported mistakes if a parent process started this one; does nothing otherwise.
#[test]
fn the_other_process() {
    if std::env::var_os("PANOPLY_TEST_CHILD").is_some() {
        Device::get("cpu").unwrap().scope(|| {
            reported_mistakes();
            eprintln!("passed on, from line {}", line!() + 1);
            let passed_on = (0..10).fold(wrong(), |x, _| (x.relu() + 1.0).softmax(-1));
            let kept = passed_on.clone();
            drop(passed_on);
            eprintln!("kept");
            drop(kept);
            eprintln!("of two the left one, from line {}", line!() + 1);
            drop(wrong() + ones(&[4]).sum(7));
            eprintln!("in a pending node");
            drop(ones(&[2]).exp() + 1.0);
        });
    }
}

/// Each of these mistakes is reported to the caller, directly or through a dependent tensor.
fn reported_mistakes() {
    assert!(wrong().check().is_err());
    assert!(wrong().eval().is_err());
    assert!(wrong().to_vec::<f32>().is_err());
    assert!(wrong().item::<f64>().is_err());
    assert!(wrong().shape().is_err());
    assert!(wrong().dims::<2>().is_err());
    assert!(wrong().gradients(&[&ones(&[2])]).is_err());
    assert!(ones(&[]).gradients(&[&wrong()]).is_err());
    assert!(eval(&[&ones(&[1]), &wrong().exp()]).is_err());
    assert!(format!("{}", wrong()).contains("matmul"));
    assert!((wrong().relu() * 2.0).t().check().is_err());
    assert!((wrong() + ones(&[4]).sum(7)).matmul(&wrong()).check().is_err());
    assert!(Tensor::from_mistake(wrong().check().unwrap_err()).check().is_err());
    let error = Tensor::call("inside", [&ones(&[2, 3])], (), |[x], ()| x.matmul(x)).check().unwrap_err();
    assert_eq!(error.message(), "matmul: inner dimensions 3 and 2 differ");
    assert!(ones(&[2]).index(&[&wrong().cast(DType::I32)]).check().is_err());
    let [each] = Tensor::vmap([&ones(&[2, 2])], |[x]| [x.matmul(&ones(&[3, 3]))]);
    assert!(each.check().is_err());
}

#[test]
fn an_unreported_mistake_is_logged_once() {
    let log = log_of("warn");
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let [passed_on, "kept", one, two, left, "in a pending node"] = lines[..] else { panic!("{log}") };
    let number = |line: &str| line.rsplit([' ', ':']).next().unwrap().parse::<u32>().unwrap();
    let product = "panoply: a mistake was never reported: matmul: inner dimensions 3 and 4 differ; ";
    for (reported, logged) in [(passed_on, one), (two, left)] {
        assert!(logged.starts_with(product) && logged.contains("f32[2, 3]"), "the log lacks the operands: {log}");
        assert!(
            logged.ends_with(&format!("{}:{}", file!(), number(reported))),
            "the log lacks the caller's line: {log}"
        );
    }
}

#[test]
fn the_log_of_unreported_mistakes_can_be_turned_off() {
    assert!(!log_of("off").contains("panoply:"));
}
