//! Powers, with a logarithm accurate to about 2^-66.

use panoply_ir::polynomials::double::{POW_LOG2, POW_LOG2_0, POW_LOG2_1};

use super::exp::exp2_sum;
use super::round::trunc;
use super::{SIGN, mad, poly, product_and_rest, split, sum_and_rest_ordered};
use crate::math::MathIsa;

crate::math::power::power!(f64);
