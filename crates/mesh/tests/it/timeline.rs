//! Timelines: every task, kernel, transfer and message is an event of its rank, and messages are at the same time on both ranks.

use std::sync::Arc;

use panoply_cpu::device::{CpuDriver, CpuOptions};
use panoply_device::Driver;
use panoply_device::null::{InjectedFailure, NullDevice};
use panoply_ir::Target;
use panoply_mesh::timeline::{Event, EventKind};
use panoply_mesh::{DArray, In, Layout, Mesh, RankGroup, ThreadWire, Timeline, TimelineRecording};
use panoply_nn::ProcessGroup;
use panoply_runtime::DeviceOptions;
use panoply_tensor::{DType, Device, Result, Tensor};

/// Returns a CPU device that no other test profiles.
fn own_device() -> Device {
    // SAFETY: only `runtime` uses the device, and it validates its arguments.
    let raw = unsafe { CpuDriver::new(CpuOptions::default()).probe() }.unwrap().swap_remove(0);
    Device::new(raw, DeviceOptions::default())
}

/// Multiplies distributed matrices on a rank, and returns its timeline.
fn product(wire: ThreadWire) -> Timeline {
    let group = RankGroup::new(Arc::new(wire));
    let mesh = Mesh::with_group(Some(group.clone())).unwrap();
    let timeline = mesh.within(&[own_device()][..], |m| {
        let a = DArray::uniform(m, 7, [64, 64], &Layout::blocks([32, 32]))?;
        let recording = m.record_timeline()?;
        let total = a.matmul(&a)?.sum()?.item::<f32>()?;
        assert!(total > 0.0);
        recording.finish()
    });
    group.close().unwrap();
    timeline.unwrap()
}

