//! Profiles: on the simulated device every command takes 1000 ns, so every figure is known.

use crate::support::test_device;

use std::time::Duration;

use panoply_runtime::{ActivityKind, Command, Grid, Launch, LaunchArg, ProfileReport, Profiler};
use test_device::{Options, build_mix, build_step, test_device};

fn profiled(defer: Option<u64>) -> ProfileReport {
    let (device, _) = test_device(Options { defer, ..Options::default() });
    let x = device.buffer(&[1u32; 256]).unwrap();
    let mut y = device.zeros::<u32>(256).unwrap();
    let profile = Profiler::start(&device).unwrap();
    for _ in 0..3 {
        profile.span("step", || {
            Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).launch(256).unwrap();
            profile.span("inner", || {
                Launch::new(build_step, vec![(&x).into(), (&mut y).into()]).launch(256).unwrap();
            });
        });
    }
    let prepared = device.compile_fn(build_mix).unwrap();
    let args = vec![LaunchArg::from(&x), LaunchArg::from(&mut y)];
    let z = device.allocate(64).unwrap();
    device
        .submit(&[
            Command::Kernel { prepared: &prepared, grid: Grid::from(256), args },
            Command::Fill { to: &z, pattern: &[1] },
        ])
        .unwrap();
    y.to_vec().unwrap();
    let report = profile.finish().unwrap();
    Launch::new(build_mix, vec![(&x).into(), (&mut y).into()]).launch(256).unwrap();
    report
}

#[test]
fn profile_figures_are_consistent() {
    for defer in [None, Some(1), Some(2)] {
        let report = profiled(defer);
        assert_eq!(report.launches(), 7, "later work is not part of the profile");
        let work = |name: &str| report.work.iter().find(|work| work.name == name).unwrap();
        let (mix, step, fill) = (work("mix"), work("step"), work("fill"));
        assert_eq!((mix.kind, mix.calls, mix.time), (ActivityKind::Kernel, 4, Duration::from_nanos(4000)));
        assert_eq!((step.calls, step.time, step.bytes), (3, Duration::from_nanos(3000), 3 * 2 * 1024));
        assert_eq!((fill.kind, fill.calls, fill.bytes), (ActivityKind::Fill, 1, 64));
        assert_eq!(step.bytes_per_second(), Some(6144.0 / 3e-6));
        assert_eq!((work("download").calls, work("download").bytes), (1, 1024));
        let spans: Vec<_> =
            report.spans.iter().map(|span| (span.name.as_str(), span.count, span.launches, span.device_time)).collect();
        assert_eq!(
            spans,
            [("step", 3, 6, Duration::from_nanos(6000)), ("step/inner", 3, 3, Duration::from_nanos(3000))]
        );
        assert_eq!(report.peak_bytes, 1024 + 1024 + 64);
        let table = report.to_string();
        assert!(table.starts_with("cpu: ") && table.contains("7 launches, 2.1 KiB at most"), "{table}");
        assert!(table.contains("kernel    mix             4       0.004         1.0"), "{table}");
    }
}

#[test]
fn trace_is_valid_for_perfetto() {
    let report = profiled(Some(3));
    let trace: serde_json::Value = serde_json::from_str(&report.chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let named = |name: &str| of("X").filter(|event| event["name"] == name).collect::<Vec<_>>();
    assert_eq!((named("mix").len(), named("step").len(), named("inner").len()), (4, 3 + 3, 3));
    assert!(of("M").any(|event| event["name"] == "process_name" && event["args"]["name"] == "cpu"));
    for event in of("X") {
        assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["dur"].as_f64().unwrap() >= 0.0, "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64() && event["cat"].is_string(), "{event}");
    }
    let mixes = named("mix");
    assert!(mixes.iter().all(|mix| mix["dur"] == 1.0 && mix["args"]["bytes"] == 2048), "{mixes:?}");
    let mut begins: Vec<f64> = mixes.iter().map(|mix| mix["ts"].as_f64().unwrap()).collect();
    let sorted = begins.clone();
    begins.sort_by(f64::total_cmp);
    assert_eq!(begins, sorted, "the trace is in the device's order");
}

#[test]
fn a_device_has_at_most_one_profile() {
    let (device, _) = test_device(Options::default());
    let first = Profiler::start(&device).unwrap();
    let error = Profiler::start(&device).err().unwrap();
    assert_eq!(error.message(), "cpu is already being profiled; finish that one first");
    drop(first);
    Profiler::start(&device).unwrap();
}
