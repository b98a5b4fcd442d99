//! Reference interpreter of kernels: slow and simple, one work-group at a time.
//!
//! All work-items of a work-group step through the body together, statement by statement, each with an active bit. So barriers are
//! no-ops and race-free kernels have a unique result. It is the oracle of every other executor and shares no code with any of them: no
//! pass, renderer or vector machine.
//!
//! Where the kernel IR leaves a choice, the interpreter behaves as follows. The caller chooses the work-group size if the kernel does not
//! fix one. Subgroups have one work-item, except in [`run_in_subgroups`]. Scans are in order of the linear local id. Shared and private
//! arrays start with garbage. An access beyond the length is harmless for every guard. An index has 64 bits.
//!
//! An [`Observer`] is notified of every access; the checked CPU device is one.

mod group;
mod memory;
mod plan;
mod product;
pub mod scalar;
mod values;

use crate::dtype::{Scalar, Type};
use crate::error::{Error, Result};
use crate::kernel::*;
use crate::verify::Verified;

use group::WorkGroup;
use memory::Store;
use plan::Plan;

/// An argument of a launch.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A read-only buffer; several can share memory.
    Read(&'a [u8]),
    /// A buffer of any access, as bytes in native order.
    Write(&'a mut [u8]),
    /// A scalar of the parameter's type.
    Scalar(Scalar),
    /// An index.
    Index(u64),
}

/// A work-item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// Global id.
    pub global: [u64; 3],
    /// Linear id in the work-group: `x + size.x * (y + size.y * z)`.
    pub local: u32,
    /// Linear id of the work-group.
    pub group: u64,
}

/// Type of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Read.
    Load,
    /// Write.
    Store,
    /// Atomic update.
    Atomic,
}

/// An access to one element, possibly out of bounds.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Type of the access.
    pub touch: AccessKind,
    /// The memory.
    pub mem: MemId,
    /// Index of the element; `None` if it exceeds 64 bits.
    pub element: Option<u64>,
    /// Length of the memory in elements.
    pub len: u64,
    /// The work-item.
    pub item: WorkItem,
    /// Source location.
    pub at: Loc,
}

/// An index operation whose result overflows or is undefined.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// The operation.
    pub op: crate::Alu,
    /// Its operands; the second is 0 for a unary operation.
    pub operands: [u64; 2],
    /// The work-item.
    pub item: WorkItem,
    /// Source location.
    pub at: Loc,
}

/// A barrier or collective that not all work-items of a work-group reach.
#[derive(Clone, Copy, Debug)]
pub struct Divergence {
    /// Number of work-items that reach it.
    pub arrived: usize,
    /// Number of work-items in the group.
    pub items: usize,
    /// A work-item that reaches it and one that does not.
    pub witnesses: [WorkItem; 2],
    /// Source location.
    pub at: Loc,
}

/// Callbacks during a run. Every callback does nothing by default; an error ends the run.
///
/// Loads and index arithmetic are reported with the short-circuit semantics of the Rust source: not on the side of a select that was not
/// taken, nor in the right operand of an `and` or `or` that the left operand decides. A load that is not [`Guard::Checked`] is always
/// reported, because it always happens.
#[allow(unused_variables, reason = "the defaults do nothing")]
pub trait Observer {
    /// True if accesses and arithmetic are reported; false is faster.
    const WATCHES: bool = true;

    /// Called when a work-group starts, with new shared and private arrays.
    fn group(&mut self, number: u64) -> Result<()> {
        Ok(())
    }

    /// Called for each access to an element.
    fn access(&mut self, access: Access) -> Result<()> {
        Ok(())
    }

    /// Called when the work-group passes a barrier.
    fn barrier(&mut self, at: Loc) -> Result<()> {
        Ok(())
    }

    /// Called when only some work-items reach a barrier or collective, which is possible in an unchecked kernel.
    fn diverged(&mut self, divergence: Divergence) -> Result<()> {
        Ok(())
    }

    /// Called when index arithmetic wraps or divides by zero.
    fn overflow(&mut self, overflow: Overflow) -> Result<()> {
        Ok(())
    }

    /// Called when a loop starts another iteration.
    fn iteration(&mut self, at: Loc) -> Result<()> {
        Ok(())
    }
}

/// Observes nothing.
impl Observer for () {
    const WATCHES: bool = false;
}

