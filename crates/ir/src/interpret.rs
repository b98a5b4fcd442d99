//! The meaning of a kernel: slow, obvious, one group at a time.
//!
//! All work-items of a group step through the body together, statement by statement, each with a bit that says whether it
//! is there; so a barrier has nothing left to do and race-free kernels have one result. It is the oracle of every other
//! executor and shares no code with any: no pass, no renderer, no vector machine.
//!
//! What the kernel IR leaves open is decided here as follows: a group without a fixed size is whatever the caller says;
//! subgroups have one work-item unless [`run_in_subgroups`] is told otherwise; scans are taken in order of the linear local id; shared and private arrays start with
//! garbage; an access beyond the length is harmless whatever its guard; an index has 64 bits.
//!
//! An [`Observer`] is told what happens, access by access. The checked CPU device is one.

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

/// One argument of a launch.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A buffer that is only read; several may be the same memory.
    Read(&'a [u8]),
    /// A buffer of any access, as bytes of the machine's own order.
    Write(&'a mut [u8]),
    /// A scalar of the parameter's type.
    Scalar(Scalar),
    /// An index.
    Index(u64),
}

/// One work-item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// Its global id.
    pub global: [u64; 3],
    /// Its linear id within the group: `x + size.x * (y + size.y * z)`.
    pub local: u32,
    /// The linear id of its group.
    pub group: u64,
}

/// What is done to an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// It is read.
    Load,
    /// It is written.
    Store,
    /// It is changed indivisibly.
    Atomic,
}

/// An access to one element, which may lie beyond the length.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// What is done.
    pub touch: AccessKind,
    /// To which memory.
    pub mem: MemId,
    /// To which element; none if its number is beyond 64 bits.
    pub element: Option<u64>,
    /// How many elements the memory has.
    pub len: u64,
    /// By whom.
    pub item: WorkItem,
    /// Where it was written.
    pub at: Loc,
}

/// An operation on indices that has no true result.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// Which operation.
    pub op: crate::Alu,
    /// Its operands; the second is 0 if there is one only.
    pub operands: [u64; 2],
    /// Whose.
    pub item: WorkItem,
    /// Where it was written.
    pub at: Loc,
}

/// A barrier or collective to which not all work-items of a group came.
#[derive(Clone, Copy, Debug)]
pub struct Divergence {
    /// How many came.
    pub arrived: usize,
    /// How many there are.
    pub items: usize,
    /// One that came and one that did not.
    pub witnesses: [WorkItem; 2],
    /// Where it was written.
    pub at: Loc,
}

/// What is told about a run. Every hook does nothing unless it is overridden; an error ends the run.
///
/// Reads and index arithmetic are told as a reader of the Rust source would expect: not on the side of a select that was
/// not taken, nor in the right operand of an `and` or `with_variants` whose left operand decided; unless a read is not
/// [`Guard::Checked`], because then it happens.
#[allow(unused_variables, reason = "the defaults do nothing")]
pub trait Observer {
    /// Whether accesses and arithmetic are told at all; not being told is faster.
    const WATCHES: bool = true;

    /// A group starts; its shared and private arrays are new.
    fn group(&mut self, number: u64) -> Result<()> {
        Ok(())
    }

    /// An element is accessed.
    fn access(&mut self, access: Access) -> Result<()> {
        Ok(())
    }

    /// The group passes a barrier.
    fn barrier(&mut self, at: Loc) -> Result<()> {
        Ok(())
    }

    /// A barrier or collective is reached by some work-items only, which an unchecked kernel can do.
    fn diverged(&mut self, divergence: Divergence) -> Result<()> {
        Ok(())
    }

    /// Index arithmetic wraps, or divides by zero.
    fn overflow(&mut self, overflow: Overflow) -> Result<()> {
        Ok(())
    }

    /// A loop starts a further turn.
    fn turn(&mut self, at: Loc) -> Result<()> {
        Ok(())
    }
}

/// Observes nothing.
impl Observer for () {
    const WATCHES: bool = false;
}

/// Runs a kernel over a grid of work-items. `group` is the kernel's own size where it has one.
///
/// Errors: arguments that do not fit the parameters, an empty grid or a wrong group, a loop whose step is not positive, and
/// whatever the observer answers.
pub fn run(
    kernel: &Verified<Kernel>,
    grid: [u64; 3],
    group: [u32; 3],
    args: &mut [Arg<'_>],
    observer: &mut impl Observer,
) -> Result<()> {
    run_in_subgroups(kernel, grid, group, 1, args, observer)
}

/// As [`run`], on a device whose subgroups have this many work-items; the last of a group may have fewer.
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

/// What is the same for all groups.
struct Launch<'k> {
    kernel: &'k Kernel,
    plan: &'k Plan<'k>,
    /// The bits of scalar parameters by position; 0 for buffers.
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

/// Arguments as the parameters ask for them: the scalars' bits, and every memory.
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
            return Err(format!("{} has {} bytes, no whole number of {}", memory.name, store.bytes(), memory.dtype));
        }
    }
    let cells = |memory: &Memory| match memory.space {
        Space::Buffer(_) => 0,
        Space::Shared(len) => len as usize,
        Space::Private(len) => len as usize * items,
    };
    let total: usize = kernel.mems.iter().map(cells).sum();
    if total > MAX_CELLS {
        return Err(format!("its arrays have {total} elements in a group; at most {MAX_CELLS} can be interpreted"));
    }
    stores.extend(kernel.mems[stores.len()..].iter().map(|memory| Store::Array(vec![0; cells(memory)])));
    Ok((scalars, stores))
}

/// Elements of shared and private arrays of a group; 1 GiB at 8 bytes each.
const MAX_CELLS: usize = 1 << 27;
