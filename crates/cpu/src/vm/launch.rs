//! Divides a grid into blocks, and the blocks among threads.
//!
//! Blocks are independent, so any division gives the same result. A launch starts on the calling thread; the pool joins
//! only if the duration of the first block predicts that the rest takes long.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::kernel::Kernel;
use panoply_ir::{Result, Scalar, Verified};
use panoply_routines::RunChunk;
use web_time::Instant;

use super::compile::compile;
use super::exec::{Buffer, Launch, Runner, Scratch};
use super::lane::{Lane, Round};
use super::ops::Ops;
use super::program::{Program, TileShape};

/// Length in work-items below which a row shares a block with others.
const SHORT_ROW: u64 = 96;
/// Duration in nanoseconds below which waking another thread does not pay off.
const ALONE_NS: u64 = 15_000;
/// Parts of a launch per thread: more parts balance the load better, fewer cost less.
const PARTS_PER_THREAD: usize = 8;
/// Number of lanes of a block below which splitting into more blocks is not faster.
const FAIR_LANES: u64 = 1024;

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// A kernel compiled for each launch shape it is used with.
#[derive(Debug)]
pub struct Compiled {
    kernel: Arc<Verified<Kernel>>,
    isa: Isa,
    /// Program for groups or long rows.
    main: Program,
    /// Programs for grids of short rows and of small planes, compiled on first use.
    plane: OnceLock<Result<Program>>,
    planes: OnceLock<Result<Program>>,
}

impl Compiled {
    /// Compiles a kernel for an instruction set of this machine.
    ///
    /// # Errors
    /// If the kernel cannot be compiled for the vector machine.
    pub fn new(kernel: Arc<Verified<Kernel>>, isa: Isa) -> Result<Compiled> {
        let cover = kernel.group_size.map_or(TileShape::Row, TileShape::Group);
        let main = compile(&kernel, cover, Ops::of(isa))?;
        Ok(Compiled { kernel, isa, main, plane: OnceLock::new(), planes: OnceLock::new() })
    }

    /// Returns the program for long rows or for groups.
    pub fn program(&self) -> &Program {
        &self.main
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &Verified<Kernel> {
        &self.kernel
    }

    /// Runs the kernel over a grid. `buffers` is indexed by memory and `scalars` by parameter; 16-bit floats are given as f32 bits.
    ///
    /// # Safety
    /// As [`Runner::new`], which every thread of the pool calls.
    ///
    /// # Errors
    /// If the program for this grid's shape cannot be compiled.
    pub unsafe fn launch(&self, pool: &Pool, grid: [u64; 3], buffers: &[Buffer], scalars: &[u64]) -> Result<()> {
        let program = self.program_for(grid)?;
        let blocks = Blocks::new(program, grid, pool.threads());
        let launch = Launch { grid, groups: blocks.groups, buffers, scalars, alone: true };
        let done = SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the caller's promise.
            let mut runner = unsafe { Runner::new(program, &launch, scratch) };
            // SAFETY: as above; the blocks partition the grid.
            unsafe { blocks.start(&mut runner, pool.threads()) }
        });
        let left = blocks.count - done;
        if left > 0 {
            let shared = Shared { program, launch: Launch { alone: false, ..launch }, blocks };
            let parts = (left as usize).min(pool.threads() * PARTS_PER_THREAD);
            pool.run(parts, &|part| {
                let bound = |part: usize| done + (left as u128 * part as u128 / parts as u128) as u64;
                // SAFETY: the caller's promise, and the parts are disjoint.
                unsafe { shared.run(bound(part), bound(part + 1)) };
            });
        }
        Ok(())
    }

    /// Returns the launch in a form that runs chunk by chunk, or `None` if it is better run at once. The contents of
    /// memory `mem` are supplied per chunk too: work-item *i* accesses only element *i* of that memory.
    pub fn chunks<'a>(&'a self, grid: [u64; 3], mem: usize, args: Args<'a>) -> Option<Chunks<'a>> {
        let Args { buffers, scalars } = args;
        let launch = Launch { grid, groups: grid, buffers, scalars, alone: false };
        let whole = self.kernel.group_size.is_none() && grid[0] >= SHORT_ROW;
        whole.then(|| Chunks { program: &self.main, launch, mem, bytes: self.kernel.mems[mem].dtype.bytes() })
    }

    fn program_for(&self, grid: [u64; 3]) -> Result<&Program> {
        let rows = grid[1] * grid[2];
        if self.kernel.group_size.is_some() || rows == 1 || grid[0] >= SHORT_ROW {
            return Ok(&self.main);
        }
        // Values uniform over a plane need no lanes, so several planes share a block only if one plane does not fill it.
        let (known, cover) = if grid[0] * grid[1] >= SHORT_ROW {
            (&self.plane, TileShape::Tile2d)
        } else {
            (&self.planes, TileShape::Tile3d)
        };
        known.get_or_init(|| compile(&self.kernel, cover, Ops::of(self.isa))).as_ref().map_err(Clone::clone)
    }
}

/// Arguments of a launch; 16-bit floats are given as f32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    /// Buffers, indexed by memory.
    pub buffers: &'a [Buffer],
    /// Scalars, indexed by parameter.
    pub scalars: &'a [u64],
}

/// A launch that runs chunk by chunk, each chunk on newly produced elements of one of its buffers.
pub struct Chunks<'a> {
    program: &'a Program,
    launch: Launch<'a>,
    mem: usize,
    bytes: usize,
}

// SAFETY: as for `Shared`: the code that runs the chunks is responsible for aliasing of the buffers.
unsafe impl Sync for Chunks<'_> {}