/// Runs a kernel over a grid of work-items. `group` must be the kernel's own size if it has one.
///
/// # Errors
/// The arguments do not fit the parameters, the grid is empty, the work-group size is wrong, a loop's step is not positive, or the
/// observer returns an error.
pub fn run(
    kernel: &Verified<Kernel>,
    grid: [u64; 3],
    group: [u32; 3],
    args: &mut [Arg<'_>],
    observer: &mut impl Observer,
) -> Result<()> {
    run_in_subgroups(kernel, grid, group, 1, args, observer)
}

/// Like [`run`], with subgroups of this many work-items; the last of a work-group can be smaller.
///
/// # Errors
/// As of [`run`].
pub fn run_in_subgroups(
    kernel: &Verified<Kernel>,
    grid: [u64; 3],
    group: [u32; 3],
    subgroup: u32,
    args: &mut [Arg<'_>],
    observer: &mut impl Observer,
) -> Result<()> {
    let fail = |message: String| Err(Error::mistake(format!("kernel {}: {message}", kernel.name)));
    if grid.contains(&0) || group.contains(&0) {
        return fail(format!("a grid of {grid:?} in groups of {group:?} is empty"));
    }
    if kernel.group_size.is_some_and(|own| own != group) {
        return fail(format!("it has groups of {:?}, not {group:?}", kernel.group_size.unwrap_or(group)));
    }
    let items = group.iter().fold(1_u64, |items, size| items.saturating_mul(*size as u64));
    if items > crate::verify::MAX_GROUP_ITEMS {
        return fail(format!("groups of {group:?} are {items} work-items; at most {}", crate::verify::MAX_GROUP_ITEMS));
    }
    let (scalars, stores) = match bind(kernel, args, items as usize) {
        Ok(bound) => bound,
        Err(message) => return fail(message),
    };
    let plan = Plan::new(kernel);
    let launch = Launch { kernel, plan: &plan, scalars, grid, group, subgroup: subgroup.max(1) as usize };
    let mut state = WorkGroup::new(&launch, stores, observer);
    let counts = launch.group_counts();
    for z in 0..counts[2] {
        for y in 0..counts[1] {
            for x in 0..counts[0] {
                state.run([x, y, z])?;
            }
        }
    }
    Ok(())
}

/// State shared by all work-groups of a launch.
struct Launch<'k> {
    kernel: &'k Kernel,
    plan: &'k Plan<'k>,
    /// Bits of the scalar parameters by position; 0 for buffers.
    scalars: Vec<u64>,
    grid: [u64; 3],
    group: [u32; 3],
    subgroup: usize,
}

impl Launch<'_> {
    fn group_counts(&self) -> [u64; 3] {
        std::array::from_fn(|axis| self.grid[axis].div_ceil(self.group[axis] as u64))
    }
}

/// Binds the arguments to the parameters; returns the scalars' bits and every memory.
fn bind<'a>(kernel: &Kernel, args: &'a mut [Arg<'_>], items: usize) -> Result<(Vec<u64>, Vec<Store<'a>>), String> {
    if args.len() != kernel.params.len() {
        return Err(format!("it takes {} arguments, not {}", kernel.params.len(), args.len()));
    }
    let (mut scalars, mut stores) = (Vec::new(), Vec::new());
    for (position, (param, arg)) in kernel.params.iter().zip(args).enumerate() {
        let (bits, store) = match (param, arg) {
            (Param::Scalar { ty: Type::Scalar(dtype), .. }, Arg::Scalar(value)) if value.dtype == *dtype => {
                (value.bits, None)
            }
            (Param::Scalar { ty: Type::Index, .. }, Arg::Index(value)) => (*value, None),
            (Param::Buffer(mem), Arg::Read(bytes))
                if kernel.mem(*mem).space == Space::Buffer(crate::kernel::Access::In) =>
            {
                (0, Some(Store::Read(bytes)))
            }
            (Param::Buffer(_), Arg::Write(bytes)) => (0, Some(Store::Write(bytes))),
            (Param::Scalar { name, ty }, _) => return Err(format!("argument {position} ({name}) must be one {ty}")),
            (Param::Buffer(mem), _) => {
                let name = &kernel.mem(*mem).name;
                return Err(format!("argument {position} ({name}) must be a buffer, writable if it is written"));
            }
        };
        scalars.push(bits);
        stores.extend(store);
    }
    for (memory, store) in kernel.mems.iter().zip(&stores) {
        if store.bytes() % memory.dtype.bytes() != 0 {
            return Err(format!("{} has {} bytes, not a whole number of {}", memory.name, store.bytes(), memory.dtype));
        }
    }
    let cells = |memory: &Memory| match memory.space {
        Space::Buffer(_) => 0,
        Space::Shared(len) => len as usize,
        Space::Private(len) => len as usize * items,
    };
    let total: usize = kernel.mems.iter().map(cells).sum();
    if total > MAX_CELLS {
        return Err(format!(
            "its arrays have {total} elements per work-group; the interpreter supports at most {MAX_CELLS}"
        ));
    }
    stores.extend(kernel.mems[stores.len()..].iter().map(|memory| Store::Array(vec![0; cells(memory)])));
    Ok((scalars, stores))
}

/// Maximum number of elements in the shared and private arrays of a work-group; 1 GiB at 8 bytes each.
const MAX_CELLS: usize = 1 << 27;
