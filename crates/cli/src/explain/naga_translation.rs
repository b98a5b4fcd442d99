//! WGSL in the languages of Metal and of DirectX 12, as `wgpu` hands them to Apple's and to Microsoft's compilers: its translator makes them,
//! with the settings that it has on those systems.

use std::collections::BTreeMap;

use naga::back::pipeline_constants::process_overrides;
use naga::back::{PipelineConstants, hlsl, msl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, ResourceBinding, ShaderStage, StorageAccess};
use panoply::internal::ir::Target;
use panoply::{Error, Result};

/// A program as the translator has read it.
pub struct Program {
    module: naga::Module,
    info: ModuleInfo,
    entry: String,
    /// Whether it needs a newer compiler on Windows than every system has.
    newer: bool,
    /// What the program leaves to the launch and to the device, and what it is here: a line for each in both languages.
    decided: String,
}

impl Program {
    /// A program in WGSL for a target and for groups of this size, where a launch chooses it.
    pub fn read(source: &str, entry: &str, target: &Target, group: [u32; 3]) -> Result<Program> {
        let module = naga::front::wgsl::parse_str(source).map_err(|error| wrong(error.emit_to_string(source)))?;
        let mut has = Capabilities::empty();
        has.set(Capabilities::SHADER_INT64, target.int64);
        has.set(Capabilities::SHADER_FLOAT16, target.f16);
        has.set(Capabilities::SUBGROUP, target.subgroup > 1);
        let newer = !has.is_empty();
        let info = Validator::new(ValidationFlags::all(), has).validate(&module);
        let info = info.map_err(|error| wrong(error.emit_to_string(source)))?;
        let mut told = PipelineConstants::default();
        let mut decided = String::new();
        for name in module.overrides.iter().filter_map(|(_, known)| known.name.clone()) {
            let axis = ["items0", "items1", "items2"].iter().position(|known| *known == name);
            decided += &match axis {
                Some(axis) => format!("// {name} = {}: the launch decides\n", group[axis]),
                None => format!("// {name} = false: the device decides, which is tried for it when it is opened\n"),
            };
            told.insert(name, axis.map_or(0.0, |axis| f64::from(group[axis])));
        }
        let point = Some((ShaderStage::Compute, entry));
        let (module, info) = process_overrides(&module, &info, point, &told).map_err(wrong)?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Program { module, info, entry: entry.to_string(), newer, decided })
    }

    /// Metal's language, from the version on that has 64-bit integers.
    pub fn metal(&self) -> Result<String> {
        let unchecked = BoundsCheckPolicy::Unchecked;
        let policies = BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        };
        let bound =
            self.module.global_variables.iter().filter_map(|(_, variable)| Some((variable.binding?, variable.space)));
        let resources: BTreeMap<ResourceBinding, msl::BindTarget> = bound
            .map(|(binding, space)| {
                let writes = StorageAccess::STORE;
                let mutable = matches!(space, AddressSpace::Storage { access } if access.contains(writes));
                (
                    binding,
                    msl::BindTarget { buffer: Some(binding.binding as u8), mutable, ..msl::BindTarget::default() },
                )
            })
            .collect();
        let sizes_buffer = Some(resources.len() as u8);
        let resources = msl::EntryPointResources { resources, sizes_buffer, ..msl::EntryPointResources::default() };
        let options = msl::Options {
            lang_version: (2, 3),
            per_entry_point_map: BTreeMap::from([(self.entry.clone(), resources)]),
            bounds_check_policies: policies,
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: false,
            emit_int_div_checks: false,
            ..msl::Options::default()
        };
        let point = Some((ShaderStage::Compute, self.entry.clone()));
        let pipeline = msl::PipelineOptions { entry_point: point, ..msl::PipelineOptions::default() };
        let written = msl::write_string(&self.module, &self.info, &options, &pipeline).map_err(wrong)?;
        Ok(format!("{}{}", self.decided, written.0))
    }

    /// HLSL, for the compiler that every Windows has, or for one with what that lacks.
    pub fn direct3d(&self) -> Result<String> {
        let options = hlsl::Options {
            shader_model: if self.newer { hlsl::ShaderModel::V6_2 } else { hlsl::ShaderModel::V5_1 },
            zero_initialize_workgroup_memory: false,
            restrict_indexing: false,
            force_loop_bounding: false,
            ..hlsl::Options::default()
        };
        let point = Some((ShaderStage::Compute, self.entry.clone()));
        let pipeline = hlsl::PipelineOptions { entry_point: point };
        let mut text = self.decided.clone();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline).write(&self.module, &self.info, None);
        for name in written.map_err(wrong)?.entry_point_names {
            name.map_err(wrong)?;
        }
        Ok(text)
    }
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("the translator of WGSL refuses the program: {what}"))
}
