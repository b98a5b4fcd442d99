//! Kernels compiled for a device.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use panoply_compile::opt::{access_footprint, index_width};
use panoply_device::{Arg, Program, ProgramId, RawDevice};
use panoply_ir::flops;
use panoply_ir::kernel::{Access, Expr, Guard, Kernel, Op, Param, Space};
use panoply_ir::strides::{self, Strides};
use panoply_ir::{DType, Result, Type, Verified};

use super::compiler::Compiler;
use super::external_kernel::{self, ExternalKernel};
use super::program_form::{self, Form};

/// A kernel compiled for a device. Dropping the last reference releases its programs.
pub struct CompiledKernel {
    compiler: Arc<Compiler>,
    name: Arc<str>,
    params: Vec<Parameter>,
    /// Strides at which work-items access each buffer parameter, if known.
    strides: Vec<Option<Strides>>,
    /// Floating-point operations of a work-item, if known.
    flops: Option<u64>,
    group_size: Option<[u32; 3]>,
    /// Bytes of a work-item's private arrays.
    private_bytes: u64,
    /// Reason why launching the kernel is unsafe, if it is.
    unchecked: Option<&'static str>,
    programs: Programs,
}

/// Programs of the kernel on the device.
enum Programs {
    /// One program for every launch.
    One(ProgramId),
    /// Source text rendered with 32-bit or 64-bit indices, as a launch needs.
    ByWidth(Box<Verified<Kernel>>, Mutex<Widths>),
}

#[derive(Default)]
struct Widths {
    narrow: Option<ProgramId>,
    wide: Option<ProgramId>,
    /// Index widths of recent launches, the latest last.
    decided: Vec<(index_width::Launch, u32)>,
}

/// Number of launches whose index width is cached. A kernel is usually launched with few different sizes.
const MAX_DECIDED: usize = 16;

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter in the kernel.
    pub name: String,
    /// Type of the argument.
    pub kind: ParameterKind,
}

/// Type of a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A scalar.
    Scalar(DType),
    /// An index value: a length or position.
    Index,
    /// A device buffer.
    Buffer {
        /// Element type.
        dtype: DType,
        /// Access of the kernel to the buffer.
        access: Access,
    },
}

impl Parameter {
    /// Returns the kernel's access to the buffer; `None` for scalars and indices.
    pub fn access(&self) -> Option<Access> {
        match self.kind {
            ParameterKind::Buffer { access, .. } => Some(access),
            ParameterKind::Scalar(_) | ParameterKind::Index => None,
        }
    }
}

impl CompiledKernel {
    pub(super) fn new(compiler: Arc<Compiler>, kernel: &Arc<Verified<Kernel>>) -> Result<CompiledKernel> {
        let params = kernel.params.iter().map(|param| parameter(kernel, param)).collect();
        let strides = kernel.params.iter().map(|param| match param {
            Param::Buffer(mem) => strides::strides(kernel, *mem),
            Param::Scalar { .. } => None,
        });
        let (name, strides, group) = (kernel.name.as_str().into(), strides.collect(), kernel.group_size);
        let flops = flops::per_item(kernel);
        let unchecked = is_unchecked(kernel).then_some("its author marked it unchecked");
        let target = compiler.raw.target();
        let programs = match program_form::form(kernel, target, compiler.raw.info()) {
            Form::Ir(kernel) => Programs::One(compiler.compile(Program::Ir(kernel))?),
            Form::Text(kernel) => {
                let mut widths = Widths::default();
                widths.program(&compiler, &kernel, program_form::likely_bits(&kernel, target))?;
                Programs::ByWidth(kernel, Mutex::new(widths))
            }
        };
        let private_bytes = kernel.private_bytes();
        Ok(CompiledKernel {
            compiler,
            name,
            params,
            strides,
            flops,
            group_size: group,
            private_bytes,
            unchecked,
            programs,
        })
    }

