//! User-written programs: checks that their declarations match the launch.
//!
//! WGSL is parsed completely. Of SPIR-V only the header and the entry points are read, and of Metal's formats nothing; other errors in them
//! are left to the API's compiler, which can miss them.

use std::borrow::Cow;

use naga::{AddressSpace, StorageAccess};
use panoply_device::{BinaryFormat, Error, ErrorKind, Image, ParamType, Result, Signature};
use wgpu::{PassthroughShaderEntryPoint, ShaderModuleDescriptorPassthrough};

use super::spirv::WgslModule;
use crate::spirv_words::words;

/// Code that is passed to the API unchanged.
pub enum ExternalCode {
    SpirV(Vec<u32>),
    Msl(String),
    MetalLibrary(Vec<u8>),
}

/// The work-group size that a program fixes, if it does.
pub type GroupSize = Option<[u32; 3]>;

impl ExternalCode {
    /// Returns the code of an image and its work-group size.
    pub fn image(image: &Image, label: &str) -> Result<(ExternalCode, GroupSize)> {
        let bytes = &image.bytes;
        match image.format {
            BinaryFormat::SpirV => {
                let wrong =
                    |what: String| Error::new(ErrorKind::CompileFailed, format!("{label}: {} {what}", image.entry));
                let words = words(bytes).ok_or_else(|| {
                    wrong(format!("as SPIR-V is truncated or damaged: {} bytes; build it again", bytes.len()))
                })?;
                let group = entry_point(&words, &image.entry).map_err(wrong)?;
                Ok((ExternalCode::SpirV(words), group))
            }
            BinaryFormat::MetalLibrary => Ok((ExternalCode::MetalLibrary(bytes.to_vec()), None)),
            BinaryFormat::Cubin | BinaryFormat::CodeObject => {
                Err(Error::unsupported(format!("{label}: {} is for another API", image.entry)))
            }
        }
    }

    /// Returns the shader module descriptor.
    pub fn descriptor<'a>(&'a self, entry: &'a str, [x, y, z]: [u32; 3]) -> ShaderModuleDescriptorPassthrough<'a> {
        let entry_point = PassthroughShaderEntryPoint { name: Cow::Borrowed(entry), workgroup_size: (x, y, z) };
        let mut descriptor = ShaderModuleDescriptorPassthrough {
            label: Some(entry),
            entry_points: Cow::Owned(vec![entry_point]),
            ..Default::default()
        };
        match self {
            ExternalCode::SpirV(words) => descriptor.spirv = Some(Cow::Borrowed(words)),
            ExternalCode::Msl(source) => descriptor.msl = Some(Cow::Borrowed(source)),
            ExternalCode::MetalLibrary(bytes) => descriptor.metallib = Some(Cow::Borrowed(bytes)),
        }
        descriptor
    }
}

const HEADER: usize = 5;
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const GL_COMPUTE: u32 = 5;
const LOCAL_SIZE: u32 = 17;

/// Returns the work-group size of an entry point, or an error message.
fn entry_point(words: &[u32], entry: &str) -> std::result::Result<GroupSize, String> {
    let (mut found, mut others, mut at) = (None, Vec::new(), HEADER);
    let mut group = None;
    while at < words.len() {
        let instruction = &words[at..][..(words[at] >> 16).max(1) as usize];
        match (words[at] & 0xFFFF, instruction) {
            (OP_ENTRY_POINT, [_, GL_COMPUTE, id, name @ ..]) => {
                let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
                let name =
                    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
                if name == entry { found = Some(*id) } else { others.push(name) }
            }
            (OP_EXECUTION_MODE, [_, id, LOCAL_SIZE, x, y, z]) if Some(*id) == found => group = Some([*x, *y, *z]),
            _ => {}
        }
        at += instruction.len();
    }
    match found {
        Some(_) => Ok(group),
        None => Err(format!("is not a compute entry point of this SPIR-V; it has: {}", others.join(", "))),
    }
}

/// Returns the work-group size of a user's WGSL program, after checking that its bindings match those of a launch.
pub fn check(module: &WgslModule, signature: &Signature, label: &str, entry: &str) -> Result<GroupSize> {
    let buffers = signature.params.iter().filter(|param| matches!(param, ParamType::Buffer(_))).count() as u32;
    for (name, group, binding, space) in module.bindings() {
        let fits = match space {
            AddressSpace::Uniform => (group, binding) == (0, 0) && signature.params.len() > buffers as usize,
            AddressSpace::Storage { .. } => group == 0 && (1..=buffers).contains(&binding),
            _ => false,
        };
        if !fits {
            let message = format!(
                "{label}: {entry} has {name} at group {group}, binding {binding}; a launch binds its {buffers} buffers to bindings 1 to \
                 {buffers} of group 0, and numbers to a uniform at binding 0"
            );
            return Err(Error::new(ErrorKind::CompileFailed, message));
        }
    }
    Ok(module.group(entry))
}

/// Returns true if a program only reads the buffer at a binding.
pub fn only_reads(module: &WgslModule, binding: u32) -> bool {
    module.bindings().any(|(_, group, at, space)| {
        let reads = matches!(space, AddressSpace::Storage { access } if !access.contains(StorageAccess::STORE));
        (group, at) == (0, binding) && reads
    })
}
