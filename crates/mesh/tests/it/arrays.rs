//! Distributed arrays on several devices and ranks, compared with plain tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use panoply_cpu::CpuDriver;
use panoply_device::Wire;
use panoply_mesh::{DArray, Layout, Mesh, RankGroup, Scope, ThreadWire};
use panoply_nn::ProcessGroup;
use panoply_runtime::{Backend, DeviceOptions, Registry};
use panoply_tensor::ops::view::TensorIndex;
use panoply_tensor::{DType, Device, Result, Rng, Tensor};

/// A rank that is a thread of this process, and the bytes that all ranks sent.
#[derive(Debug)]
struct CountedWire {
    wire: ThreadWire,
    bytes: Arc<AtomicU64>,
}

impl Wire for CountedWire {
    fn rank(&self) -> usize {
        self.wire.rank()
    }

    fn ranks(&self) -> usize {
        self.wire.ranks()
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.wire.send(to, bytes)
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        self.wire.receive(from, bytes)
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        self.wire.all_reduce(values)
    }

    fn abort(&self, code: i32) -> ! {
        self.wire.abort(code)
    }

    fn close(&self) -> Result<()> {
        self.wire.close()
    }
}

/// Returns this number of devices that run on the CPU, each with a memory of its own.
pub fn cpus(count: usize) -> Vec<Device> {
    let more = |_| Registry::new(vec![Arc::new(CpuDriver::default())], DeviceOptions::default());
    let more = (1..count).map(more).map(|registry| registry.devices(Backend::Cpu).unwrap().swap_remove(0));
    std::iter::once(Device::get("cpu").unwrap()).chain(more).collect()
}

