//! Kernels as tasks: the signature of the kernel determines the type of access to each region.

use panoply_ir::kernel::{Access as KernelAccess, Kernel};
use panoply_runtime::{Grid, Launch, LaunchArg, ParameterKind, Storage};
use panoply_tensor::{Device, Error, Result, Tensor};

use crate::arguments::{Access, Mode, for_tuples};
use crate::data::{Data, Future, View};
use crate::graph::Work;

/// An argument of a kernel: a number, or a region.
#[derive(Clone, Debug)]
pub enum KernelArgument {
    /// A number.
    Number(LaunchArg<'static>),
    /// A region, which is passed as a buffer.
    Region(View),
}

/// A type that can be an argument of a kernel.
pub trait IntoKernelArgument {
    /// Converts to an argument.
    fn into_argument(self) -> KernelArgument;
}

macro_rules! argument {
    ($kind:ident: $($ty:ty)*) => {$(
        impl IntoKernelArgument for $ty {
            fn into_argument(self) -> KernelArgument {
                KernelArgument::$kind(self.into())
            }
        }
    )*};
}

argument!(Number: bool i8 i16 i32 i64 u8 u16 u32 u64 usize f32 f64);
argument!(Region: &Data &View View &Future);

/// The arguments of a kernel, in the order of its parameters: one, or a tuple of up to eight.
pub trait KernelArguments {
    /// Returns the arguments in order.
    fn list(self) -> Vec<KernelArgument>;
}

impl<A: IntoKernelArgument> KernelArguments for A {
    fn list(self) -> Vec<KernelArgument> {
        vec![self.into_argument()]
    }
}

macro_rules! arguments {
    ($($name:ident)+) => {
        impl<$($name: IntoKernelArgument),+> KernelArguments for ($($name,)+) {
            #[allow(non_snake_case)]
            fn list(self) -> Vec<KernelArgument> {
                let ($($name,)+) = self;
                vec![$($name.into_argument()),+]
            }
        }
    };
}

for_tuples!(arguments);

/// A task that launches a kernel.
pub struct KernelTask {
    /// Name of the kernel.
    pub name: String,
    /// The regions among the arguments.
    pub accesses: Vec<Access>,
    /// Closure over the values of the regions.
    pub work: Work,
}

/// Creates the task. The kernel is compiled for `device`, which checks its signature; other devices compile it when they run it.
pub fn new(
    device: &Device,
    build: fn() -> Result<Kernel>,
    arguments: Vec<KernelArgument>,
    grid: Grid,
) -> Result<KernelTask> {
    let kernel = device.compile_fn(build)?;
    let (name, params) = (kernel.name().to_string(), kernel.params());
    if params.len() != arguments.len() {
        let (wanted, given) = (params.len(), arguments.len());
        return Err(Error::mistake(format!("task {name}: the kernel has {wanted} parameters, not {given}")));
    }
    let mut accesses = Vec::new();
    for (param, argument) in params.iter().zip(&arguments) {
        match (param.kind, argument) {
            (ParameterKind::Buffer { access, .. }, KernelArgument::Region(view)) => {
                // An element that a kernel does not write keeps its value.
                let mode = if access == KernelAccess::In { Mode::In } else { Mode::InOut };
                accesses.push(Access { view: view.clone(), mode });
            }
            (ParameterKind::Scalar(_) | ParameterKind::Index, KernelArgument::Number(_)) => {}
            (ParameterKind::Buffer { .. }, KernelArgument::Number(_)) => {
                let message = format!("task {name}: parameter {} is a buffer; pass data or a view", param.name);
                return Err(Error::mistake(message));
            }
            (ParameterKind::Scalar(_) | ParameterKind::Index, KernelArgument::Region(_)) => {
                return Err(Error::mistake(format!("task {name}: parameter {} is a number", param.name)));
            }
        }
    }
    let modes: Vec<Mode> = accesses.iter().map(|access| access.mode).collect();
    let work = move |tensors: &mut [Tensor]| run(build, &arguments, &modes, tensors, grid);
    Ok(KernelTask { name, accesses, work: Box::new(work) })
}

/// Launches the kernel on the device of the task.
fn run(
    build: fn() -> Result<Kernel>,
    arguments: &[KernelArgument],
    modes: &[Mode],
    tensors: &mut [Tensor],
    grid: Grid,
) -> Result<()> {
    let device = Device::current()?;
    let storages = tensors.iter().zip(modes).map(|(tensor, mode)| buffer(&device, tensor, *mode));
    let storages = storages.collect::<Result<Vec<Storage>>>()?;
    let mut buffers = storages.iter().zip(tensors.iter()).zip(modes);
    let args = arguments.iter().map(|argument| match argument {
        KernelArgument::Number(number) => *number,
        KernelArgument::Region(_) => {
            let ((storage, tensor), mode) = buffers.next().expect("there is a buffer for each region");
            match mode {
                Mode::In => LaunchArg::read(storage, tensor.dtype()),
                Mode::InOut | Mode::Out => LaunchArg::write(storage, tensor.dtype()),
            }
        }
    });
    Launch::new(build, args.collect()).launch(grid)?;
    for ((tensor, storage), mode) in tensors.iter_mut().zip(storages).zip(modes) {
        if *mode != Mode::In {
            *tensor = Tensor::from_storage(storage, tensor.shape()?.clone(), tensor.dtype());
        }
    }
    Ok(())
}

/// Returns the memory of a tensor, or a copy if the kernel writes it: the values of data never change.
fn buffer(device: &Device, tensor: &Tensor, mode: Mode) -> Result<Storage> {
    let values = tensor.to(device).storage()?;
    if mode == Mode::In {
        return Ok(values);
    }
    let copy = device.allocate(values.bytes())?;
    copy.copy_from(&values)?;
    Ok(copy)
}