fn kinds(events: &[&Event]) -> Vec<EventKind> {
    let mut kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn ranks_share_one_axis() {
    let timelines: Vec<Timeline> = std::thread::scope(|threads| {
        let started: Vec<_> =
            ThreadWire::connected(2).into_iter().map(|wire| threads.spawn(move || product(wire))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [all, own] = &timelines[..] else { panic!() };
    assert_eq!((all.ranks, all.dropped), (2, 0));
    let of = |rank: usize| all.events.iter().filter(|event| event.rank == rank).collect::<Vec<&Event>>();
    assert!(own.events.iter().eq(of(1)), "rank 1 has its own events only");
    for rank in [0, 1] {
        assert!(kinds(&of(rank)).starts_with(&[EventKind::Task, EventKind::Kernel]), "{:?}", kinds(&of(rank)));
        assert!(kinds(&of(rank)).contains(&EventKind::Message));
        let tasks = of(rank).into_iter().filter(|event| event.kind == EventKind::Task);
        let tasks: Vec<&str> = tasks.map(|event| event.name.as_str()).collect();
        // Two of the four blocks of the product belong to a rank.
        assert!(tasks.iter().filter(|name| name.starts_with("matmul(")).count() >= 2, "{tasks:?}");
        assert!(of(rank).is_sorted_by_key(|event| (&event.lane, event.begin)));
        assert!(of(rank).iter().all(|event| event.begin <= event.end && event.end <= all.duration));
    }
    let sent: Vec<&Event> = all.events.iter().filter(|event| event.name.starts_with("send ")).collect();
    assert!(!sent.is_empty());
    for send in sent {
        let (what, to) = send.name["send ".len()..].split_once(" to rank ").unwrap();
        let name = format!("receive {what} from rank {}", send.rank);
        let received: Vec<&Event> = all.events.iter().filter(|event| event.name == name).collect();
        assert_eq!(received.len(), 1, "{name}");
        assert_eq!((received[0].rank.to_string().as_str(), received[0].bytes), (to, send.bytes));
        // Both ranks started their clocks after the last one had come to the start; their threads can have been interrupted there.
        let apart = send.begin.as_secs_f64() - received[0].end.as_secs_f64();
        assert!(apart < 1.0, "{name}: {apart} s before it was sent");
    }
    let trace: serde_json::Value = serde_json::from_str(&all.chrome_trace().unwrap()).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    assert_eq!(entries.iter().filter(|entry| entry["ph"] == "X").count(), all.events.len());
    let ranks: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["name"] == "process_name")
        .map(|entry| entry["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(ranks, ["rank 0", "rank 1"]);
    assert!(all.svg().contains(">rank 1: messages</text>"), "{}", all.svg());
    assert!(all.busy().values().all(|share| (0.0..=1.0).contains(share)) && all.busy().len() >= 6, "{:?}", all.busy());
}

#[test]
fn transfers_between_devices_are_events() {
    let (one, other) = (own_device(), own_device());
    let mesh = Mesh::open().unwrap();
    let timeline = mesh.within(&[one, other][..], |m| {
        let recording = m.record_timeline()?;
        let x = m.data(&Tensor::ones([256, 4], DType::F32))?;
        // One task for each device, which waits for the other: they run on both.
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let sums: Vec<_> = (0..2)
            .map(|at| {
                let barrier = barrier.clone();
                m.spawn(&format!("sum {at}"), In(&x), move |x| {
                    barrier.wait();
                    x.sum(..)
                })
            })
            .collect::<Result<_, _>>()?;
        for sum in &sums {
            assert_eq!(m.fetch(sum)?.item::<f32>()?, 1024.0);
        }
        recording.finish()
    });
    let timeline = timeline.unwrap();
    let transfers: Vec<&Event> = timeline.events.iter().filter(|event| event.kind == EventKind::Transfer).collect();
    assert!(transfers.iter().any(|event| event.bytes == 4096), "{transfers:?}");
    let names: Vec<&str> = timeline.events.iter().map(|event| event.name.as_str()).collect();
    assert!(names.contains(&"sum 0") && names.contains(&"sum 1"), "{names:?}");
    // There is one at a time. After its end nothing is recorded, and another can start.
    let open = || mesh.within(&[own_device()][..], Mesh::record_timeline);
    let second = open().unwrap();
    assert!(open().is_err_and(|error| error.message().contains("already being recorded")));
    assert_eq!(second.finish().unwrap().events, []);
    assert_eq!(open().unwrap().finish().unwrap().events, []);
}

/// A rank whose device is lost sends its error in place of its events: no rank waits, and rank 0 names the rank.
#[test]
fn error_of_a_rank_is_reported_after_the_exchange() {
    let finish = |wire: ThreadWire, failing: usize| -> Result<Timeline> {
        let group = RankGroup::new(Arc::new(wire));
        let raw = Arc::new(NullDevice::new(Target::webgpu_minimum()));
        let device = Device::new(raw.clone(), DeviceOptions::default());
        let recording = TimelineRecording::start(Some(&group), std::slice::from_ref(&device)).unwrap();
        if group.rank() == failing {
            raw.fail(InjectedFailure::Lost { after: 0 });
            device.zeros::<f32>(4).and_then(|zeros| zeros.to_vec()).unwrap_err();
        }
        let timeline = recording.finish();
        group.close().expect("every message is received");
        timeline
    };
    for failing in 0..3 {
        let timelines: Vec<Result<Timeline>> = std::thread::scope(|threads| {
            let started: Vec<_> =
                ThreadWire::connected(3).into_iter().map(|wire| threads.spawn(move || finish(wire, failing))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (rank, timeline) in timelines.iter().enumerate() {
            match timeline {
                Ok(timeline) => {
                    assert!(rank != 0 && rank != failing && timeline.ranks == 3, "rank {rank}, not {failing}")
                }
                Err(error) => {
                    assert!(rank == 0 || rank == failing, "rank {rank}, not {failing}: {error}");
                    assert!(error.message().contains("device lost"), "{error}");
                    let names_rank = error.notes().contains(&format!("on rank {failing}"));
                    assert_eq!(names_rank, rank != failing, "{error:?}");
                }
            }
        }
    }
}
