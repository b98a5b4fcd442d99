//! Random programs on the graph alone: a task reads when it starts and writes when it finishes, and the order of both is random.
//! The oracle runs the program in order and finds the lost tasks from sets of elements.

use std::collections::{BTreeSet, HashMap};

use panoply_tensor::{Device, Rng};

use super::*;
use crate::arguments::Mode;
use crate::data::{Data, View};
use crate::span::Span;

const SHAPE: [usize; 2] = [7, 6];
const ARRAYS: usize = 3;
const TASKS: usize = 24;
/// Number of programs; [`MANY`] with `PANOPLY_TEST_FULL=1`.
const PROGRAMS: u64 = 400;
const MANY: u64 = 100_000;

/// A task of a random program: its regions as (array, spans, mode), and whether it fails.
struct Step {
    accesses: Vec<(usize, [Span; 2], Mode)>,
    fails: bool,
}

type Values = Vec<Vec<u64>>;
/// Array and element of each value that a task writes.
type Written = Vec<((usize, usize), u64)>;

fn nothing() -> Work {
    Box::new(|_| Ok(()))
}

fn task(name: &str, accesses: Vec<Access>) -> NewTask {
    NewTask { name: name.to_string(), accesses, devices: vec![0], parent: None, work: nothing() }
}

fn below(rng: &mut Rng, below: usize) -> usize {
    rng.random_below(below as u32) as usize
}

fn span(rng: &mut Rng, axis: usize) -> Span {
    let (start, step) = (below(rng, SHAPE[axis]), 1 + below(rng, 3));
    let most = (SHAPE[axis] - start).div_ceil(step);
    Span { start, len: 1 + below(rng, most), step }
}

fn program(rng: &mut Rng) -> Vec<Step> {
    let step = |_| {
        let mut accesses: Vec<(usize, [Span; 2], Mode)> = Vec::new();
        for _ in 0..1 + below(rng, 3) {
            let mode = [Mode::In, Mode::In, Mode::InOut, Mode::Out][below(rng, 4)];
            let access = (below(rng, ARRAYS), [span(rng, 0), span(rng, 1)], mode);
            let clash = |other: &(usize, [Span; 2], Mode)| {
                other.0 == access.0 && (mode != Mode::In || other.2 != Mode::In) && span::overlap(&other.1, &access.1)
            };
            if !accesses.iter().any(clash) {
                accesses.push(access);
            }
        }
        Step { accesses, fails: below(rng, 16) == 0 }
    };
    (0..TASKS).map(step).collect()
}

fn elements((array, spans, _): &(usize, [Span; 2], Mode)) -> Vec<(usize, usize)> {
    let positions = |span: Span| (0..span.len).map(move |index| span.at(index));
    let rows = positions(spans[0]);
    rows.flat_map(|row| positions(spans[1]).map(move |column| (*array, row * SHAPE[1] + column))).collect()
}

