//! Compiles programs (WGSL; SPIR-V, MSL and others as they are) to compute pipelines.
//!
//! A pipeline fixes the work-group size, so a kernel whose launches choose it has one pipeline for each size. Pipelines and
//! bind groups are cached.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use naga::valid::Capabilities;
use panoply_device::{
    Error, Language, ParamType, Program as DeviceProgram, ProgramForm, Result, Signature, SourceText,
};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType, BufferSize, ComputePipeline,
    ComputePipelineDescriptor, Features, PipelineCache, PipelineCacheDescriptor, PipelineCompilationOptions,
    PipelineLayout, PipelineLayoutDescriptor, ShaderModule, ShaderModuleDescriptor, ShaderRuntimeChecks, ShaderSource,
    ShaderStages,
};

use super::external_kernel::{self, ExternalCode, GroupSize};
use super::open::Open;
use super::spirv::{self, WgslModule};
use crate::{binary_checksum, lock::locked};

/// A compiled program with its pipelines, which are created per work-group size.
pub struct Program {
    /// Name of the entry point.
    pub entry: String,
    /// Signature of the entry point.
    pub signature: Signature,
    /// Size in bytes of the uniform buffer with a launch's scalar arguments.
    pub words: u64,
    source: PipelineSource,
    constants: Vec<(String, f64)>,
    /// True if the work-group size is a parameter of the pipeline.
    sized: bool,
    /// The work-group size that a user's program fixes.
    group: GroupSize,
    bind_group_layout: BindGroupLayout,
    layout: PipelineLayout,
    /// The API's pipeline cache, for later processes.
    cache: Option<PipelineCache>,
    pipelines: Mutex<HashMap<[u32; 3], ComputePipeline>>,
    /// Cached bind groups, by the memory that they bind.
    bind_groups: Mutex<HashMap<Vec<Window>, BindGroup>>,
}

/// The source of pipelines.
enum PipelineSource {
    /// A program that is translated to SPIR-V here.
    WgslModule(Box<WgslModule>),
    /// A program that `wgpu` translates.
    Module(ShaderModule),
    /// Code that is passed to the API unchanged.
    ExternalCode(ExternalCode),
}

/// The bytes of an allocation that are bound for a launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    pub alloc: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// Maximum number of cached bind groups of a program; beyond it the cache is cleared.
const MAX_BIND_GROUPS: usize = 64;

/// Maximum number of cached pipelines of a program; beyond it the cache is cleared.
const MAX_PIPELINES: usize = 64;

/// WGSL names of the work-group sizes, if a launch chooses them.
const SIZES: [&str; 3] = ["items0", "items1", "items2"];

/// Builds a program in a form that the device accepts. `constants` returns the values of pipeline constants by name. `made_for`
/// names the device and driver for which cached data must have been made.
///
/// # Errors
/// The device does not accept the form, or the driver's compiler refuses the program.
pub fn build(
    open: &Open,
    given: &DeviceProgram,
    made_for: &str,
    constants: &dyn Fn(&str) -> Result<Option<f64>>,
) -> Result<Program> {
    let label = &open.status.label;
    match given {
        DeviceProgram::Text(text) if text.language == Language::Wgsl => from_text(open, text, None, constants),
        DeviceProgram::Binary { bytes, text } if text.language == Language::Wgsl => {
            from_text(open, text, binary_checksum::open(bytes, made_for), constants)
        }
        DeviceProgram::Text(text) | DeviceProgram::Binary { text, .. } => {
            let source = PipelineSource::ExternalCode(ExternalCode::Msl(text.source.clone()));
            Program::new(open, (&text.entry, &text.signature), PipelineParts::of(source, None))
        }
        DeviceProgram::Image(image) => {
            let (code, group) = ExternalCode::image(image, label)?;
            Program::new(
                open,
                (&image.entry, &image.signature),
                PipelineParts::of(PipelineSource::ExternalCode(code), group),
            )
        }
        DeviceProgram::Ir(_) | DeviceProgram::Host(_) => {
            Err(given.rejected_by(label, &[ProgramForm::Text(Language::Wgsl)]))
        }
    }
}

