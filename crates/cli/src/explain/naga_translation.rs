//! Translation of WGSL to MSL and HLSL by naga, with the settings with which `wgpu` passes shaders to the compilers of Apple and
//! Microsoft.

use std::collections::BTreeMap;

use naga::back::pipeline_constants::process_overrides;
use naga::back::{PipelineConstants, hlsl, msl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, ResourceBinding, ShaderStage, StorageAccess};
use panoply::internal::ir::Target;
use panoply::{Error, Result};

/// A parsed WGSL program.
pub struct Program {
    module: naga::Module,
    info: ModuleInfo,
    entry: String,
    /// True if it needs a newer shader model than every Windows system supports.
    newer: bool,
    /// Comment lines with the values of override constants, which the launch or the device determines.
    decided: String,
}

impl Program {
    /// Parses a WGSL program for a target; `group` is the work-group size if the launch chooses it.
    pub fn read(source: &str, entry: &str, target: &Target, group: [u32; 3]) -> Result<Program> {
        let module = naga::front::wgsl::parse_str(source).map_err(|error| wrong(error.emit_to_string(source)))?;
        let mut has = Capabilities::empty();
        has.set(Capabilities::SHADER_INT64, target.int64);
        has.set(Capabilities::SHADER_FLOAT16, target.f16);
        has.set(Capabilities::SUBGROUP, target.subgroup > 1);
        let newer = !has.is_empty();
        let info = Validator::new(ValidationFlags::all(), has).validate(&module);
        let info = info.map_err(|error| wrong(error.emit_to_string(source)))?;
        let mut constants = PipelineConstants::default();
        let mut decided = String::new();
        for name in module.overrides.iter().filter_map(|(_, known)| known.name.clone()) {
            let axis = ["items0", "items1", "items2"].iter().position(|known| *known == name);
            decided += &match axis {
                Some(axis) => format!("// {name} = {}: set by the launch\n", group[axis]),
                None => format!("// {name} = false: set by a test when the device is opened\n"),
            };
            constants.insert(name, axis.map_or(0.0, |axis| f64::from(group[axis])));
        }
        let point = Some((ShaderStage::Compute, entry));
        let (module, info) = process_overrides(&module, &info, point, &constants).map_err(wrong)?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Program { module, info, entry: entry.to_string(), newer, decided })
    }

    /// Translates to MSL 2.3, the first version with 64-bit integers.
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

    /// Translates to HLSL: shader model 5.1, which every Windows supports, or 6.2 if the program needs it.
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
    Error::unsupported(format!("naga cannot translate the WGSL program: {what}"))
}
