//! Random programs of distributed arrays with failing tasks, over devices and ranks: the same blocks are lost as in the serial program, the
//! same tasks are dropped, and all other blocks have the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use panoply_mesh::{DArray, Layout, Mesh};
use panoply_tensor::{Device, Result, Rng, Tensor};

use crate::arrays::{cpus, on_ranks};

const SHAPE: [usize; 2] = [7, 6];
const ARRAYS: usize = 3;
const STEPS: usize = 10;
/// Number of programs; with `PANOPLY_TEST_FULL=1` [`MANY`].
const PROGRAMS: u64 = 15;
const MANY: u64 = 200;
/// Numbers of ranks and of devices of each rank.
const PLACES: [(usize, usize); 5] = [(1, 3), (2, 1), (3, 1), (4, 1), (2, 2)];
const BLOCKS: [[usize; 2]; 5] = [[3, 2], [2, 3], [4, 4], [7, 1], [1, 5]];

/// A step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// `array = array * 0.5 + number`
    Scale { array: usize, number: f64 },
    /// `to = to + from * number`
    Add { to: usize, from: usize, number: f64 },
    /// Moves an array to blocks of another shape.
    Relayout { array: usize, block: [usize; 2] },
    /// Replaces an array by itself, where the tasks of some blocks panic: those whose first element has a position, counted from 1, with
    /// this remainder modulo 4.
    Fail { array: usize, remainder: usize },
}

/// For each step, how often its function was called on all ranks.
type Calls = Arc<[AtomicUsize]>;

fn program(rng: &mut Rng) -> Vec<Step> {
    let mut below = |below: usize| rng.random_below(below as u32) as usize;
    (0..STEPS)
        .map(|_| {
            let (array, other) = (below(ARRAYS), 1 + below(ARRAYS - 1));
            let number = (1 + below(16)) as f64 / 8.0;
            match below(8) {
                0..2 => Step::Scale { array, number },
                2..5 => Step::Add { to: array, from: (array + other) % ARRAYS, number },
                5..7 => Step::Relayout { array, block: BLOCKS[below(BLOCKS.len())] },
                _ => Step::Fail { array, remainder: below(4) },
            }
        })
        .collect()
}

fn matrix(element: impl Fn(usize) -> f32) -> Tensor {
    Tensor::from_slice(&(0..SHAPE[0] * SHAPE[1]).map(element).collect::<Vec<f32>>(), SHAPE)
}

/// Returns the bits of four regions of each array after the program; `None` for a region that is lost.
fn on(mesh: &Mesh, program: &[Step], calls: &Calls) -> Result<Vec<Option<Vec<u32>>>> {
    let start = |array: usize| {
        let values = matrix(|at| (at * (array + 1) % 17) as f32 / 4.0);
        DArray::distribute(mesh, &values, &Layout::blocks(BLOCKS[array]))
    };
    let mut arrays = (0..ARRAYS).map(start).collect::<Result<Vec<DArray>>>()?;
    let positions = DArray::distribute(mesh, &matrix(|at| (at + 1) as f32), &Layout::blocks(BLOCKS[0]))?;
    for (at, step) in program.iter().enumerate() {
        let calls = calls.clone();
        let count = move || {
            calls[at].fetch_add(1, Ordering::Relaxed);
        };
        match *step {
            Step::Scale { array, number } => {
                arrays[array] = arrays[array].map(move |x| {
                    count();
                    x * 0.5 + number
                })?;
            }
            Step::Add { to, from, number } => {
                arrays[to] = arrays[to].zip(&arrays[from], move |x, y| {
                    count();
                    x + y * number
                })?;
            }
            Step::Relayout { array, block } => arrays[array] = arrays[array].to(&Layout::blocks(block))?,
            Step::Fail { array, remainder } => {
                arrays[array] = arrays[array].zip(&positions, move |x, positions| {
                    count();
                    let first = positions.to_vec::<f32>().expect("the positions are known")[0] as usize;
                    // The function is called once with zeros to find the type of its result.
                    assert!(first == 0 || first % 4 != remainder, "fails in step {at}");
                    x.clone()
                })?;
            }
        }
    }
    let mut regions = Vec::new();
    for array in &arrays {
        for (rows, columns) in [(0..4, 0..3), (0..4, 3..6), (4..7, 0..3), (4..7, 3..6)] {
            regions.push(match array.slice((rows, columns))?.collect() {
                Ok(values) => Some(values.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect()),
                Err(error) => {
                    let fails = |(at, step): (usize, &Step)| {
                        matches!(step, Step::Fail { .. }) && error.message().contains(&format!("fails in step {at}; "))
                    };
                    assert!(program.iter().enumerate().any(fails), "{error}: {program:#?}");
                    assert_eq!(error.message().contains(" on rank "), mesh.group().is_some(), "{error}");
                    None
                }
            });
        }
    }
    // Its error is that of a region, or of a block that a later step replaced.
    let _ = mesh.wait();
    Ok(regions)
}

#[test]
fn random_array_programs_with_failures_equal_serial_execution() {
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let counters = || -> Calls { (0..STEPS).map(|_| AtomicUsize::new(0)).collect() };
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..if full { MANY } else { PROGRAMS } {
        let program = program(&mut Rng::seed_from_u64(seed));
        let once = counters();
        let serial = || Mesh::open()?.serial()?.within("cpu", |mesh| on(mesh, &program, &once));
        let expected = Device::get("cpu").unwrap().scope(serial).unwrap();
        lost += expected.iter().filter(|region| region.is_none()).count();
        kept += if expected.contains(&None) { expected.iter().flatten().count() } else { 0 };
        let (ranks, devices) = PLACES[seed as usize % PLACES.len()];
        let calls = counters();
        for (rank, regions) in on_ranks(ranks, &cpus(devices), |mesh| on(mesh, &program, &calls)).0.iter().enumerate() {
            let regions =
                regions.as_ref().unwrap_or_else(|error| panic!("rank {rank} of {ranks}, seed {seed}: {error}"));
            assert!(*regions == expected, "rank {rank} of {ranks} × {devices} devices, seed {seed}: {program:#?}");
        }
        // Each rank calls the function of a step once more than its tasks do, with an example.
        let tasks = |calls: &Calls, ranks: usize| -> Vec<usize> {
            calls.iter().map(|calls| calls.load(Ordering::Relaxed).saturating_sub(ranks)).collect()
        };
        let (have, want) = (tasks(&calls, ranks), tasks(&once, 1));
        assert_eq!(have, want, "tasks that ran on {ranks} ranks × {devices} devices, seed {seed}: {program:#?}");
    }
    assert!(lost > 10 && kept > 10, "{lost} regions are lost, {kept} others are kept");
}