fn from_text(
    open: &Open,
    text: &SourceText,
    cached: Option<&[u8]>,
    constants: &dyn Fn(&str) -> Result<Option<f64>>,
) -> Result<Program> {
    let label = &open.status.label;
    let module = spirv::parse(&text.source, capabilities(open), label, &text.entry)?;
    let mut known = Vec::new();
    for name in module.overrides() {
        if let Some(value) = constants(name)? {
            known.push((name.to_string(), value));
        }
    }
    let sized = module.overrides().any(|name| name == SIZES[0]);
    let hidden = text.signature.hidden;
    let group = if hidden { None } else { external_kernel::check(&module, &text.signature, label, &text.entry)? };
    let buffers = 1..=text.signature.params.len() as u32;
    let read_only = buffers.filter(|binding| external_kernel::only_reads(&module, *binding)).collect();
    let source = if open.translates {
        PipelineSource::WgslModule(Box::new(module))
    } else {
        let descriptor = ShaderModuleDescriptor {
            label: Some(&text.entry),
            source: ShaderSource::Wgsl(Cow::Borrowed(&text.source)),
        };
        // SAFETY: accesses were proven or guarded before the text was rendered, and its loops terminate, or the author is responsible.
        let module =
            || unsafe { open.device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) };
        PipelineSource::Module(open.build(&text.entry, module)?)
    };
    let cache = cache(open, &text.entry, cached)?;
    let parts = PipelineParts { source, constants: known, sized, group, read_only, cache };
    Program::new(open, (&text.entry, &text.signature), parts)
}

/// The parts of a [`Program`] that differ between its forms.
struct PipelineParts {
    source: PipelineSource,
    constants: Vec<(String, f64)>,
    sized: bool,
    group: GroupSize,
    /// Bindings that are only read.
    read_only: Vec<u32>,
    cache: Option<PipelineCache>,
}

impl PipelineParts {
    /// Returns the parts for code that is passed on unchanged; if it does not fix the work-group size, each launch does.
    fn of(source: PipelineSource, group: GroupSize) -> PipelineParts {
        PipelineParts {
            source,
            constants: Vec::new(),
            sized: group.is_none(),
            group,
            read_only: Vec::new(),
            cache: None,
        }
    }
}

fn capabilities(open: &Open) -> Capabilities {
    let mut capabilities = Capabilities::default();
    capabilities.set(Capabilities::SHADER_FLOAT16, open.features.contains(Features::SHADER_F16));
    capabilities.set(Capabilities::FLOAT64, open.features.contains(Features::SHADER_F64));
    capabilities.set(Capabilities::SHADER_INT64, open.features.contains(Features::SHADER_INT64));
    capabilities.set(Capabilities::SUBGROUP, open.features.contains(Features::SUBGROUP));
    capabilities
}

/// Creates the bind group layout: the uniform buffer of scalar arguments at binding 0, then every buffer.
fn layout(
    open: &Open,
    name: &str,
    signature: &Signature,
    read_only: &[u32],
) -> Result<(BindGroupLayout, PipelineLayout)> {
    let words = words(signature);
    let entry = |binding: u32, ty: BufferBindingType, dynamic: bool, least: Option<BufferSize>| BindGroupLayoutEntry {
        binding,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: least },
        count: None,
    };
    let buffers = signature.params.iter().filter(|param| matches!(param, ParamType::Buffer(_))).count();
    let mut entries = vec![entry(0, BufferBindingType::Uniform, true, BufferSize::new(words))];
    let storage = |binding| BufferBindingType::Storage { read_only: read_only.contains(&binding) };
    entries.extend((1..=buffers as u32).map(|binding| entry(binding, storage(binding), false, None)));
    open.build(name, || {
        let label = Some(name);
        let bindings = BindGroupLayoutDescriptor { label, entries: &entries };
        let bindings = open.device.create_bind_group_layout(&bindings);
        let layouts = [Some(&bindings)];
        let layout = PipelineLayoutDescriptor { label, bind_group_layouts: &layouts, immediate_size: 0 };
        let layout = open.device.create_pipeline_layout(&layout);
        (bindings, layout)
    })
}

