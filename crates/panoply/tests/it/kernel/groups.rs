//! Cooperation of work-items: ids, shared arrays, barriers, collectives, atomics. The expected values are computed from
//! the definition in a loop over all work-items.

use std::sync::Arc;

use panoply::kernel::Number;
use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Backend, Device, f16, kernel, kernel_fn};
use panoply_driver::CudaDriver;
use panoply_ir::interpret::{self, Arg};
use panoply_ir::verify::verify;

use crate::kernel::oracle::{bits, bytes, interpret};

#[kernel(group_size = (4, 2))]
fn ids(out: &mut [u32]) {
    let (x, y) = (global_id(0), global_id(1));
    let width = num_groups(0) * group_size(0);
    let item = (y * width + x) * 4;
    out[item] = local_index() as u32;
    out[item + 1] = (group_id(1) * 100 + group_id(0)) as u32;
    out[item + 2] = (global_size(0) * 100 + global_size(1)) as u32;
    out[item + 3] = (local_id(1) * 100 + local_id(0)) as u32;
}

#[test]
fn work_item_ids_are_correct() {
    let mut out = vec![0; 8 * 4 * 4 * 4];
    interpret(ids::build().unwrap(), [7, 3, 1], &mut [Arg::Write(&mut out)]);
    for (item, values) in bits(&out, 4).chunks(4).enumerate() {
        let (x, y) = (item as u64 % 8, item as u64 / 8);
        let want = [x % 4 + 4 * (y % 2), y / 2 * 100 + x / 4, 703, y % 2 * 100 + x % 4];
        assert_eq!(values, want, "work-item ({x}, {y})");
    }
}

#[kernel(group_size = N)]
fn reversed<T: Number, const N: usize>(x: &[T], y: &mut [T]) {
    let mut tile = shared::<T>(N);
    let (i, local) = (global_index(), local_index());
    tile[local] = x[i];
    barrier();
    y[i] = tile[tile.len() - 1 - local];
}

#[test]
fn shared_arrays_and_generics() {
    let x: Vec<u16> = (0..12).map(|i| i * 7).collect();
    let (input, mut out) = (bytes(&x), vec![0; 24]);
    interpret(reversed::build::<u16, 4>().unwrap(), [12, 1, 1], &mut [Arg::Read(&input), Arg::Write(&mut out)]);
    let want: Vec<u16> = x.chunks(4).flat_map(|group| group.iter().rev().copied()).collect();
    assert_eq!(out, bytes(&want));
}

#[kernel(group_size = 8)]
fn collectives(x: &[i32], out: &mut [i32]) {
    let i = global_index();
    let v = x[i];
    out[i * 8] = group_sum(v);
    out[i * 8 + 1] = group_min(v) * 1000 + group_max(v);
    out[i * 8 + 2] = group_inclusive_sum(v);
    out[i * 8 + 3] = group_exclusive_sum(v);
    out[i * 8 + 4] = group_broadcast(v, 3);
    out[i * 8 + 5] = group_inclusive_max(v);
    out[i * 8 + 6] = group_exclusive_min(v);
    out[i * 8 + 7] = group_product(v);
}

#[test]
fn group_collectives_agree() {
    let x = [3, -1, 4, 1, -5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];
    let (input, mut out) = (bytes(&x), vec![0; 16 * 8 * 4]);
    interpret(collectives::build().unwrap(), [16, 1, 1], &mut [Arg::Read(&input), Arg::Write(&mut out)]);
    let out: Vec<i32> = bits(&out, 4).into_iter().map(|bits| bits as i32).collect();
    for (group, values) in x.chunks(8).enumerate() {
        for local in 0..8 {
            let have = &out[(group * 8 + local) * 8..][..8];
            let (before, upto) = (&values[..local], &values[..=local]);
            let want = [
                values.iter().sum(),
                values.iter().min().unwrap() * 1000 + values.iter().max().unwrap(),
                upto.iter().sum(),
                before.iter().sum(),
                values[3],
                *upto.iter().max().unwrap(),
                before.iter().copied().min().unwrap_or(i32::MAX),
                values.iter().product(),
            ];
            assert_eq!(have, want, "work-item {local} of group {group}");
        }
    }
}

#[kernel(group_size = 4)]
fn subgroups(out: &mut [u32]) {
    let i = global_index();
    let lane = subgroup_lane_id() as u32;
    out[i] = subgroup_exclusive_sum(1u32)
        + 10 * (subgroup_inclusive_sum(1u32) - 1)
        + 100 * lane
        + 1000 * (subgroup_max(lane) + 1 - subgroup_size() as u32)
        + 10000 * subgroup_broadcast(lane, 0)
        + 100000 * (subgroup_shuffle(lane, lane ^ 1) ^ lane);
}