    /// Creates a kernel from a user-supplied external kernel.
    pub(super) fn external(compiler: Arc<Compiler>, external: &ExternalKernel) -> Result<CompiledKernel> {
        let ExternalKernel { name, group, params, .. } = external;
        let programs = Programs::One(external.program(&compiler)?);
        let (name, strides, group) = (name.as_str().into(), vec![None; params.len()], Some(*group));
        let unchecked = Some(external_kernel::UNCHECKED);
        Ok(CompiledKernel {
            compiler,
            name,
            params: params.clone(),
            strides,
            flops: None,
            group_size: group,
            private_bytes: 0,
            unchecked,
            programs,
        })
    }

    /// Returns the kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the parameters in the order in which a launch passes them.
    pub fn params(&self) -> &[Parameter] {
        &self.params
    }

    /// Returns the kernel's fixed work-group size, if it has one.
    pub fn group_size(&self) -> Option<[u32; 3]> {
        self.group_size
    }

    /// Returns the bytes of a work-item's private arrays.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.private_bytes
    }

    /// Returns true if launching is unsafe because bounds or uniformity are unverified.
    pub fn is_unchecked(&self) -> bool {
        self.unchecked.is_some()
    }

    /// Returns true if each work-item of a grid accesses exactly the element of the parameter's buffer at its own linear index.
    pub(crate) fn is_elementwise_on(&self, param: usize, grid: [u64; 3]) -> bool {
        self.strides[param].is_some_and(|of| strides::is_linear(of, grid))
    }

    pub(crate) fn flops(&self) -> Option<u64> {
        self.flops
    }

    pub(crate) fn unchecked(&self) -> Option<&'static str> {
        self.unchecked
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the program for a launch with validated arguments. The first launch of an index width compiles it.
    pub(crate) fn program(&self, grid: [u64; 3], args: &[Arg]) -> Result<ProgramId> {
        match &self.programs {
            Programs::One(program) => Ok(*program),
            Programs::ByWidth(kernel, widths) => {
                let mut widths = widths.lock().unwrap_or_else(PoisonError::into_inner);
                let bits =
                    if self.compiler.raw.target().int64 { self.bits(kernel, &mut widths, grid, args) } else { 32 };
                widths.program(&self.compiler, kernel, bits)
            }
        }
    }

    /// Returns, for each argument, the byte range of its buffer that the given work-items of a launch access.
    pub(crate) fn reach(&self, grid: [u64; 3], args: &[Arg], items: &[Range<u64>; 3]) -> Vec<Range<u64>> {
        let all = |arg: &Arg| 0..arg.region().map_or(0, |region| region.bytes);
        let Programs::ByWidth(kernel, _) = &self.programs else { return args.iter().map(all).collect() };
        let launch = index_width::Launch {
            grid,
            args: self.params.iter().zip(args).map(|(param, arg)| size(param, arg)).collect(),
        };
        let touched = access_footprint::access_footprint(kernel, &launch, items).into_iter();
        let bytes = |(param, Range { start, end }): (&Parameter, Range<u64>)| match param.kind {
            ParameterKind::Buffer { dtype, .. } => start * dtype.bytes() as u64..end * dtype.bytes() as u64,
            ParameterKind::Scalar(_) | ParameterKind::Index => 0..0,
        };
        self.params.iter().zip(touched).map(bytes).collect()
    }

    fn bits(&self, kernel: &Verified<Kernel>, widths: &mut Widths, grid: [u64; 3], args: &[Arg]) -> u32 {
        let sizes = || self.params.iter().zip(args).map(|(param, arg)| size(param, arg));
        let known =
            |(launch, _): &&(index_width::Launch, u32)| launch.grid == grid && launch.args.iter().copied().eq(sizes());
        if let Some((_, bits)) = widths.decided.iter().rev().find(known) {
            return *bits;
        }
        let launch = index_width::Launch { grid, args: sizes().collect() };
        let bits = if fits_narrow(&self.params, args) { index_width::index_bits(kernel, &launch) } else { 64 };
        if widths.decided.len() == MAX_DECIDED {
            widths.decided.remove(0);
        }
        widths.decided.push((launch, bits));
        bits
    }

    /// Returns the exclusive upper bound of lengths, sizes and index arguments of a launch.
    pub(crate) fn index_limit(&self) -> u64 {
        match &self.programs {
            Programs::ByWidth(..) if !self.compiler.raw.target().int64 => NARROW,
            Programs::One(_) | Programs::ByWidth(..) => u64::MAX,
        }
    }

    pub(crate) fn is_for(&self, raw: &Arc<dyn RawDevice>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.compiler.raw), Arc::as_ptr(raw))
    }
}

