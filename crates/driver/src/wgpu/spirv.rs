//! WGSL to SPIR-V, with the decoration that prevents compilers from contracting and reordering float operations.
//!
//! WGSL has no such attribute and naga writes none, so drivers can fuse `a * b + c`, or rewrite code that adds and subtracts the same
//! number to compute a rounding error. SPIR-V has `NoContraction`, and Mesa's drivers, for example, do not rewrite operations that carry
//! it. Without `SignedZeroInfNanPreserve` drivers can also assume that no number is NaN: NVIDIA's computes `select(x, c, x < c)` as a
//! maximum, which drops it.

use naga::back::spv;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Expression, Statement};
use panoply_device::{Error, ErrorKind, Result};

/// A parsed and validated WGSL program.
pub struct WgslModule {
    module: naga::Module,
    info: ModuleInfo,
    /// The version of SPIR-V: subgroups require 1.3, which every device with subgroups supports.
    version: (u8, u8),
}

/// Parses and validates a WGSL text.
///
/// # Errors
/// The text is not valid with these capabilities, or has no entry point `entry`. `label` names the device in the message.
pub fn parse(source: &str, capabilities: Capabilities, label: &str, entry: &str) -> Result<WgslModule> {
    let refused = |log: String| {
        Error::new(ErrorKind::CompileFailed, format!("{label}: {entry} is not valid WGSL; the compiler's log follows"))
            .note(log)
    };
    let module = naga::front::wgsl::parse_str(source).map_err(|error| refused(error.emit_to_string(source)))?;
    let checked = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
    let info = checked.map_err(|error| refused(error.emit_to_string(source)))?;
    if !module.entry_points.iter().any(|known| known.name == entry) {
        return Err(refused(format!("there is no entry point {entry}")));
    }
    let version = if capabilities.contains(Capabilities::SUBGROUP) { (1, 3) } else { (1, 0) };
    Ok(WgslModule { module, info, version })
}

impl WgslModule {
    /// Returns the names of the pipeline-overridable constants.
    pub fn overrides(&self) -> impl Iterator<Item = &str> {
        self.module.overrides.iter().filter_map(|(_, known)| known.name.as_deref())
    }

    /// Returns name, group, binding and address space of every variable that a launch must bind.
    pub fn bindings(&self) -> impl Iterator<Item = (&str, u32, u32, naga::AddressSpace)> {
        self.module.global_variables.iter().filter_map(|(_, variable)| {
            let naga::ResourceBinding { group, binding } = variable.binding?;
            Some((variable.name.as_deref().unwrap_or("a variable"), group, binding, variable.space))
        })
    }

    /// Returns the work-group size of an entry point; `None` if it is a parameter of the pipeline.
    pub fn group(&self, entry: &str) -> Option<[u32; 3]> {
        let point = self.module.entry_points.iter().find(|known| known.name == entry)?;
        point.workgroup_size_overrides.is_none().then_some(point.workgroup_size)
    }

    /// Translates the program to SPIR-V, with these constants. Floats of the widths `preserved` keep NaN, infinity and -0.
    pub fn translate(
        &self,
        entry: &str,
        constants: &[(&str, f64)],
        preserved: &[u32],
    ) -> std::result::Result<Vec<u32>, String> {
        let stage = naga::ShaderStage::Compute;
        let module = self.without_unreachable_code(constants);
        let constants = constants.iter().map(|(name, value)| ((*name).to_string(), *value)).collect();
        let fixed =
            naga::back::pipeline_constants::process_overrides(&module, &self.info, Some((stage, entry)), &constants);
        let (module, info) = fixed.map_err(|error| error.to_string())?;
        let unchecked = naga::proc::BoundsCheckPolicy::Unchecked;
        let options = spv::Options {
            lang_version: self.version,
            flags: spv::WriterFlags::empty(),
            bounds_check_policies: naga::proc::BoundsCheckPolicies {
                index: unchecked,
                buffer: unchecked,
                image_load: unchecked,
                binding_array: unchecked,
            },
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            emit_int_div_checks: false,
            ..spv::Options::default()
        };
        let pipeline = spv::PipelineOptions { shader_stage: stage, entry_point: entry.to_string() };
        let words = spv::write_vec(&module, &info, &options, Some(&pipeline));
        Ok(preserving_nan(without_contraction(&words.map_err(|error| error.to_string())?), preserved))
    }
}

