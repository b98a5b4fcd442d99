//! The whole way to an NVIDIA GPU without one: kernels become PTX, and a library that only pretends to be NVIDIA's runs it on an
//! interpreter that shares nothing with the renderer.

mod steps;

use std::sync::Arc;

use panoply::kernels::{self, Size};
use panoply::prelude::*;
use panoply::runtime::{DeviceOptions, Registry};
use panoply::{Device, Kind};
use panoply_driver::CudaDriver;

const SEED: u64 = 0x5eed;

fn cuda() -> Device {
    let driver = CudaDriver { library: Some(panoply_fake::library()), ..CudaDriver::default() };
    let registry = Registry::new(vec![Arc::new(driver)], DeviceOptions::default());
    registry.devices(Kind::Cuda).expect("the pretended driver has a device").swap_remove(0)
}

#[test]
fn the_kernels_that_ship_agree() {
    let device = cuda();
    for shipped in kernels::ALL {
        let verdict =
            shipped.check(&device, Size::Tiny, SEED).unwrap_or_else(|error| panic!("{}: {error}", shipped.name));
        assert!(verdict.passed(), "{}: {verdict}", shipped.name);
    }
    assert_eq!(device.stats().buffers, 0, "every buffer came back");
}

#[test]
fn a_network_trains_as_on_the_cpu() {
    steps::agree(&cuda());
}

/// `out[y] = y` over more rows than a grid has: the launch becomes several.
#[kernel(group = (1, 2))]
fn rows(out: &mut [u32]) {
    let y = group_id(1) * 2 + local_id(1);
    if y < out.len() {
        out[y] = (y + group_count(1)) as u32;
    }
}

#[test]
fn a_grid_may_have_more_rows_than_the_hardware() {
    let device = cuda();
    let count = 140_001;
    let mut out = device.zeros::<u32>(count).unwrap();
    rows(&mut out).launch((1, count, 1)).unwrap();
    let groups = count.div_ceil(2) as u32;
    let expected: Vec<u32> = (0..count as u32).map(|y| y + groups).collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}
