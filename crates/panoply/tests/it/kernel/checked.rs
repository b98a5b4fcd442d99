//! `cpu:checked` from a user's view: for each class of defects, a kernel with one is launched.
//! The error must name the kernel and the line of this file, and the next launch must work.

use panoply::{Buffer, Device, Result, kernel};

const BEYOND: u32 = line!() + 5;
#[kernel(group_size = 4)]
fn reads_beyond(y: &mut [u32]) {
    let i = global_index();
    if i < y.len() {
        y[i] = y[i + 8];
    }
}

const IN_A_GROUP: u32 = line!() + 6;
#[kernel(group_size = 4)]
fn races_in_a_group(y: &mut [u32]) {
    let mut own = shared::<u32>(4);
    let l = local_id(0);
    own[l] = 1;
    y[global_index()] = own[3 - l];
}

const BETWEEN_GROUPS: u32 = line!() + 3;
#[kernel(group_size = 4)]
fn races_between_groups(y: &mut [u32]) {
    y[local_id(0)] = 1;
}

const UNWRITTEN: u32 = line!() + 9;
#[kernel(group_size = 4)]
fn reads_uninitialized_memory(y: &mut [u32]) {
    let mut own = shared::<u32>(4);
    let l = local_id(0);
    if l < 3 {
        own[l] = 1;
    }
    barrier();
    y[global_index()] = own[l];
}

const DIVERGENT: u32 = line!() + 4;
#[kernel(group_size = 4, unchecked)]
fn diverges(y: &mut [u32]) {
    if local_id(0) < 3 {
        barrier();
    }
    y[global_index()] = 1;
}

#[kernel(group_size = 4)]
fn is_right(y: &mut [u32]) {
    y[global_index()] = 7;
}

/// Checks the error of a kernel: its name, a phrase and the source line.
fn check_report(name: &str, sentence: &str, line: u32, run: impl Fn(&mut Buffer<u32>) -> Result<()>) {
    let device = Device::get("cpu:checked").expect("the CPU is always present");
    let mut y = device.zeros(8).expect("eight numbers fit");
    // The error is returned by the launch or by the call that waits for it.
    let error = run(&mut y).and_then(|()| y.to_vec().map(drop)).expect_err(name);
    let (text, place) = (error.to_string(), format!("kernel/checked.rs:{line}"));
    assert!(error.is_mistake(), "{text}");
    assert!(
        text.starts_with(&format!("kernel {name}: ")) && text.contains(sentence) && text.contains(&place),
        "{text}"
    );
    is_right(&mut y).launch(8).expect("the next launch works");
    assert_eq!(y.to_vec().expect("it can be read"), [7; 8], "after {name}");
}

#[test]
fn each_planted_defect_is_reported_with_its_line() {
    check_report("reads_beyond", "reads y[8], beyond its 8 elements", BEYOND, |y| reads_beyond(y).launch(8));
    check_report("races_in_a_group", "data race on own[", IN_A_GROUP, |y| races_in_a_group(y).launch(8));
    check_report("races_between_groups", "data race on y[0]", BETWEEN_GROUPS, |y| races_between_groups(y).launch(8));
    check_report("reads_uninitialized_memory", "own[3], which is uninitialized", UNWRITTEN, |y| {
        reads_uninitialized_memory(y).launch(8)
    });
    check_report("diverges", "reached by 3 of 4 work-items of a group", DIVERGENT, |y| {
        // SAFETY: every access is in bounds; the barrier that some work-items miss is the defect under test.
        unsafe { diverges(y).launch_unchecked(8) }
    });
}
