//! Kernels that were written elsewhere: source in the devices' own languages and compiled code, each for the devices that take it.
//!
//! Of a package's programs a device is given the first it takes. Compiled code (PTX, too) that it refuses is made for another device, and
//! makes room for the next, as does source whose compiler is missing; what a compiler refuses is the author's mistake, and is shown with
//! its line.

use std::fmt;
use std::sync::{Arc, OnceLock};

use panoply_device::{
    BinaryFormat, HostCall, HostFunction, Image, ParamType, Program, ProgramForm, ProgramId, Signature, SourceText,
};
use panoply_ir::kernel::Access;
use panoply_ir::target::Language;
use panoply_ir::{Element, Error, ErrorKind, Result};
use xxhash_rust::xxh3::Xxh3;

use super::build_log;
use super::compiled_kernel::{Parameter, ParameterKind};
use super::compiler::Compiler;

/// A kernel as programs for the devices it is to run on: its name is that of their entry point, its group and its parameters are the
/// same in all. Its arguments are a pointer for each buffer and the numbers, in order; a launch is rounded up to whole groups, so
/// that a kernel needs a number that says how far to go.
///
/// In WGSL the buffers are the bindings of group 0 from 1 on, and the numbers are words of 32 bits in a uniform buffer at binding 0,
/// if there are any. In MSL buffers and numbers have the same places.
///
/// Nobody can check what such a program does, so launching it is `unsafe`: [`crate::Launch::launch_unchecked`]. Packages are launched one by
/// one; they are no part of lists of work, and are not recorded.
///
/// ```
/// use panoply_runtime::{Device, Launch, ExternalKernel, Result};
///
/// let double = ExternalKernel::new("twice", [64, 1, 1])
///     .scalar::<u32>("n")
///     .input::<f32>("x")
///     .output::<f32>("y")
///     .opencl_c(
///         "kernel void twice(uint n, global const float *x, global float *y) {
///             uint i = get_global_id(0);
///             if (i < n) y[i] = 2 * x[i];
///         }",
///     )
///     .cuda_c(
///         "extern \"C\" __global__ void twice(unsigned n, const float *x, float *y) {
///             unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///             if (i < n) y[i] = 2 * x[i];
///         }",
///     )
///     .cpu_fn(|call| {
///         let (x, y) = (call.read::<f32>(1)?, call.write::<f32>(2)?);
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
///         Ok(())
///     });
///
/// let device = Device::get("cpu")?;
/// let x = device.buffer(&[1.0f32, 2.0, 3.0])?;
/// let mut y = device.zeros::<f32>(3)?;
/// // SAFETY: every program writes the first three elements of y and reads as many of x.
/// unsafe { Launch::external(&double, vec![3u32.into(), (&x).into(), (&mut y).into()]).launch_unchecked(3)? };
/// assert_eq!(y.to_vec()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), panoply_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct ExternalKernel {
    pub(crate) name: String,
    pub(super) group: [u32; 3],
    pub(super) params: Vec<Parameter>,
    entries: Vec<Entry>,
    /// A hash of all of it.
    key: OnceLock<u128>,
}

/// Why launching one must be promised to be harmless.
pub(crate) const UNCHECKED: &str = "nobody can check what it does";

/// One of a package's programs.
#[derive(Clone)]
enum Entry {
    Text(Language, Arc<str>),
    Image(BinaryFormat, Arc<[u8]>),
    Host(Arc<panoply_device::host::Body>),
}

/// What becomes of an entry on a device.
enum EntryAttempt {
    Taken(ProgramId),
    /// It is for another device, or a compiler is missing.
    Passed(Error),
}

impl ExternalKernel {
    /// A kernel without parameters and programs: the name of the entry points, and the work-items of a group along each axis.
    pub fn new(entry: &str, group: [u32; 3]) -> ExternalKernel {
        ExternalKernel { name: entry.to_string(), group, params: Vec::new(), entries: Vec::new(), key: OnceLock::new() }
    }

