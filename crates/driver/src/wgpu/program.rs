//! Texts to pipelines.
//!
//! A pipeline fixes the group's size, so a kernel that leaves it to the launch has one for each size it was launched with.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use panoply_device::{Error, ParamType, Program as Given, Result, Signature, SourceText};
use wgpu::naga::valid::Capabilities;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType, BufferSize, ComputePipeline,
    ComputePipelineDescriptor, Features, PassthroughShaderEntryPoint, PipelineCache, PipelineCacheDescriptor,
    PipelineCompilationOptions, PipelineLayout, PipelineLayoutDescriptor, ShaderModule, ShaderModuleDescriptor,
    ShaderModuleDescriptorPassthrough, ShaderRuntimeChecks, ShaderSource, ShaderStages,
};

use super::open::Open;
use super::spirv::{self, Understood};
use crate::{lock::locked, seal};

/// A program ready to run, but for pipelines of sizes that were not asked for yet.
pub struct Program {
    /// The entry point.
    pub entry: String,
    /// Its arguments.
    pub signature: Signature,
    /// Bytes of a launch's words.
    pub words: u64,
    form: Form,
    constants: Vec<(String, f64)>,
    /// Whether a pipeline takes the group's size.
    sized: bool,
    bindings: BindGroupLayout,
    layout: PipelineLayout,
    /// What the interface's compiler made, for the next process.
    cache: Option<PipelineCache>,
    pipelines: Mutex<HashMap<[u32; 3], ComputePipeline>>,
    bound: Mutex<HashMap<Vec<Window>, BindGroup>>,
}

/// What pipelines are made of.
enum Form {
    /// What becomes SPIR-V here.
    Understood(Understood),
    /// What `wgpu` translates.
    Module(ShaderModule),
}

/// Bytes of an allocation that a launch sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    pub alloc: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// Launches on other memory whose bindings are kept.
const MOST_BOUND: usize = 64;

/// Names in WGSL of a group's sizes, where a launch chooses them.
const SIZES: [&str; 3] = ["items0", "items1", "items2"];

/// Takes programs apart and builds them. `constants` are given to every program that has them.
pub fn build(
    open: &Open,
    given: &Given,
    made_for: &str,
    constants: &dyn Fn(&str) -> Result<Option<f64>>,
) -> Result<Program> {
    let label = &open.fate.label;
    let text = match given {
        Given::Text(text) | Given::Binary { text, .. } => text,
        Given::Ir(kernel) => {
            return Err(Error::unsupported(format!(
                "{label}: takes WGSL, not the kernel {} itself; render it first",
                kernel.name
            )));
        }
    };
    if text.language != panoply_device::Language::Wgsl {
        return Err(Error::unsupported(format!("{label}: takes WGSL, {} is {:?}", text.entry, text.language)));
    }
    let understood = spirv::understand(&text.source, capabilities(open), label, &text.entry)?;
    let mut known = Vec::new();
    for name in understood.overrides() {
        if let Some(value) = constants(name)? {
            known.push((name.to_string(), value));
        }
    }
    let sized = understood.overrides().any(|name| name == SIZES[0]);
    let form = if open.translates {
        Form::Understood(understood)
    } else {
        let descriptor = ShaderModuleDescriptor {
            label: Some(&text.entry),
            source: ShaderSource::Wgsl(Cow::Borrowed(&text.source)),
        };
        // SAFETY: accesses were proven or guarded before the text was rendered, and its loops end or the author answers for them.
        let module =
            || unsafe { open.device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) };
        Form::Module(open.build(&text.entry, module)?)
    };
    let (bindings, layout, words) = layout(open, text)?;
    let before = match given {
        Given::Binary { bytes, .. } => seal::open(bytes, made_for),
        _ => None,
    };
    let cache = cache(open, &text.entry, before)?;
    let (pipelines, bound) = (Mutex::default(), Mutex::default());
    let (entry, signature) = (text.entry.clone(), text.signature.clone());
    let program =
        Program { entry, signature, words, form, constants: known, sized, bindings, layout, cache, pipelines, bound };
    // What the compiler refuses is refused here, not at the first launch; most launches have groups of this size.
    program.pipeline(open, [256.min(open.limits.max_compute_invocations_per_workgroup), 1, 1])?;
    Ok(program)
}

fn capabilities(open: &Open) -> Capabilities {
    let mut capabilities = Capabilities::default();
    capabilities.set(Capabilities::FLOAT64, open.features.contains(Features::SHADER_F64));
    capabilities.set(Capabilities::SHADER_INT64, open.features.contains(Features::SHADER_INT64));
    capabilities
}