/// Creates the API's pipeline cache for a program, initialized with data that an earlier process saved; `None` if the device has
/// no such cache.
fn cache(open: &Open, entry: &str, data: Option<&[u8]>) -> Result<Option<PipelineCache>> {
    if !open.features.contains(Features::PIPELINE_CACHE) {
        return Ok(None);
    }
    let descriptor = PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: the data is complete and came from such a cache of this adapter and driver: its checksum covers their names.
    open.build(entry, || unsafe { open.device.create_pipeline_cache(&descriptor) }).map(Some)
}

/// Returns the size in bytes of the uniform buffer with a launch's scalar arguments, in 32-bit words padded to vectors of four.
fn words(signature: &Signature) -> u64 {
    let index = if signature.index_bits == 64 { 2 } else { 1 };
    let of = |param: &ParamType| match param {
        ParamType::Buffer(_) if signature.hidden => 2 * index,
        ParamType::Buffer(_) => 0,
        ParamType::Scalar(ty) => match ty.dtype() {
            Some(dtype) if dtype.bytes() == 8 => 2,
            Some(_) => 1,
            None => index,
        },
    };
    let hidden = if signature.hidden { 3 * index + 4 } else { 0 };
    let count: u64 = signature.params.iter().map(of).sum::<u64>() + hidden;
    16 * count.div_ceil(4).max(1)
}

impl Program {
    fn new(open: &Open, (entry, signature): (&str, &Signature), parts: PipelineParts) -> Result<Program> {
        let PipelineParts { source, constants, sized, group, read_only, cache } = parts;
        let (bind_group_layout, layout) = layout(open, entry, signature, &read_only)?;
        let (pipelines, bind_groups) = (Mutex::default(), Mutex::default());
        let (entry, signature, words) = (entry.to_string(), signature.clone(), words(signature));
        let program = Program {
            entry,
            signature,
            words,
            source,
            constants,
            sized,
            group,
            bind_group_layout,
            layout,
            cache,
            pipelines,
            bind_groups,
        };
        // Compilation errors are reported here, not at the first launch; most launches use this work-group size.
        let likely = [256.min(open.limits.max_compute_invocations_per_workgroup), 1, 1];
        program.pipeline(open, group.unwrap_or(likely))?;
        Ok(program)
    }

