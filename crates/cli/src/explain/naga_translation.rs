//! Translation of WGSL to MSL and HLSL by naga, with the settings that `wgpu` uses on Metal and Direct3D 12.

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
    /// True if the target has 64-bit integers, f16 or subgroups, which HLSL supports since shader model 6.
    needs_shader_model_6: bool,
    /// Comment lines with the values of the override constants, which the launch or the device determines.
    override_comments: String,
}

impl Program {
    /// Parses and validates a WGSL program for a target. `entry` is the name of its entry point, and `group_size` the work-group size if
    /// the launch chooses it.
    ///
    /// # Errors
    /// If naga does not accept the program.
    pub fn parse(source: &str, entry: &str, target: &Target, group_size: [u32; 3]) -> Result<Program> {
        let module =
            naga::front::wgsl::parse_str(source).map_err(|error| translation_error(error.emit_to_string(source)))?;
        let mut capabilities = Capabilities::empty();
        capabilities.set(Capabilities::SHADER_INT64, target.int64);
        capabilities.set(Capabilities::SHADER_FLOAT16, target.f16);
        capabilities.set(Capabilities::SUBGROUP, target.subgroup > 1);
        let needs_shader_model_6 = !capabilities.is_empty();
        let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
        let info = info.map_err(|error| translation_error(error.emit_to_string(source)))?;
        let mut constants = PipelineConstants::default();
        let mut override_comments = String::new();
        for name in module.overrides.iter().filter_map(|(_, known)| known.name.clone()) {
            let axis = ["items0", "items1", "items2"].iter().position(|known| *known == name);
            override_comments += &match axis {
                Some(axis) => format!("// {name} = {}: set by the launch\n", group_size[axis]),
                None => format!("// {name} = false: set by a test when the device is opened\n"),
            };
            constants.insert(name, axis.map_or(0.0, |axis| f64::from(group_size[axis])));
        }
        let entry_point = Some((ShaderStage::Compute, entry));
        let (module, info) = process_overrides(&module, &info, entry_point, &constants).map_err(translation_error)?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Program { module, info, entry: entry.to_string(), needs_shader_model_6, override_comments })
    }

    /// Translates to MSL 2.3, the first version with 64-bit integers.
    ///
    /// # Errors
    /// If naga cannot translate the program.
    pub fn to_msl(&self) -> Result<String> {
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
        let entry_point = Some((ShaderStage::Compute, self.entry.clone()));
        let pipeline = msl::PipelineOptions { entry_point, ..msl::PipelineOptions::default() };
        let written = msl::write_string(&self.module, &self.info, &options, &pipeline).map_err(translation_error)?;
        Ok(format!("{}{}", self.override_comments, written.0))
    }

    /// Translates to HLSL: shader model 5.1, which every Windows supports, or 6.2 if the target has features that need it.
    ///
    /// # Errors
    /// If naga cannot translate the program.
    pub fn to_hlsl(&self) -> Result<String> {
        let options = hlsl::Options {
            shader_model: if self.needs_shader_model_6 { hlsl::ShaderModel::V6_2 } else { hlsl::ShaderModel::V5_1 },
            zero_initialize_workgroup_memory: false,
            restrict_indexing: false,
            force_loop_bounding: false,
            ..hlsl::Options::default()
        };
        let entry_point = Some((ShaderStage::Compute, self.entry.clone()));
        let pipeline = hlsl::PipelineOptions { entry_point };
        let mut text = self.override_comments.clone();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline).write(&self.module, &self.info, None);
        for name in written.map_err(translation_error)?.entry_point_names {
            name.map_err(translation_error)?;
        }
        Ok(text)
    }
}

fn translation_error(error: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("naga cannot translate the WGSL program: {error}"))
}