/// Returns what a task writes, a function of everything that it reads.
fn compute(number: usize, step: &Step, values: &Values) -> Written {
    let mix = |a: u64, b: u64| (a ^ b.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    let read = step.accesses.iter().filter(|access| access.2 != Mode::Out).flat_map(elements);
    let hash = read.fold(number as u64, |hash, (array, at)| mix(hash, values[array][at]));
    let written = step.accesses.iter().filter(|access| access.2 != Mode::In).flat_map(elements);
    written.map(|place| (place, mix(hash, (place.0 * 1000 + place.1) as u64))).collect()
}

/// The oracle: the final values, and for each task the failed task because of which it has no result.
fn in_order(program: &[Step]) -> (Values, Vec<Option<usize>>) {
    let mut values: Values = vec![vec![0; SHAPE[0] * SHAPE[1]]; ARRAYS];
    let mut lost: Vec<Option<usize>> = Vec::new();
    let sets = |step: &Step, keep: fn(Mode) -> bool| -> BTreeSet<(usize, usize)> {
        step.accesses.iter().filter(|access| keep(access.2)).flat_map(elements).collect()
    };
    for (number, step) in program.iter().enumerate() {
        let (all, written) = (sets(step, |_| true), sets(step, |mode| mode != Mode::In));
        let depends = |earlier: &usize| {
            let earlier = &program[*earlier];
            !sets(earlier, |mode| mode != Mode::In).is_disjoint(&all) || !sets(earlier, |_| true).is_disjoint(&written)
        };
        let cause = (0..number).filter(depends).filter_map(|earlier| lost[earlier]).min();
        let cause = cause.or(step.fails.then_some(number));
        if cause.is_none() {
            compute(number, step, &values).into_iter().for_each(|((array, at), value)| values[array][at] = value);
        }
        lost.push(cause);
    }
    (values, lost)
}

/// Runs a program on the graph in a random order that its dependencies allow. Returns the final values, and the message of each
/// array's failure, if there is one.
fn at_random(program: &[Step], data: &[Data], rules: Rules, rng: &mut Rng) -> (Values, Vec<Option<String>>) {
    let mut values: Values = vec![vec![0; SHAPE[0] * SHAPE[1]]; ARRAYS];
    let (mut graph, mut added) = (Graph { rules, ..Graph::default() }, 0);
    let mut running: HashMap<u64, Written> = HashMap::new();
    loop {
        match below(rng, 3) {
            0 if added < program.len() => {
                let access = |(array, spans, mode): &(usize, [Span; 2], Mode)| Access {
                    view: View { data: data[*array].clone(), region: spans.to_vec() },
                    mode: *mode,
                };
                graph.add(task(&added.to_string(), program[added].accesses.iter().map(access).collect()));
                added += 1;
            }
            1 => {
                // Any ready task: the order of the queue must not matter.
                for _ in 0..below(rng, 4) {
                    graph.ready.rotate_left(1.min(graph.ready.len()));
                }
                if let Some(job) = graph.take(0, false) {
                    let number = job.id as usize;
                    running.insert(job.id, compute(number, &program[number], &values));
                }
            }
            _ => {
                let mut ids: Vec<u64> = running.keys().copied().collect();
                ids.sort_unstable();
                if ids.is_empty() && added == program.len() && graph.ready.is_empty() {
                    break;
                }
                if !ids.is_empty() {
                    let id = ids[below(rng, ids.len())];
                    let written = running.remove(&id).unwrap_or_default();
                    let fails = program[id as usize].fails;
                    if !fails {
                        written.into_iter().for_each(|((array, at), value)| values[array][at] = value);
                    }
                    let result = if fails { Err(Error::mistake("fails")) } else { Ok(()) };
                    graph.finish(id, "cpu", result);
                }
            }
        }
    }
    assert!(graph.tasks.is_empty(), "all tasks are settled");
    let failure = |data: &Data| {
        let all = Access { view: data.into(), mode: Mode::In };
        match graph.progress(&graph.dependencies(&[all]), graph.next(), None) {
            Progress::Done => None,
            Progress::Pending => panic!("all tasks are settled"),
            Progress::Failed(error) => Some(error.message().to_string()),
        }
    };
    (values, data.iter().map(failure).collect())
}

/// Returns the message of each array's failure according to the oracle.
fn messages(program: &[Step], lost: &[Option<usize>]) -> Vec<Option<String>> {
    let message = |array: usize| {
        let writes = |step: &Step| step.accesses.iter().any(|access| access.0 == array && access.2 != Mode::In);
        let cause = (0..program.len()).filter(|task| writes(&program[*task])).filter_map(|task| lost[task]).min()?;
        let tasks = match lost.iter().filter(|other| **other == Some(cause)).count() - 1 {
            0 => "no task after it was dropped".to_string(),
            1 => "1 task after it was dropped".to_string(),
            many => format!("{many} tasks after it were dropped"),
        };
        Some(format!("task {cause} on cpu: fails; {tasks}"))
    };
    (0..ARRAYS).map(message).collect()
}

fn arrays() -> Vec<Data> {
    let cpu = Device::get("cpu").unwrap();
    cpu.scope(|| {
        (0..ARRAYS).map(|_| Data::new(&Tensor::zeros(SHAPE, panoply_tensor::DType::F32), None).unwrap()).collect()
    })
}

#[test]
fn random_programs_equal_the_program_in_order() {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let data = arrays();
    let mut failed = 0;
    for seed in 0..if full { MANY } else { PROGRAMS } {
        let mut rng = Rng::seed_from_u64(seed);
        let program = program(&mut rng);
        let (values, lost) = in_order(&program);
        let (have, failures) = at_random(&program, &data, Rules::default(), &mut rng);
        assert_eq!(have, values, "seed {seed}");
        assert_eq!(failures, messages(&program, &lost), "seed {seed}");
        failed += lost.iter().flatten().count();
    }
    assert!(failed > 100, "programs fail too: {failed}");
}

/// Without one of the rules, some program gives other values.
#[test]
fn every_dependency_rule_is_needed() {
    let (all, data) = (Rules::default(), arrays());
    for rules in [
        Rules { read_after_write: false, ..all },
        Rules { write_after_read: false, ..all },
        Rules { write_after_write: false, ..all },
    ] {
        let differs = (0..PROGRAMS).any(|seed| {
            let mut rng = Rng::seed_from_u64(seed);
            let program = program(&mut rng);
            let (values, _) = in_order(&program);
            at_random(&program, &data, rules, &mut rng).0 != values
        });
        assert!(differs, "{rules:?}");
    }
}

fn access(data: &Data, range: std::ops::Range<isize>, mode: Mode) -> Vec<Access> {
    vec![Access { view: data.view((range,)).unwrap(), mode }]
}

#[test]
fn dependents_of_failed_and_canceled_tasks_are_dropped() {
    let data = &arrays()[0];
    let mut graph = Graph::default();
    graph.add(task("a", access(data, 0..4, Mode::Out)));
    graph.add(task("b", access(data, 2..6, Mode::InOut)));
    graph.add(task("c", access(data, 6..7, Mode::Out)));
    graph.take(0, false).unwrap();
    assert_eq!(graph.finish(0, "cpu", Err(Error::mistake("wrong"))).len(), 1);
    assert_eq!(graph.add(task("d", access(data, 5..6, Mode::In))).len(), 1);
    let progress = |graph: &Graph, range| {
        let read = access(data, range, Mode::In);
        match graph.progress(&graph.dependencies(&read), graph.next(), None) {
            Progress::Done => "done".to_string(),
            Progress::Pending => "pending".to_string(),
            Progress::Failed(error) => error.message().to_string(),
        }
    };
    assert_eq!(progress(&graph, 0..2), "pending", "a failure is reported when all tasks are settled");
    assert_eq!(progress(&graph, 7..7), "done");
    assert_eq!(graph.take(0, true).map(|job| job.id), None, "no task is nested");
    assert_eq!(graph.take(0, false).map(|job| job.id), Some(2), "an independent task runs");
    assert_eq!(progress(&graph, 6..7), "pending");
    graph.add(task("e", access(data, 6..7, Mode::InOut)));
    graph.add(task("f", access(data, 6..7, Mode::InOut)));
    assert_eq!(graph.cancel().0, 2, "the running task is not canceled");
    assert!(matches!(graph.all_progress(graph.next()), Progress::Pending));
    graph.finish(2, "cpu", Ok(()));
    assert_eq!(progress(&graph, 6..7), "2 tasks were canceled");
    assert_eq!(progress(&graph, 0..7), "task a on cpu: wrong; 2 tasks after it were dropped", "the first failure");
    assert_eq!(graph.cancel().0, 0);
}