impl WgslModule {
    /// Returns the module without code that is unreachable with these constants: everything after a branch that a constant selects and that
    /// returns. Drivers that inline functions before constant folding take minutes otherwise.
    fn without_unreachable_code(&self, constants: &[(&str, f64)]) -> naga::Module {
        let mut module = self.module.clone();
        let naga::Module { functions, overrides, .. } = &mut module;
        for (_, function) in functions.iter_mut() {
            let is_set = |condition| match function.expressions[condition] {
                Expression::Override(known) => constants
                    .iter()
                    .any(|(name, value)| overrides[known].name.as_deref() == Some(*name) && *value != 0.0),
                _ => false,
            };
            let returning = |statement: &Statement| match statement {
                Statement::If { condition, accept, .. } if is_set(*condition) => {
                    matches!(accept.last(), Some(Statement::Return { .. })).then(|| accept.clone())
                }
                _ => None,
            };
            let found = function.body.iter().enumerate().find_map(|(at, statement)| Some((at, returning(statement)?)));
            if let Some((at, taken)) = found {
                function.body.cull(at..);
                function.body.extend_block(taken);
                // naga keeps a named expression even if nothing uses it, and fails for the result of a call that is gone.
                function.named_expressions.clear();
            }
        }
        module
    }
}

/// Number of words before the first instruction.
const HEADER: usize = 5;
const OP_DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;

/// Returns the module with `NoContraction` on every float operation.
fn without_contraction(words: &[u32]) -> Vec<u32> {
    let (mut decorations, mut place) = (Vec::new(), None);
    let mut at = HEADER;
    while at < words.len() {
        let (length, opcode) = ((words[at] >> 16) as usize, words[at] & 0xFFFF);
        match opcode {
            // OpDecorate and the section after decorations: types and constants.
            OP_DECORATE | 72..=75 | 19..=39 => place = place.or(Some(at)),
            // Negation, sum, difference, product, quotient, remainders, comparisons.
            127 | 129 | 131 | 133 | 136 | 140 | 141 | 180..=191 => {
                decorations.extend([3 << 16 | OP_DECORATE, words[at + 2], NO_CONTRACTION]);
            }
            _ => {}
        }
        at += length.max(1);
    }
    let place = place.unwrap_or(words.len());
    [&words[..place], &decorations, &words[place..]].concat()
}

/// OpEntryPoint; its third word is the id of the function.
const OP_ENTRY_POINT: u32 = 15;
const OP_CAPABILITY: u32 = 17;
/// The capability and the execution mode SignedZeroInfNanPreserve.
const PRESERVE: [u32; 2] = [4466, 4461];