/// Exclusive upper bound of 32-bit indices.
const NARROW: u64 = 1 << 31;

/// Returns an argument's size for `index_width`: elements of a buffer, the value of an index, 0 for a scalar.
fn size(param: &Parameter, arg: &Arg) -> u64 {
    match (param.kind, arg) {
        (ParameterKind::Buffer { dtype, .. }, Arg::Buffer(region)) => region.bytes / dtype.bytes() as u64,
        (_, Arg::Index(value)) => *value,
        (_, Arg::Scalar(_) | Arg::Buffer(_)) => 0,
    }
}

/// Returns true if every buffer, including its offset, ends within the range of 32-bit indices.
fn fits_narrow(params: &[Parameter], args: &[Arg]) -> bool {
    params.iter().zip(args).all(|(param, arg)| match (param.kind, arg) {
        (ParameterKind::Buffer { dtype, .. }, Arg::Buffer(region)) => {
            (region.offset + region.bytes) / (dtype.bytes() as u64) < NARROW
        }
        (_, Arg::Scalar(_) | Arg::Index(_) | Arg::Buffer(_)) => true,
    })
}

impl Widths {
    /// Returns the program for an index width, compiling it if needed.
    fn program(&mut self, compiler: &Compiler, kernel: &Verified<Kernel>, bits: u32) -> Result<ProgramId> {
        let program = if bits == 32 { &mut self.narrow } else { &mut self.wide };
        match program {
            Some(program) => Ok(*program),
            None => Ok(*program.insert(compiler.compile(program_form::text(kernel, compiler.raw.target(), bits)?)?)),
        }
    }
}

fn parameter(kernel: &Kernel, param: &Param) -> Parameter {
    match param {
        Param::Scalar { name, ty } => {
            let kind = ty.dtype().map_or(ParameterKind::Index, ParameterKind::Scalar);
            Parameter { name: name.clone(), kind }
        }
        Param::Buffer(mem) => {
            let mem = kernel.mem(*mem);
            let access = match mem.space {
                Space::Buffer(access) => access,
                Space::Shared(_) | Space::Private(_) => unreachable!("verified buffer parameters are buffers"),
            };
            Parameter { name: mem.name.clone(), kind: ParameterKind::Buffer { dtype: mem.dtype, access } }
        }
    }
}

fn is_unchecked(kernel: &Kernel) -> bool {
    let loads = || kernel.exprs.iter().any(|(_, expr, _)| matches!(expr, Expr::Load { guard: Guard::Unchecked, .. }));
    let mut stores = false;
    kernel.walk(&mut |stmt| {
        let (Op::Store { guard, .. } | Op::Atomic { guard, .. }) = &stmt.op else { return };
        stores |= *guard == Guard::Unchecked;
    });
    kernel.unchecked || stores || loads()
}

impl Drop for CompiledKernel {
    fn drop(&mut self) {
        let raw = &self.compiler.raw;
        match &mut self.programs {
            Programs::One(program) => raw.release(*program),
            Programs::ByWidth(_, widths) => {
                let Widths { narrow, wide, .. } = widths.get_mut().unwrap_or_else(PoisonError::into_inner);
                narrow.take().into_iter().chain(wide.take()).for_each(|program| raw.release(program));
            }
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ParameterKind::Scalar(dtype) => write!(f, "{}: {dtype}", self.name),
            ParameterKind::Index => write!(f, "{}: {}", self.name, Type::Index),
            ParameterKind::Buffer { dtype, access: Access::In } => write!(f, "{}: &[{dtype}]", self.name),
            ParameterKind::Buffer { dtype, access: Access::Out | Access::InOut } => {
                write!(f, "{}: &mut [{dtype}]", self.name)
            }
        }
    }
}

impl fmt::Debug for CompiledKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<String> = self.params.iter().map(ToString::to_string).collect();
        write!(f, "kernel {}({}) on {}", self.name, params.join(", "), self.compiler.raw.info().device_string())
    }
}
