//! Properties of built kernels: names, source lines, group sizes, and mistakes that only a build can find.

use panoply::{kernel, kernel_fn};
use panoply_ir::kernel::Space;

#[kernel_fn]
fn squared(x: f32) -> f32 {
    x * x // line 8
}

#[kernel(group_size = (8, 4))]
fn lines(a: f32, x: &[f32], y: &mut [f32]) {
    let i = global_index(); // line 13
    if i < x.len() {
        let s = squared(a);
        y[i] = s; // line 16
    }
}

#[test]
fn statements_carry_their_source_line() {
    let kernel = lines::build().unwrap();
    let mut places = Vec::new();
    kernel.walk(&mut |stmt| places.extend(kernel.place(stmt.at)));
    let lines: Vec<&str> = places.iter().filter_map(|place| place.rsplit(':').next()).collect();
    assert!(places.iter().all(|place| place.contains("building.rs:")), "{places:?}");
    assert_eq!(lines, ["13", "14", "15", "15", "16"]);
    assert_eq!(kernel.group_size, Some([8, 4, 1]));
    assert_eq!(kernel.name, "lines");
}

#[kernel]
fn raw(r#type: &[f32], mut r#loop: u32, out: &mut [f32]) {
    r#loop += 1;
    out[r#loop as usize] = r#type[0];
}

#[test]
fn raw_identifiers_lose_their_prefix() {
    let text = raw::build().unwrap().to_string();
    assert!(text.contains("type: &[f32], loop") && !text.contains("r#"), "{text}");
}

#[kernel(group_size = 4)]
fn sized<const N: usize>(out: &mut [f32]) {
    let mut tile = shared::<f32>(N * N);
    tile[local_index()] = 1.0;
    barrier();
    out[global_index()] = tile[3 - local_index()];
}

#[test]
fn array_lengths_are_computed_for_each_instantiation() {
    let len = |kernel: &kernel::Kernel| kernel.mems[1].space;
    assert_eq!(len(&sized::build::<4>().unwrap()), Space::Shared(16));
    let error = sized::build::<0>().unwrap_err();
    assert!(error.to_string().contains("tile is an array of 0 elements"), "{error}");
}

#[kernel]
fn axes(out: &mut [u32]) {
    const AXIS: usize = 3;
    out[0] = global_id(AXIS) as u32;
}

#[test]
fn an_axis_out_of_range_is_a_mistake() {
    let error = axes::build().unwrap_err();
    assert!(error.is_mistake() && error.to_string().contains("axes: there is no axis 3"), "{error}");
    assert!(error.to_string().contains("building.rs:63"), "{error}");
}

#[kernel_fn]
#[allow(unconditional_recursion)]
fn endless(x: f32) -> f32 {
    endless(x)
}

#[kernel]
fn recursive(out: &mut [f32]) {
    out[0] = endless(1.0);
}

#[test]
fn recursion_is_a_mistake() {
    let error = recursive::build().unwrap_err();
    assert!(error.to_string().contains("endless is inlined into itself"), "{error}");
}

/// Kernels can be defined inside functions, where they see the items of the function.
#[test]
fn a_kernel_can_be_local() {
    const HERE: f32 = 2.5;
    #[kernel_fn]
    fn near(x: f32) -> f32 {
        x + HERE
    }
    #[kernel]
    fn inner(out: &mut [f32]) {
        out[global_index()] = near(HERE);
    }
    assert!(inner::build().unwrap().to_string().contains("2.5f32"));
}

mod elsewhere {
    use panoply::kernel_fn;

    pub mod deep {
        /// Called by its path.
        #[super::kernel_fn]
        pub fn third(x: f32) -> f32 {
            x / 3.0
        }
    }
}

#[kernel]
fn by_path(out: &mut [f32]) {
    out[0] = elsewhere::deep::third(kernel::cast::<f32>(1));
}

#[test]
fn functions_are_found_by_path() {
    assert!(by_path::build().unwrap().to_string().contains("div"));
}

/// On the host, a kernel function is an ordinary function, and the language functions behave as for one work-item.
#[test]
fn kernel_functions_run_on_the_host() {
    #[kernel_fn]
    fn alone(x: &mut [u32]) -> u32 {
        atomic_add(&mut x[0], 5);
        barrier();
        group_sum(x[global_index()]) + group_size(0) as u32 + group_exclusive_sum(9u32)
    }
    assert_eq!(alone(&mut [1]), 7);
    assert_eq!(squared(3.0), 9.0);
    assert_eq!(panoply::kernel::erf(0.5f64), 0.5204998778130465);
}