    /// Returns the pipeline for a work-group size; creates it at the first use of the size.
    pub fn pipeline(&self, open: &Open, group: [u32; 3]) -> Result<ComputePipeline> {
        if let Some([x, y, z]) = self.group.filter(|own| *own != group) {
            let (label, [a, b, c]) = (&open.status.label, group);
            return Err(Error::mistake(format!(
                "{label}: {} has groups of {x}×{y}×{z} in its source and {a}×{b}×{c} in the launch; make them equal",
                self.entry
            )));
        }
        let key = if self.sized { group } else { [0; 3] };
        let mut pipelines = locked(&self.pipelines);
        if let Some(pipeline) = pipelines.get(&key) {
            return Ok(pipeline.clone());
        }
        let mut constants: Vec<(&str, f64)> =
            self.constants.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        if self.sized {
            constants.extend(SIZES.into_iter().zip(group.map(f64::from)));
        }
        let pipeline = self.create_pipeline(open, group, &constants)?;
        if pipelines.len() >= MAX_PIPELINES {
            pipelines.clear();
        }
        pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn create_pipeline(&self, open: &Open, group: [u32; 3], constants: &[(&str, f64)]) -> Result<ComputePipeline> {
        let entry = self.entry.as_str();
        let translated = match &self.source {
            PipelineSource::Module(_) | PipelineSource::ExternalCode(_) => None,
            PipelineSource::WgslModule(module) => {
                let label = &open.status.label;
                let refused = |log| {
                    let message =
                        format!("{label}: {entry} cannot be translated to SPIR-V; the compiler's log follows");
                    Error::new(panoply_device::ErrorKind::CompileFailed, message).note(log)
                };
                Some(ExternalCode::SpirV(module.translate(entry, constants, &open.preserved).map_err(refused)?))
            }
        };
        open.build(entry, || {
            let code = match &self.source {
                PipelineSource::ExternalCode(code) => Some(code),
                PipelineSource::WgslModule(_) | PipelineSource::Module(_) => translated.as_ref(),
            };
            let passed = code.map(|code| {
                // SAFETY: the words come from naga, which validated the program; only decorations were added. Bounds were proven or guarded
                // before the text was rendered. For code that is passed on unchanged its author is responsible.
                unsafe { open.device.create_shader_module_passthrough(code.descriptor(entry, group)) }
            });
            let (module, constants) = match (&self.source, &passed) {
                (_, Some(module)) => (module, &[][..]),
                (PipelineSource::Module(module), None) => (module, constants),
                (PipelineSource::WgslModule(_) | PipelineSource::ExternalCode(_), None) => {
                    unreachable!("SPIR-V and external code are shader modules of their own")
                }
            };
            open.device.create_compute_pipeline(&ComputePipelineDescriptor {
                label: Some(entry),
                layout: Some(&self.layout),
                module,
                entry_point: Some(entry),
                compilation_options: PipelineCompilationOptions { constants, zero_initialize_workgroup_memory: false },
                cache: self.cache.as_ref(),
            })
        })
    }

    /// Returns the API's cache data with a checksum; `None` if the API does not expose it.
    pub fn cache_data(&self, made_for: &str) -> Option<Vec<u8>> {
        let data = self.cache.as_ref()?.get_data()?;
        Some(binary_checksum::seal(&data, made_for))
    }

    /// Returns the bind group of a launch; cached, because most launches repeat one.
    pub fn bind(&self, open: &Open, words: &Buffer, windows: &[(Window, &Buffer)]) -> Result<BindGroup> {
        let key: Vec<Window> = windows.iter().map(|(window, _)| *window).collect();
        let mut bind_groups = locked(&self.bind_groups);
        if let Some(group) = bind_groups.get(&key) {
            return Ok(group.clone());
        }
        let resource = |buffer, offset, bytes| {
            BindingResource::Buffer(BufferBinding { buffer, offset, size: BufferSize::new(bytes) })
        };
        let mut entries = vec![BindGroupEntry { binding: 0, resource: resource(words, 0, self.words) }];
        entries.extend(windows.iter().enumerate().map(|(i, (window, buffer))| BindGroupEntry {
            binding: i as u32 + 1,
            resource: resource(buffer, window.offset, window.bytes),
        }));
        let descriptor =
            BindGroupDescriptor { label: Some(&self.entry), layout: &self.bind_group_layout, entries: &entries };
        let doing = format_args!("binding the arguments of {}", self.entry);
        let group = open.checked(doing, || open.device.create_bind_group(&descriptor))?;
        if bind_groups.len() >= MAX_BIND_GROUPS {
            bind_groups.clear();
        }
        // Memory without an id is used by one launch only.
        if key.iter().all(|window| window.alloc != 0) {
            bind_groups.insert(key, group.clone());
        }
        Ok(group)
    }

    /// Removes cached bind groups of an allocation, which would keep its memory alive.
    pub fn unbind(&self, alloc: u64) {
        locked(&self.bind_groups).retain(|windows, _| windows.iter().all(|window| window.alloc != alloc));
    }
}