impl panoply_routines::Chunks for Chunks<'_> {
    unsafe fn here(&self, f: &mut dyn FnMut(&mut RunChunk<'_>)) {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the caller's promise.
            let mut runner = unsafe { Runner::new(self.program, &self.launch, scratch) };
            let ([x, y, z], most) = (self.launch.grid, self.program.lanes as u64);
            let rows = y * z;
            f(&mut |first, count, elements| {
                // SAFETY: the caller's promise.
                unsafe { runner.place(self.mem, elements.wrapping_sub(first as usize * self.bytes)) };
                let (mut at, end) = (first, first + count as u64);
                while at < end {
                    // Most grids have one or two axes, and a chunk is usually one block.
                    let (row, column) = if rows == 1 { (0, at) } else { (at / x, at % x) };
                    let (y, z) = if row < y { (row, 0) } else { (row % y, row / y) };
                    let left = (end - at).min(x - column);
                    let lanes = if left <= most { left } else { row_length(left, most).min(left) };
                    // SAFETY: the caller's promise; the block is inside a row.
                    unsafe { runner.block([column, y, z], [0; 3], [lanes as usize, 1, 1]) };
                    at += lanes;
                }
            });
        });
    }
}

/// State shared by the threads of a launch.
struct Shared<'a> {
    program: &'a Program,
    launch: Launch<'a>,
    blocks: Blocks,
}

// SAFETY: several threads use the buffers' addresses as the kernel's blocks would on a parallel device; the caller of
// the launch is responsible for aliasing.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// # Safety
    /// As [`Runner::new`].
    unsafe fn run(&self, first: u64, end: u64) {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the caller's promise.
            let mut runner = unsafe { Runner::new(self.program, &self.launch, scratch) };
            // SAFETY: as above.
            (first..end).for_each(|block| unsafe { self.blocks.run(&mut runner, block) });
        });
    }
}

/// The division of a grid into blocks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    grid: [u64; 3],
    groups: [u64; 3],
    /// Work-items of a full block along each axis.
    shape: [u64; 3],
    /// Blocks along each axis.
    counts: [u64; 3],
    count: u64,
    is_group: bool,
}

impl Blocks {
    fn new(program: &Program, grid: [u64; 3], threads: usize) -> Blocks {
        // Long blocks are only used for large grids, so that every thread gets some blocks.
        let fair =
            grid.iter().fold(1, |all: u64, side| all.saturating_mul(*side)) / (threads * PARTS_PER_THREAD) as u64;
        let lanes = (program.lanes as u64).min(fair.max(FAIR_LANES));
        let shape = match program.cover {
            TileShape::Group(group) => group.map(u64::from),
            TileShape::Row => [row_length(grid[0], lanes), 1, 1],
            TileShape::Tile2d | TileShape::Tile3d => {
                let x = grid[0].min(lanes);
                let y = if x == grid[0] { grid[1].min(lanes / x) } else { 1 };
                let several = program.cover == TileShape::Tile3d && y == grid[1];
                let z = if several { grid[2].min(lanes / (x * y)) } else { 1 };
                [x, y, z]
            }
        };
        let counts: [u64; 3] = std::array::from_fn(|d| grid[d].div_ceil(shape[d]));
        let is_group = matches!(program.cover, TileShape::Group(_));
        let groups = if is_group { counts } else { grid };
        Blocks { grid, groups, shape, counts, count: counts.iter().product(), is_group }
    }

    /// Runs blocks on the calling thread: all of them if that is quick, else the first. Returns the number of blocks run.
    ///
    /// # Safety
    /// As [`Runner::block`].
    unsafe fn start(&self, runner: &mut Runner<'_>, threads: usize) -> u64 {
        let mut done = 0;
        if threads > 1 && self.count > 1 {
            let start = Instant::now();
            // SAFETY: the caller's promise.
            unsafe { self.run(runner, 0) };
            done = 1;
            let block_ns = start.elapsed().as_nanos() as u64;
            if block_ns.saturating_mul(self.count - 1) > ALONE_NS {
                return done;
            }
        }
        // SAFETY: the caller's promise.
        (done..self.count).for_each(|block| unsafe { self.run(runner, block) });
        self.count
    }

    /// # Safety
    /// As [`Runner::block`].
    unsafe fn run(&self, runner: &mut Runner<'_>, block: u64) {
        // A division takes as long as a short block; most grids need none.
        let apart = |at: u64, count: u64| if at < count { (0, at) } else { (at / count, at % count) };
        let (row, x) = apart(block, self.counts[0]);
        let (z, y) = apart(row, self.counts[1]);
        let position = [x, y, z];
        let origin: [u64; 3] = std::array::from_fn(|d| position[d] * self.shape[d]);
        let shape: [usize; 3] = std::array::from_fn(|d| {
            let whole = self.shape[d];
            // A group is always complete, even beyond the grid.
            (if self.is_group { whole } else { whole.min(self.grid[d] - origin[d]) }) as usize
        });
        let group = if self.is_group { position } else { [0; 3] };
        // SAFETY: the block is inside the grid.
        unsafe { runner.block(origin, group, shape) };
    }
}

/// Returns the number of lanes of a row's blocks: as few blocks as possible, all but the last of equal length.
fn row_length(row: u64, lanes: u64) -> u64 {
    let blocks = row.div_ceil(lanes);
    row.div_ceil(blocks).next_multiple_of(32).min(lanes)
}

/// Converts a scalar argument to the bits of a slot.
pub fn scalar_bits(value: Scalar) -> u64 {
    match Lane::of_dtype(value.dtype).1 {
        Round::None => value.bits,
        Round::F16 | Round::BF16 => u64::from((value.to_f64() as f32).to_bits()),
    }
}
