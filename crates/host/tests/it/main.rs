//! Integration tests of the host CPU: one program, a module for each part.

mod half;
mod host_info;
mod huge_pages;
mod lane_sums;
mod pool;
mod scratch;
mod ulp;
