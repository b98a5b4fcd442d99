//! User-supplied kernels: source in the devices' own languages, or compiled code.
//!
//! A device gets the first of the programs that it accepts. Compiled code (including PTX) that the device rejects is assumed
//! to be for another device, and the next program is tried. The same holds for source whose compiler is missing. Source that the
//! compiler rejects is an error of the author, reported with the source line.

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

/// A user-supplied kernel: one program per type of device, all with the same entry point, work-group size and parameters.
///
/// Its arguments are a pointer for each buffer and the scalars, in order. A launch is rounded up to whole work-groups, so a kernel
/// needs a scalar that bounds its work-items.
///
/// In WGSL the buffers are bindings of group 0, starting at 1. The scalars, if any, are 32-bit words of a uniform buffer at binding 0.
/// MSL uses the same buffer indices.
///
/// Such programs cannot be verified, so launching them is `unsafe`: [`crate::Launch::launch_unchecked`]. External kernels are launched
/// individually; they cannot be part of command lists and cannot be recorded.
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
    /// Cached hash of all other fields.
    key: OnceLock<u128>,
}

/// Reason why launching an external kernel is unsafe.
pub(crate) const UNCHECKED: &str = "its accesses cannot be verified";

/// One program of an external kernel.
#[derive(Clone)]
enum Entry {
    Text(Language, Arc<str>),
    Image(BinaryFormat, Arc<[u8]>),
    Host(Arc<panoply_device::host::Body>),
}

/// Result of trying one program on a device.
enum EntryAttempt {
    Taken(ProgramId),
    /// The program is for another device, or its compiler is missing.
    Passed(Error),
}

impl ExternalKernel {
    /// Creates a kernel without parameters and programs from its entry point's name and the work-group size along each axis.
    pub fn new(entry: &str, group: [u32; 3]) -> ExternalKernel {
        ExternalKernel { name: entry.to_string(), group, params: Vec::new(), entries: Vec::new(), key: OnceLock::new() }
    }

    /// Adds a read-only buffer parameter.
    pub fn input<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::In })
    }

    /// Adds a write-only buffer parameter, whose previous contents are ignored.
    pub fn output<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::Out })
    }

    /// Adds a read-write buffer parameter.
    pub fn inout<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Buffer { dtype: T::DTYPE, access: Access::InOut })
    }

    /// Adds a scalar parameter.
    pub fn scalar<T: Element>(self, name: &str) -> ExternalKernel {
        self.param(name, ParameterKind::Scalar(T::DTYPE))
    }

    /// Adds CUDA C++ source, compiled by NVRTC of the CUDA toolkit. The entry point is `extern "C" __global__`.
    pub fn cuda_c(self, source: &str) -> ExternalKernel {
        self.text(Language::CudaC, source)
    }

    /// Adds HIP C++ source, compiled by hiprtc. The entry point is `extern "C" __global__`.
    pub fn hip_cpp(self, source: &str) -> ExternalKernel {
        self.text(Language::Hip, source)
    }

    /// Adds OpenCL C source.
    pub fn opencl_c(self, source: &str) -> ExternalKernel {
        self.text(Language::OpenClC, source)
    }

    /// Adds WGSL source for Vulkan, Metal and DirectX 12.
    pub fn wgsl(self, source: &str) -> ExternalKernel {
        self.text(Language::Wgsl, source)
    }

    /// Adds Metal Shading Language source, which only Metal's compiler checks.
    pub fn msl(self, source: &str) -> ExternalKernel {
        self.text(Language::Msl, source)
    }

    /// Adds PTX, compiled by the driver.
    pub fn ptx(self, source: &str) -> ExternalKernel {
        self.text(Language::Ptx { capability: 0 }, source)
    }

    /// Adds machine code for one NVIDIA architecture, or a fat binary for several.
    pub fn cubin(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::Cubin, bytes)
    }

    /// Adds machine code for one AMD architecture.
    pub fn code_object(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::CodeObject, bytes)
    }

    /// Adds SPIR-V: the Shader flavor for Vulkan, with WGSL's bindings, or the Kernel flavor for OpenCL and oneAPI.
    pub fn spir_v(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::SpirV, bytes)
    }

    /// Adds a Metal library.
    pub fn metallib(self, bytes: &[u8]) -> ExternalKernel {
        self.image(BinaryFormat::MetalLibrary, bytes)
    }

    /// Adds a CPU function, called once per launch while its queue waits. It must not use that queue.
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

    /// Returns the kernel's hash. Equal kernels have equal hashes as long as their CPU functions are alive.
    pub(super) fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let mut hasher = Xxh3::new();
            let mut add = |bytes: &[u8]| {
                hasher.update(&(bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            };
            add(format!("external kernel {} {:?} {:?}", self.name, self.group, self.params).as_bytes());
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

    /// Returns the program of the first entry that the device accepts.
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

    /// Rejects sources that are empty or contain a zero byte; some compilers read past the end of an empty source.
    pub(super) fn check_texts(&self) -> Result<()> {
        for entry in &self.entries {
            let Entry::Text(language, source) = entry else { continue };
            let what = match source.trim().is_empty() {
                true => "source is empty",
                false if source.contains('\0') => "source contains a zero byte",
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
        // A missing compiler can be installed by the caller, so it determines the error's kind.
        let kind = passed.iter().map(Error::kind).find(|kind| *kind == ErrorKind::Unavailable);
        let error = Error::new(
            kind.unwrap_or(ErrorKind::Unsupported),
            format!(
                "kernel {}: none of its programs ({offered}) is usable on {device}, which accepts {takes}; add one of those",
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
        write!(f, "external kernel {}({}) as {}", self.name, params.join(", "), forms.join(", "))
    }
}
