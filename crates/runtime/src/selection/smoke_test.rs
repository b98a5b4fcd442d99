//! A smoke test: one small kernel whose results are checked, to find devices whose driver is broken.

use panoply_device::Backend;
use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, Guard, Kernel};
use panoply_ir::{DType, Error, ErrorKind, Result};

use super::registry::Registry;
use crate::device::Device;
use crate::launch::Launch;

/// Number of work-items: several work-groups, the last of them partial.
const ITEMS: u32 = 1000;

/// Builds `squares[i] = i * i + 1`.
fn build() -> Result<Kernel> {
    let mut b = Builder::new("smoke_test");
    let squares = b.buffer("squares", DType::U32, Access::Out);
    let i = b.builtin(Builtin::GlobalId(0));
    let number = b.cast(DType::U32, i);
    let square = b.alu(Alu::Mul, &[number, number]);
    let one = b.constant(1u32);
    let value = b.alu(Alu::Add, &[square, one]);
    b.store(squares, i, value, Guard::Checked);
    b.finish()
}

impl Device {
    /// Computes a thousand squares on the device and checks them.
    ///
    /// # Errors
    /// The launch failed, or a result is wrong.
    pub fn smoke_test(&self) -> Result<()> {
        let mut squares = self.zeros::<u32>(ITEMS as usize)?;
        Launch::new(build, vec![(&mut squares).into()]).launch(ITEMS as usize)?;
        let have = squares.to_vec()?;
        match (0..ITEMS).zip(have).find(|(i, square)| *square != i * i + 1) {
            Some((i, square)) => Err(Error::new(
                ErrorKind::Driver,
                format!(
                    "{self}: computed {square} for {i}² + 1; run `panoply selftest --device {self}` and update its driver"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Runs [`Device::smoke_test`] on the first device of a backend.
    ///
    /// # Errors
    /// The backend has no device, or the test failed.
    pub fn can_compute(kind: Backend) -> Result<()> {
        Registry::global()?.devices(kind)?[0].smoke_test()
    }
}