/// Bindings: the launch's words, then every buffer.
fn layout(open: &Open, text: &SourceText) -> Result<(BindGroupLayout, PipelineLayout, u64)> {
    let words = words(&text.signature);
    let entry = |binding: u32, ty: BufferBindingType, dynamic: bool, least: Option<BufferSize>| BindGroupLayoutEntry {
        binding,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: least },
        count: None,
    };
    let buffers = text.signature.params.iter().filter(|param| matches!(param, ParamType::Buffer(_))).count();
    let mut entries = vec![entry(0, BufferBindingType::Uniform, true, BufferSize::new(words))];
    let storage = BufferBindingType::Storage { read_only: false };
    entries.extend((1..=buffers as u32).map(|binding| entry(binding, storage, false, None)));
    open.build(&text.entry, || {
        let label = Some(text.entry.as_str());
        let bindings = BindGroupLayoutDescriptor { label, entries: &entries };
        let bindings = open.device.create_bind_group_layout(&bindings);
        let layouts = [Some(&bindings)];
        let layout = PipelineLayoutDescriptor { label, bind_group_layouts: &layouts, immediate_size: 0 };
        let layout = open.device.create_pipeline_layout(&layout);
        (bindings, layout, words)
    })
}

/// The interface's cache for one program, filled with what a cache of the same device gave before.
fn cache(open: &Open, entry: &str, before: Option<&[u8]>) -> Result<Option<PipelineCache>> {
    if !open.features.contains(Features::PIPELINE_CACHE) {
        return Ok(None);
    }
    let descriptor = PipelineCacheDescriptor { label: None, data: before, fallback: true };
    // SAFETY: the data is whole and came from such a cache of this adapter and driver: it was sealed with their names.
    open.build(entry, || unsafe { open.device.create_pipeline_cache(&descriptor) }).map(Some)
}

/// Bytes of a launch's words: whole vectors of four.
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
    /// The pipeline for groups of a size; made now if it is the first of that size.
    pub fn pipeline(&self, open: &Open, group: [u32; 3]) -> Result<ComputePipeline> {
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
        let pipeline = self.make(open, &constants)?;
        pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn make(&self, open: &Open, constants: &[(&str, f64)]) -> Result<ComputePipeline> {
        let entry = self.entry.as_str();
        let translated = match &self.form {
            Form::Module(_) => None,
            Form::Understood(understood) => {
                let label = &open.fate.label;
                let refused = |log| {
                    let message = format!("{label}: {entry} has no form in SPIR-V; the compiler's log follows");
                    Error::new(panoply_device::ErrorKind::Build, message).note(log)
                };
                Some(understood.translate(entry, constants).map_err(refused)?)
            }
        };
        open.build(entry, || {
            let module = translated.map(|words| {
                let descriptor = ShaderModuleDescriptorPassthrough {
                    label: Some(entry),
                    entry_points: Cow::Owned(vec![PassthroughShaderEntryPoint {
                        name: Cow::Borrowed(entry),
                        workgroup_size: (1, 1, 1),
                    }]),
                    spirv: Some(Cow::Owned(words)),
                    ..Default::default()
                };
                // SAFETY: the words come from naga, which validated the program; only decorations were added. Bounds were proven or
                // guarded before the text was rendered.
                unsafe { open.device.create_shader_module_passthrough(descriptor) }
            });
            let (module, constants) = match (&self.form, &module) {
                (_, Some(module)) => (module, &[][..]),
                (Form::Module(module), None) => (module, constants),
                (Form::Understood(_), None) => unreachable!("it was translated above"),
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

    /// What the interface's compiler made, sealed; none if the interface does not give it away.
    pub fn binary(&self, made_for: &str) -> Option<Vec<u8>> {
        let data = self.cache.as_ref()?.get_data()?;
        Some(seal::seal(&data, made_for))
    }

    /// The bindings of a launch; kept, for most launches repeat one.
    pub fn bind(&self, open: &Open, words: &Buffer, windows: &[(Window, &Buffer)]) -> Result<BindGroup> {
        let key: Vec<Window> = windows.iter().map(|(window, _)| *window).collect();
        let mut bound = locked(&self.bound);
        if let Some(group) = bound.get(&key) {
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
        let descriptor = BindGroupDescriptor { label: Some(&self.entry), layout: &self.bindings, entries: &entries };
        let doing = format_args!("binding the arguments of {}", self.entry);
        let group = open.ask(doing, || open.device.create_bind_group(&descriptor))?;
        if bound.len() >= MOST_BOUND {
            bound.clear();
        }
        // Memory without an id is of one launch only.
        if key.iter().all(|window| window.alloc != 0) {
            bound.insert(key, group.clone());
        }
        Ok(group)
    }

    /// Forgets bindings of an allocation, which live as long as its memory.
    pub fn unbind(&self, alloc: u64) {
        locked(&self.bound).retain(|windows, _| windows.iter().all(|window| window.alloc != alloc));
    }
}
