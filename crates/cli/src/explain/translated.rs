//! WGSL in the languages of Metal and of DirectX 12, as `wgpu` hands them to Apple's and to Microsoft's compilers: its translator makes them,
//! with the settings that it has on those systems.

use std::collections::BTreeMap;

use naga::back::pipeline_constants::process_overrides;
use naga::back::{hlsl, msl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, ResourceBinding, ShaderStage, StorageAccess};
use panoply::{Error, Result};

/// A program as the translator has read it.
pub struct Program {
    module: naga::Module,
    info: ModuleInfo,
    entry: String,
}

impl Program {
    /// A program in WGSL, which may need 64-bit integers, f16 and subgroups if it is `rich`.
    pub fn read(source: &str, entry: &str, rich: bool) -> Result<Program> {
        let module = naga::front::wgsl::parse_str(source).map_err(|error| wrong(error.emit_to_string(source)))?;
        let all = Capabilities::SHADER_INT64 | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP;
        let has = if rich { all } else { Capabilities::empty() };
        let info = Validator::new(ValidationFlags::all(), has).validate(&module);
        let info = info.map_err(|error| wrong(error.emit_to_string(source)))?;
        // The size of a group, where a launch chooses it, and what a device was found to do.
        let known = [("items", 4.0), ("subgroups_consecutive", 1.0)];
        let names = module.overrides.iter().filter_map(|(_, known)| known.name.clone());
        let value = |name: &str| known.iter().find(|(known, _)| name.starts_with(known)).map(|(_, value)| *value);
        let told = names.filter_map(|name| value(&name).map(|value| (name, value))).collect();
        let point = Some((ShaderStage::Compute, entry));
        let (module, info) = process_overrides(&module, &info, point, &told).map_err(wrong)?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Program { module, info, entry: entry.to_string() })
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
        Ok(written.0)
    }

    /// HLSL, for the compiler that every Windows has, or for one with 64-bit integers and f16.
    pub fn direct3d(&self, newer: bool) -> Result<String> {
        let options = hlsl::Options {
            shader_model: if newer { hlsl::ShaderModel::V6_2 } else { hlsl::ShaderModel::V5_1 },
            zero_initialize_workgroup_memory: false,
            restrict_indexing: false,
            force_loop_bounding: false,
            ..hlsl::Options::default()
        };
        let point = Some((ShaderStage::Compute, self.entry.clone()));
        let pipeline = hlsl::PipelineOptions { entry_point: point };
        let mut text = String::new();
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