    /// A buffer to read, as the next parameter.
    pub fn input<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::In })
    }

    /// A buffer to write whatever it held before.
    pub fn output<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::Out })
    }

    /// A buffer to read and write.
    pub fn inout<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::InOut })
    }

    /// A number.
    pub fn scalar<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Scalar(T::DTYPE))
    }

    /// CUDA C++, compiled by NVRTC, which comes with the CUDA toolkit. The entry point is `extern "C" __global__`.
    pub fn cuda_c(self, source: &str) -> ExternalKernel {
        self.text(Language::CudaC, source)
    }

    /// HIP C++, compiled by hiprtc. The entry point is `extern "C" __global__`.
    pub fn hip_cpp(self, source: &str) -> ExternalKernel {
        self.text(Language::Hip, source)
    }

    /// OpenCL C.
    pub fn opencl_c(self, source: &str) -> ExternalKernel {
        self.text(Language::OpenClC, source)
    }

    /// WGSL, for Vulkan, Metal and DirectX 12.
    pub fn wgsl(self, source: &str) -> ExternalKernel {
        self.text(Language::Wgsl, source)
    }

    /// Metal's shading language, which is not checked before Metal's compiler sees it.
    pub fn msl(self, source: &str) -> ExternalKernel {
        self.text(Language::Msl, source)
    }

    /// PTX, compiled by the driver.
    pub fn ptx(self, source: &str) -> ExternalKernel {
        self.text(Language::Ptx { capability: 0 }, source)
    }

    /// Machine code for one architecture of NVIDIA's, or a fat binary for several.
    pub fn cubin(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::Cubin, bytes)
    }

    /// Machine code for one architecture of AMD's.
    pub fn code_object(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::CodeObject, bytes)
    }

    /// SPIR-V: of the Shader flavour for Vulkan, with the bindings of WGSL; of the Kernel flavour for OpenCL
    /// and oneAPI.
    pub fn spir_v(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::SpirV, bytes)
    }

    /// A Metal library.
    pub fn metallib(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::MetalLibrary, bytes)
    }

    /// A function for the CPU, called once for a launch while its queue waits; it must not use that queue itself.
    pub fn cpu_fn(self, body: impl Fn(&mut HostCall<'_>) -> Result<()> + Send + Sync + 'static) -> ExternalKernel {
        self.entry(Entry::Host(Arc::new(body)))
    }

    fn text(self, language: Language, source: &str) -> ExternalKernel {
        self.entry(Entry::Text(language, source.into()))
    }

    fn image(self, format: BinaryFormat, bytes: &[u8]) -> ExternalKernel {
        self.entry(Entry::Image(format, bytes.into()))
    }

    fn entry(mut self, entry: Entry) -> ExternalKernel {
        self.entries.push(entry);
        ExternalKernel { key: OnceLock::new(), ..self }
    }

    fn param(mut self, name: &str, kind: ParameterKind) -> ExternalKernel {
        self.params.push(Parameter { name: name.to_string(), kind });
        ExternalKernel { key: OnceLock::new(), ..self }
    }

    /// Equal packages have equal keys while the functions among their programs live.
    pub(super) fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let mut hasher = Xxh3::new();
            let mut add = |bytes: &[u8]| {
                hasher.update(&(bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            };
            add(format!("package {} {:?} {:?}", self.name, self.group, self.params).as_bytes());
            for entry in &self.entries {
                add(entry.form().name().as_bytes());
                match entry {
                    Entry::Text(_, source) => add(source.as_bytes()),
                    Entry::Image(_, bytes) => add(bytes),
                    Entry::Host(body) => add(&(Arc::as_ptr(body).addr() as u64).to_le_bytes()),
                }
            }
            hasher.digest128()
        })
    }

    /// The program of the first entry that the device takes.
    pub(super) fn program(&self, compiler: &Compiler) -> Result<ProgramId> {
        let takes = compiler.raw.accepted_forms();
        let mut passed = Vec::new();
        for entry in &self.entries {
            if takes.iter().any(|form| form.is_like(entry.form())) {
                match self.try_entry(entry, compiler)? {
                    EntryAttempt::Taken(program) => return Ok(program),
                    EntryAttempt::Passed(why) => passed.push(why),
                }
            }
        }
        Err(self.no_program(&compiler.raw.info().device_string(), &takes, passed))
    }

    /// Texts that no compiler can be given: an empty one is where some look for the end of a text that has none.
    pub(super) fn check_texts(&self) -> Result<()> {
        for entry in &self.entries {
            let Entry::Text(language, source) = entry else { continue };
            let what = match source.trim().is_empty() {
                true => "is empty",
                false if source.contains('\0') => "holds a zero byte",
                false => continue,
            };
            let (name, language) = (&self.name, language.name());
            return Err(Error::mistake(format!("kernel {name}: its {language} {what}; give the source of the kernel")));
        }
        Ok(())
    }

    fn try_entry(&self, entry: &Entry, compiler: &Compiler) -> Result<EntryAttempt> {
        let (entry_point, signature) = (self.name.clone(), self.signature());
        let (text, program) = match entry {
            Entry::Text(language, source) => {
                let written = !matches!(language, Language::Ptx { .. });
                let text =
                    SourceText { language: *language, source: source.to_string(), entry: entry_point, signature };
                (written.then_some(source), Program::Text(text))
            }
            Entry::Image(format, bytes) => {
                let (format, bytes) = (*format, bytes.clone());
                (None, Program::Image(Image { format, bytes, entry: entry_point, signature }))
            }
            Entry::Host(body) => {
                let access = self.params.iter().map(Parameter::access).collect();
                (None, Program::Host(HostFunction { entry: entry_point, signature, access, body: body.clone() }))
            }
        };
        match (compiler.compile(program), text) {
            (Ok(program), _) => Ok(EntryAttempt::Taken(program)),
            (Err(error), Some(source)) if error.is_compile_failed() => Err(build_log::with_line(error, source)),
            (Err(error), _) if error.is_compile_failed() || error.is_unavailable() || error.is_unsupported() => {
                Ok(EntryAttempt::Passed(error))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn signature(&self) -> Signature {
        let params = self.params.iter().map(|param| match param.kind {
            ParameterKind::Buffer { dtype, .. } => ParamType::Buffer(dtype),
            ParameterKind::Scalar(dtype) => ParamType::Scalar(dtype.into()),
            ParameterKind::Index => ParamType::Scalar(panoply_ir::Type::Index),
        });
        Signature { params: params.collect(), index_bits: 64, hidden: false }
    }

    #[cold]
    fn no_program(&self, device: &str, takes: &[ProgramForm], passed: Vec<Error>) -> Error {
        let offered = ProgramForm::list(&self.entries.iter().map(Entry::form).collect::<Vec<_>>());
        let takes = ProgramForm::list(takes);
        // A missing compiler is what the caller can mend.
        let kind = passed.iter().map(Error::kind).find(|kind| *kind == ErrorKind::Unavailable);
        let error = Error::new(
            kind.unwrap_or(ErrorKind::Unsupported),
            format!(
                "kernel {}: none of its programs ({offered}) can be had on {device}, which takes {takes}; add one of those",
                self.name
            ),
        );
        passed.iter().fold(error, |error, why| error.note(why.to_string()))
    }
}

impl Entry {
    fn form(&self) -> ProgramForm {
        match self {
            Entry::Text(language, _) => ProgramForm::Text(*language),
            Entry::Image(format, _) => ProgramForm::Image(*format),
            Entry::Host(_) => ProgramForm::Host,
        }
    }
}

impl fmt::Debug for ExternalKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<String> = self.params.iter().map(ToString::to_string).collect();
        let forms: Vec<&str> = self.entries.iter().map(|entry| entry.form().name()).collect();
        write!(f, "package {}({}) as {}", self.name, params.join(", "), forms.join(", "))
    }
}