#[test]
fn subgroup_collectives_agree() {
    let kernel = verify(subgroups::build().unwrap()).unwrap();
    for size in [1, 2, 4] {
        let mut out = vec![0; 32];
        let args = &mut [Arg::Write(&mut out)];
        interpret::run_in_subgroups(&kernel, [8, 1, 1], [4, 1, 1], size, args, &mut ()).unwrap();
        // Three counts of the lane agree, the neighbor exists unless the subgroup has one lane, and the rest is zero.
        let neighbor = if size == 1 { 0 } else { 100000 };
        let want: Vec<u64> = (0..8).map(|i| u64::from(i % size * 111 + neighbor)).collect();
        assert_eq!(bits(&out, 4), want, "subgroups of {size}");
    }
}

#[kernel]
fn atomics(x: &[u32], cells: &mut [u32], old: &mut [u32], sum: &mut [f32]) {
    let i = global_index();
    atomic_add(&mut cells[x[i] as usize % 2], x[i]);
    atomic_min(&mut cells[2], x[i]);
    atomic_max(&mut cells[3], x[i]);
    old[i] = atomic_exchange(&mut cells[4], x[i]);
    if atomic_compare_exchange(&mut cells[5], 0, x[i]) == 0 {
        atomic_add(&mut cells[6], 1);
    }
    atomic_add(&mut sum[0], x[i] as f32);
}

#[test]
fn atomics_are_atomic() {
    let x: Vec<u32> = vec![5, 8, 2, 9, 4, 7];
    let (input, mut cells, mut old, mut sum) =
        (bytes(&x), bytes(&[0u32, 0, 100, 0, 77, 0, 0]), vec![0; 24], vec![0; 4]);
    let mut args = [Arg::Read(&input), Arg::Write(&mut cells), Arg::Write(&mut old), Arg::Write(&mut sum)];
    interpret(atomics::build().unwrap(), [6, 1, 1], &mut args);
    let cells = bits(&cells, 4);
    assert_eq!(cells[..4], [14, 21, 2, 9]);
    assert_eq!(cells[6], 1, "exactly one exchange succeeds");
    assert!(x.contains(&(cells[5] as u32)));
    // The exchanges form one chain: every value that was stored or initially present is returned once, except the final
    // one.
    let mut seen = bits(&old, 4);
    seen.push(cells[4]);
    seen.sort();
    assert_eq!(seen, [2, 4, 5, 7, 8, 9, 77]);
    assert_eq!(f32::from_bits(bits(&sum, 4)[0] as u32), 35.0);
}

#[kernel(unchecked)]
fn gather(x: &[f32], index: &[u32], y: &mut [f32]) {
    let i = global_index();
    let far = i + 1 < x.len();
    y[i] = if far { x[i + 1] } else { x[index[i] as usize] };
}

#[test]
fn unselected_branches_stay_bounds_checked_in_unchecked_kernels() {
    let text = gather::build().unwrap().to_string();
    assert!(text.starts_with("unchecked kernel gather"), "{text}");
    let (x, index, mut y) = (bytes(&[1.0f32, 2.0, 3.0]), bytes(&[9u32, 9, 0]), vec![0; 12]);
    let mut args = [Arg::Read(&x), Arg::Read(&index), Arg::Write(&mut y)];
    interpret(gather::build().unwrap(), [3, 1, 1], &mut args);
    assert_eq!(y, bytes(&[2.0f32, 3.0, 1.0]));
}

#[kernel]
fn beyond(x: &[f32], y: &mut [f32]) {
    let i = global_index();
    y[i + 2] = x[i + 1] + 1.0;
}

#[test]
fn out_of_bounds_reads_are_zero_and_writes_are_dropped() {
    let (x, mut y) = (bytes(&[1.0f32, 2.0, 3.0]), vec![0; 16]);
    interpret(beyond::build().unwrap(), [4, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut y)]);
    assert_eq!(y, bytes(&[0.0f32, 0.0, 3.0, 4.0]));
}

#[kernel]
fn leaving(x: &[f32], y: &mut [f32]) {
    let i = global_index();
    let value = if i < x.len() && x[i] > 0.0 { x[i] } else { return };
    let mut sum = 0.0;
    loop {
        sum += if sum < value { 1.0 } else { break };
    }
    y[i] = sum;
    return;
}

#[test]
fn value_branches_can_return_or_break() {
    let (x, mut y) = (bytes(&[2.5f32, -1.0, 1.0]), bytes(&[9.0f32; 4]));
    interpret(leaving::build().unwrap(), [4, 1, 1], &mut [Arg::Read(&x), Arg::Write(&mut y)]);
    assert_eq!(y, bytes(&[3.0f32, 9.0, 1.0, 9.0]));
}

/// Returns two elements of a row of a matrix, zero beyond its edges.
#[kernel_fn]
fn in_row(x: &[f16], row: usize, column: usize, rows: usize, columns: usize) -> u32 {
    let low = if row < rows && column < columns { x[row * columns + column].to_bits() as u32 } else { 0 };
    let high = if row < rows && column + 1 < columns { x[row * columns + column + 1].to_bits() as u32 } else { 0 };
    low | high << 16
}