/// Runs a program on each of several ranks, over the devices of a scope. Returns the results by rank and the bytes sent.
pub fn on_ranks<T: Send>(
    ranks: usize,
    scope: &(impl Scope + Sync + ?Sized),
    program: impl Fn(&Mesh) -> Result<T> + Sync,
) -> (Vec<Result<T>>, u64) {
    let bytes = Arc::new(AtomicU64::new(0));
    let run = |wire| {
        let wire = Arc::new(CountedWire { wire, bytes: bytes.clone() });
        let group = (ranks > 1).then(|| RankGroup::new(wire.clone()));
        let result = Device::get("cpu").unwrap().scope(|| Mesh::with_group(group)?.within(scope, &program));
        let closed = if result.is_ok() { wire.close() } else { Ok(()) };
        wire.wire.end(None);
        (result, closed)
    };
    let ends: Vec<(Result<T>, Result<()>)> = std::thread::scope(|threads| {
        let run = &run;
        let wires = ThreadWire::connected(ranks).into_iter();
        let handles: Vec<_> = wires.map(|wire| threads.spawn(move || run(wire))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let (results, closed): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    if results.iter().all(Result::is_ok) {
        closed.into_iter().for_each(|closed| closed.expect("every message is received"));
    }
    (results, bytes.load(Ordering::Relaxed))
}

/// Runs a program on devices and ranks, and checks that all give the same bits; returns them.
fn everywhere(program: impl Fn(&Mesh) -> Result<Tensor> + Sync) -> Vec<f32> {
    let bits = |mesh: &Mesh| program(mesh)?.to_vec::<f32>();
    let mut expected: Option<Vec<f32>> = None;
    for (ranks, devices) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1), (2, 2)] {
        for values in on_ranks(ranks, &cpus(devices), bits).0 {
            let values = values.unwrap_or_else(|error| panic!("{ranks} ranks × {devices} devices: {error}"));
            let same =
                |expected: &Vec<f32>| expected.iter().map(|x| x.to_bits()).eq(values.iter().map(|x| x.to_bits()));
            assert!(
                expected.as_ref().is_none_or(same),
                "{ranks} ranks × {devices} devices: {values:?}, not {expected:?}"
            );
            expected = Some(values);
        }
    }
    expected.unwrap()
}

/// Computes with plain tensors on the CPU.
fn plain(program: impl FnOnce() -> Tensor) -> Vec<f32> {
    Device::get("cpu").unwrap().scope(|| program().to_vec().unwrap())
}

#[track_caller]
fn assert_close(have: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(have.len(), want.len());
    let most = have.iter().zip(want).map(|(have, want)| (have - want).abs()).fold(0.0, f32::max);
    assert!(most <= tolerance, "the largest difference is {most}");
}

#[test]
fn random_arrays_are_those_of_plain_tensors_in_every_layout() {
    let uniform = plain(|| Rng::seed_from_u64(5).uniform([13, 11]));
    let normal = plain(|| Rng::seed_from_u64(1 << 40).normal([13, 11]));
    for block in [[13, 11], [4, 3], [1, 11], [5, 1]] {
        let layout = Layout::blocks(block);
        assert_eq!(everywhere(|m| DArray::uniform(m, 5, [13, 11], &layout)?.collect()), uniform, "{block:?}");
        let (have, _) =
            on_ranks(2, "cpu", |m| DArray::normal(m, 1 << 40, [13, 11], &layout)?.collect()?.to_vec::<f32>());
        assert_close(have[0].as_ref().unwrap(), &normal, 1e-6);
    }
    let (line, _) =
        on_ranks(1, "cpu", |m| DArray::uniform(m, 9, [10], &Layout::blocks([3]))?.collect()?.to_vec::<f32>());
    assert_eq!(*line[0].as_ref().unwrap(), plain(|| Rng::seed_from_u64(9).uniform([10])));
}

#[test]
fn elementwise_operations_and_rearrangements_are_exact() {
    let (a, b) = (|| Rng::seed_from_u64(1).uniform([9, 10]), || Rng::seed_from_u64(2).uniform([9, 10]));
    let layout = || Layout::blocks([4, 3]);
    let array = |m: &Mesh| DArray::distribute(m, &a(), &layout());
    assert_eq!(everywhere(|m| array(m)?.collect()), plain(a));
    assert_eq!(everywhere(|m| array(m)?.map(|x| x * 2.0 + 1.0)?.collect()), plain(|| a() * 2.0 + 1.0));
    let other = |m: &Mesh| DArray::distribute(m, &b(), &Layout::blocks([2, 7]).over(&[1, 1]));
    assert_eq!(everywhere(|m| array(m)?.zip(&other(m)?, |x, y| x - y)?.collect()), plain(|| a() - b()));
    let row = |m: &Mesh| other(m)?.max_axis(0);
    assert_eq!(
        everywhere(|m| array(m)?.zip(&row(m)?, |x, y| x * y)?.collect()),
        plain(|| a() * b().max(0).unsqueeze(0))
    );
    assert_eq!(everywhere(|m| array(m)?.t()?.collect()), plain(|| a().t()));
    assert_eq!(everywhere(|m| array(m)?.to(&Layout::blocks([5, 4]))?.collect()), plain(a));
    let odd = TensorIndex::Slice { start: Some(1), end: Some(8), step: 3 };
    assert_eq!(everywhere(|m| array(m)?.slice((odd, 2..9))?.collect()), plain(|| a().slice((odd, 2..9))));
    assert_eq!(everywhere(|m| array(m)?.similar()?.collect()), vec![0.0; 90]);
    assert_eq!(everywhere(|m| DArray::ones(m, [3, 3], DType::F32, &Layout::blocks([2, 2]))?.collect()), vec![1.0; 9]);
}

#[test]
fn reductions_do_not_depend_on_places() {
    let a = || Rng::seed_from_u64(3).uniform([17, 12]) - 0.5;
    let array = |m: &Mesh| DArray::distribute(m, &a(), &Layout::blocks([3, 5]));
    assert_close(&everywhere(|m| array(m)?.sum()), &plain(|| a().sum(..)), 1e-4);
    assert_close(&everywhere(|m| array(m)?.mean()), &plain(|| a().mean(..)), 1e-6);
    assert_close(&everywhere(|m| array(m)?.sum_axis(0)?.collect()), &plain(|| a().sum(0)), 1e-5);
    assert_close(&everywhere(|m| array(m)?.sum_axis(1)?.collect()), &plain(|| a().sum(1)), 1e-5);
    assert_eq!(everywhere(|m| array(m)?.max()), plain(|| a().max(..)));
    assert_eq!(everywhere(|m| array(m)?.min()), plain(|| a().min(..)));
    assert_eq!(everywhere(|m| array(m)?.min_axis(1)?.collect()), plain(|| a().min(1)));
}

#[test]
fn matrix_products_equal_plain_ones() {
    for [m, k, n] in [[14, 11, 9], [6, 12, 6], [5, 1, 3]] {
        let (a, b) = (move || Rng::seed_from_u64(1).uniform([m, k]), move || Rng::seed_from_u64(2).uniform([k, n]));
        let product = |mesh: &Mesh| {
            let left = DArray::uniform(mesh, 1, [m, k], &Layout::blocks([4, 3]))?;
            // The blocks of the second operand are moved to those of the first.
            left.matmul(&DArray::uniform(mesh, 2, [k, n], &Layout::blocks([5, 2]))?)?.collect()
        };
        assert_close(&everywhere(product), &plain(|| a().matmul(&b())), 1e-5);
    }
}

#[test]
fn cholesky_equals_the_plain_factorization() {
    let n = 13;
    let spd = || {
        let a = Rng::seed_from_u64(4).uniform([n, n]);
        a.matmul(&a.t()) + Tensor::eye(n, DType::F32) * n as f64
    };
    let values = plain(spd);
    let matrix =
        |m: &Mesh, block| DArray::distribute(m, &Tensor::from_slice(&values, [n, n]), &Layout::blocks([block, block]));
    let expected = plain(|| spd().cholesky());
    for block in [4, 13, 5] {
        assert_close(&everywhere(|m| matrix(m, block)?.cholesky()?.collect()), &expected, 1e-4);
    }
    let negative = |m: &Mesh| matrix(m, 4)?.map(|x| -x)?.cholesky()?.collect()?.to_vec::<f32>();
    for values in on_ranks(2, "cpu", negative).0 {
        assert!(values.unwrap().iter().any(|x| x.is_nan()), "a matrix that is not positive definite");
    }
    let (wrong, _) =
        on_ranks(1, "cpu", |m| DArray::ones(m, [4, 4], DType::F32, &Layout::blocks([2, 3]))?.cholesky().map(drop));
    assert!(wrong[0].as_ref().unwrap_err().message().starts_with("cholesky: "));
}

#[test]
fn blocks_live_where_the_layout_says() {
    let (places, bytes) = on_ranks(2, "cpu,cpu:checked", |m| {
        let a = DArray::zeros(m, [8, 8], DType::F32, &Layout::blocks([2, 4]))?;
        assert_eq!((a.shape(), a.block_counts(), a.dtype()), (&[8, 8][..], vec![4, 2], DType::F32));
        assert!(a.place(&[4, 0]).is_err());
        (0..4).flat_map(|row| (0..2).map(move |column| [row, column])).map(|at| Ok(a.place(&at)?.to_string())).collect()
    });
    let places: Vec<Vec<String>> = places.into_iter().map(Result::unwrap).collect();
    let row = |rank: usize| [format!("rank {rank}, cpu"), format!("rank {rank}, cpu:checked")];
    let far = |rank: usize| [0, 1].map(|index| format!("rank {rank}, device {index} of its scope"));
    assert_eq!(places[0], [row(0), far(1), row(0), far(1)].concat());
    assert_eq!(places[1], [far(0), row(1), far(0), row(1)].concat());
    assert_eq!(bytes, 0, "creation sends nothing");
}

#[test]
fn products_send_each_block_once_to_each_rank_that_needs_it() {
    // 2 × 2 ranks, 4 × 4 blocks of 2 × 2 numbers: a column of ranks shares each block row, a row each block column.
    let (_, bytes) = on_ranks(4, "cpu", |m| {
        let layout = Layout::blocks([2, 2]);
        let (a, b) = (DArray::uniform(m, 1, [8, 8], &layout)?, DArray::uniform(m, 2, [8, 8], &layout)?);
        let product = a.matmul(&b)?;
        // Reading one sum waits for nothing that is sent.
        product.map(|x| x + 0.0).map(drop)
    });
    let (blocks, header, block) = (2 * 16, 168, 2 * 2 * 4);
    assert_eq!(bytes, blocks * (header + block), "each block is sent to one other rank");
}

#[test]
fn failures_reach_every_rank() {
    let (results, _) = on_ranks(3, "cpu", |m| {
        let a = DArray::ones(m, [6, 6], DType::F32, &Layout::blocks([2, 2]))?;
        // The example on which the function is checked is not evaluated, blocks are.
        let wrong = |x: &Tensor| if x.is_evaluated() { x.reshape([4]) } else { x.clone() };
        a.map(wrong)?.matmul(&a)?.collect()?.to_vec::<f32>()
    });
    for result in results {
        let error = result.unwrap_err();
        assert!(error.message().contains("task map(") && error.message().contains(" on rank "), "{error}");
        assert!(error.message().contains("cannot become"), "{error}");
    }
}

#[test]
fn ranks_that_run_different_programs_are_reported() {
    let (results, _) = on_ranks(2, "cpu", |m| {
        let a = DArray::ones(m, [4, 4], DType::F32, &Layout::blocks([2, 2]))?;
        // Rank 0 sends blocks for a product, rank 1 expects those of `collect`.
        if m.group().is_some_and(|group| group.rank() == 0) { a.matmul(&a).map(drop) } else { a.collect().map(drop) }
    });
    let error = results[1].as_ref().unwrap_err();
    let begins =
        "rank 1 and rank 0 run different programs: the first different operation is number 2, collect([4, 4]) at ";
    assert!(error.message().starts_with(begins) && error.message().contains("arrays.rs:"), "{error}");
    assert_eq!(error.notes(), ["rank 1 expects collect(0,0), rank 0 sends matmul(0,0)"]);
}

/// The same messages with other numbers in them are found, too.
#[test]
fn ranks_that_draw_other_numbers_are_reported() {
    let (results, _) = on_ranks(2, "cpu", |m| {
        let (layout, rank) = (Layout::blocks([2, 2]), m.group().map_or(0, |group| group.rank()));
        let a = DArray::uniform(m, 7 + rank as u64, [4, 4], &layout)?;
        a.map(|x| x.exp())?.collect().map(drop)
    });
    let error = results[1].as_ref().unwrap_err();
    assert!(
        error.message().contains("the first different operation is number 1, uniform(8, [4, 4], [2, 2]) at "),
        "{error}"
    );
}