/// Returns the module with the execution mode `SignedZeroInfNanPreserve` for floats of these widths in bits.
fn preserving_nan(words: Vec<u32>, widths: &[u32]) -> Vec<u32> {
    if widths.is_empty() {
        return words;
    }
    // The end of the capabilities, and that of the entry points with the ids of their functions.
    let (mut capabilities, mut entries, mut functions) = (HEADER, HEADER, Vec::new());
    let mut at = HEADER;
    while at < words.len() {
        let next = at + ((words[at] >> 16) as usize).max(1);
        match words[at] & 0xFFFF {
            OP_CAPABILITY => capabilities = next,
            OP_ENTRY_POINT => {
                entries = next;
                functions.push(words[at + 2]);
            }
            _ => {}
        }
        at = next;
    }
    let mut name = b"SPV_KHR_float_controls".to_vec();
    name.resize(name.len() / 4 * 4 + 4, 0);
    let name: Vec<u32> =
        name.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
    let capability = [2 << 16 | OP_CAPABILITY, PRESERVE[0]];
    let extension = [&[(name.len() as u32 + 1) << 16 | 10], &name[..]].concat();
    let modes = functions
        .iter()
        .flat_map(|function| widths.iter().map(move |width| [4 << 16 | 16, *function, PRESERVE[1], *width]));
    let modes: Vec<u32> = modes.flatten().collect();
    [&words[..capabilities], &capability, &extension, &words[capabilities..entries], &modes, &words[entries..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        override width: u32 = 1u;
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @compute @workgroup_size(width) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
            x[at.x] = x[at.x] * x[0] + x[1] - f32(x[2] < x[3]);
        }";

    #[test]
    fn translate_decorates_every_float_operation() {
        let module = parse(SOURCE, Capabilities::empty(), "test", "main").expect("it is valid");
        assert_eq!(module.overrides().collect::<Vec<_>>(), ["width"]);
        let words = module.translate("main", &[("width", 64.0)], &[]).expect("it translates");
        let mut decorated = Vec::new();
        let mut results = Vec::new();
        let mut at = HEADER;
        while at < words.len() {
            match words[at] & 0xFFFF {
                OP_DECORATE if words[at + 2] == NO_CONTRACTION => decorated.push(words[at + 1]),
                129 | 131 | 133 | 184 => results.push(words[at + 2]),
                _ => {}
            }
            at += (words[at] >> 16) as usize;
        }
        assert_eq!(at, words.len(), "the instructions end where the module does");
        assert_eq!(results.len(), 4);
        assert_eq!(decorated, results);
    }

    #[test]
    fn translate_declares_that_nan_is_kept() {
        let module = parse(SOURCE, Capabilities::empty(), "test", "main").expect("it is valid");
        let words = module.translate("main", &[("width", 64.0)], &[16, 32]).expect("it translates");
        let (mut seen, mut at) = (Vec::new(), HEADER);
        while at < words.len() {
            let length = (words[at] >> 16) as usize;
            match (words[at] & 0xFFFF, words[at + 1..at + length].to_vec()) {
                (17, capability) if capability == [4466] => seen.push("capability".to_string()),
                (10, name) => {
                    let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
                    seen.push(String::from_utf8(bytes).unwrap().trim_end_matches('\0').to_string());
                }
                (15, entry) => seen.push(format!("entry {}", entry[1])),
                (16, mode) if mode[1] == 4461 => seen.push(format!("mode {} of {}", mode[2], mode[0])),
                _ => {}
            }
            at += length;
        }
        let entry =
            seen.iter().find_map(|line| line.strip_prefix("entry ")).expect("there is an entry point").to_string();
        let modes = [16, 32].map(|width| format!("mode {width} of {entry}"));
        let extensions = seen.iter().filter(|line| line.starts_with("SPV_")).cloned().collect::<Vec<_>>();
        assert!(extensions.contains(&"SPV_KHR_float_controls".to_string()), "{seen:?}");
        assert_eq!(
            seen.iter().filter(|line| line.starts_with("mode")).collect::<Vec<_>>(),
            modes.iter().collect::<Vec<_>>()
        );
        assert_eq!(seen[0], "capability", "{seen:?}");
        assert_eq!(
            module.translate("main", &[("width", 64.0)], &[]).expect("it translates").len(),
            words.len() - 2 - 7 - 8
        );
    }

    #[test]
    fn translate_drops_code_that_constants_make_unreachable() {
        let source = "
            override fused: bool = false;
            @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            fn root(a: f32) -> f32 { return sqrt(a); }
            fn f(a: f32) -> f32 {
                if fused { return fma(a, a, a); }
                let named = root(a);
                return named;
            }
            @compute @workgroup_size(1) fn main() { x[0] = f(x[0]); }";
        let module = parse(source, Capabilities::empty(), "test", "main").expect("it is valid");
        // The instruction number of GLSL.std.450 is the fifth word of OpExtInst: Sqrt is 31, Fma 50.
        let calls = |fused: f64, number: u32| {
            let words = module.translate("main", &[("fused", fused)], &[]).expect("it translates");
            let mut at = HEADER;
            let mut count = 0;
            while at < words.len() {
                count += usize::from(words[at] & 0xFFFF == 12 && words[at + 4] == number);
                at += (words[at] >> 16) as usize;
            }
            count
        };
        assert_eq!((calls(1.0, 50), calls(1.0, 31)), (1, 0));
        assert_eq!((calls(0.0, 50), calls(0.0, 31)), (1, 1));
    }

    #[test]
    fn parse_reports_a_log_for_invalid_programs() {
        for (source, entry) in [("fn main() { let x = 1u + 1i; }", "main"), ("nothing", "main"), (SOURCE, "other")] {
            let error = parse(source, Capabilities::empty(), "test", entry).err().expect("it is rejected");
            assert!(error.is_compile_failed() && !error.notes().is_empty(), "{error}");
        }
    }
}