/// Returns two elements of a column.
#[kernel_fn]
fn in_column(x: &[f16], row: usize, column: usize, rows: usize, columns: usize) -> u32 {
    let low = if row < rows && column < columns { x[row * columns + column].to_bits() as u32 } else { 0 };
    let high = if row + 1 < rows && column < columns { x[(row + 1) * columns + column].to_bits() as u32 } else { 0 };
    low | high << 16
}

/// `c[m, n] = a[m, k] b[k, n]`: 32 work-items for every 16 × 8 elements.
#[kernel(group_size = (8, 4))]
fn matmul_mma(a: &[f16], b: &[f16], c: &mut [f32], m: usize, k: usize, n: usize) {
    let (g, t) = (local_index() / 4, local_index() % 4);
    let (row, column) = (group_id(1) * 16, group_id(0) * 8);
    let mut sums = mma_fragment_zero();
    for start in (0..k).step_by(16) {
        let at = start + 2 * t;
        let (a0, a1) = (in_row(a, row + g, at, m, k), in_row(a, row + g + 8, at, m, k));
        let (a2, a3) = (in_row(a, row + g, at + 8, m, k), in_row(a, row + g + 8, at + 8, m, k));
        let (b0, b1) = (in_column(b, at, column + g, k, n), in_column(b, at + 8, column + g, k, n));
        sums = mma_m16n8k16_f16(sums, a0, a1, a2, a3, b0, b1);
    }
    let (first, left) = (row + g, column + 2 * t);
    if first < m && left < n {
        c[first * n + left] = mma_fragment_get(sums, 0);
    }
    if first < m && left + 1 < n {
        c[first * n + left + 1] = mma_fragment_get(sums, 1);
    }
    if first + 8 < m && left < n {
        c[(first + 8) * n + left] = mma_fragment_get(sums, 2);
    }
    if first + 8 < m && left + 1 < n {
        c[(first + 8) * n + left + 1] = mma_fragment_get(sums, 3);
    }
}

/// Compares with f64 sums on every device present, and on a simulated NVIDIA GPU that runs PTX.
#[test]
fn mma_computes_matrix_products() {
    let [m, k, n] = [21, 37, 19];
    let number = |i: usize| f16::from_f32((i * 7919 % 613) as f32 / 200.0 - 1.5);
    let a: Vec<f16> = (0..m * k).map(number).collect();
    let b: Vec<f16> = (0..k * n).map(|i| number(i + 5000)).collect();
    let driver = CudaDriver { library: Some(panoply_driver_sim::library()), ..CudaDriver::default() };
    let pretended = Registry::new(vec![Arc::new(driver)], DeviceOptions::default()).devices(Backend::Cuda).unwrap();
    assert!(pretended[0].target().mma);
    for device in Device::list().unwrap().iter().chain(&pretended) {
        let (left, right, mut c) =
            (device.buffer(&a).unwrap(), device.buffer(&b).unwrap(), device.zeros::<f32>(m * n).unwrap());
        let launch = matmul_mma(&left, &right, &mut c, m, k, n).launch((n.div_ceil(8) * 8, m.div_ceil(16) * 4));
        launch.unwrap_or_else(|error| panic!("{device}: {error}"));
        for (at, found) in c.to_vec().unwrap().into_iter().enumerate() {
            let products = (0..k).map(|i| a[at / n * k + i].to_f64() * b[i * n + at % n].to_f64());
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), part| (sum + part, size + part.abs()));
            assert!((f64::from(found) - sum).abs() <= 1e-5 * size, "{device}, element {at}: {found}, expected {sum}");
        }
    }
}

/// On the host, as in a launch of one work-item, the other work-items contribute zeros.
#[test]
fn mma_on_the_host_acts_as_one_work_item() {
    let [one, two] = [1.0, 2.0].map(|value| u32::from(f16::from_f32(value).to_bits()));
    let sums = panoply::kernel::mma_m16n8k16_f16(
        panoply::kernel::mma_fragment_zero(),
        one | two << 16,
        two,
        0,
        two,
        one | two << 16,
        two << 16,
    );
    let elements = [0, 1, 2, 3].map(|number| panoply::kernel::mma_fragment_get(sums, number));
    assert_eq!(elements, [5.0, 0.0, 2.0, 0.0]);
}

#[kernel(group_size = 32)]
fn which(c: &mut [f32], number: usize) {
    c[0] = mma_fragment_get(mma_fragment_zero(), number);
}

#[test]
fn fragment_element_numbers_must_be_constant() {
    let error = which::build().expect_err("the element number is a parameter");
    assert!(
        error.to_string().contains("the element number of `mma_fragment_get` must be a constant below 4"),
        "{error}"
    );
}
