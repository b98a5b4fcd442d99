//! Renders the module around a kernel's statements: required features, the entry point with its arguments, arrays,
//! launch builtins.

use panoply_ir::kernel::{Access, Builtin, Kernel, Param, Space};
use panoply_ir::{DType, Target};

use super::module::Writer;
use crate::opt::walk::live_exprs;
use crate::render::GeneratedSource;
use crate::render::assembler::Assembler;
use crate::render::entry::builtins;
use crate::render::ops::in_memory;
use crate::render::requirements::uses;

/// Renders a kernel without collectives except shuffles as a program.
pub(in crate::render) fn program(kernel: &Kernel, target: &Target, index_bits: u32) -> GeneratedSource {
    let live = live_exprs(kernel);
    let index = if index_bits == 32 { DType::U32 } else { DType::U64 };
    let mut writer = Writer::new(kernel, index, target.f16 && uses(kernel, &live, DType::F16));
    let entry = writer.names.pick(&kernel.name);
    let parameters = writer.parameters();
    writer.prologue();
    let interface = writer.numbers(&builtins(kernel, &live));
    writer.block(&kernel.body);
    writer.finish();
    let (void, types) = (writer.void(), parameters.iter().map(|(_, ty)| ty.as_str()).collect::<Vec<&str>>().join(" "));
    let function = writer.global(|| "kernel".into(), format!("OpTypeFunction {void} {types}"));
    let shuffles = writer.extensions.contains(SUBGROUPS);
    let mut lines = vec![format!("; SPIR-V\n; Version: 1.{}", u32::from(shuffles))];
    lines.extend(writer.capabilities.iter().map(|capability| format!("OpCapability {capability}")));
    lines.extend(writer.extensions.iter().map(|extension| format!("OpExtension \"{extension}\"")));
    lines.push("%opencl = OpExtInstImport \"OpenCL.std\"".into());
    lines.push("OpMemoryModel Physical64 OpenCL".into());
    lines.push(format!("OpEntryPoint Kernel %{entry} \"{entry}\"{interface}"));
    lines.push(format!("OpExecutionMode %{entry} ContractionOff"));
    if let Some([x, y, z]) = kernel.group_size {
        lines.push(format!("OpExecutionMode %{entry} LocalSize {x} {y} {z}"));
    }
    if shuffles {
        lines.push(format!("OpExecutionMode %{entry} SubgroupSize {}", target.subgroup_of(kernel.group_size)));
    }
    lines.append(&mut writer.decorations);
    lines.append(&mut writer.globals);
    lines.push(format!("%{entry} = OpFunction {void} None {function}"));
    lines.extend(parameters.iter().map(|(name, ty)| format!("{name} = OpFunctionParameter {ty}")));
    lines.push(format!("{FIRST} = OpLabel"));
    lines.append(&mut writer.variables);
    lines.append(&mut writer.lines);
    lines.push("OpFunctionEnd\n".into());
    GeneratedSource { source: lines.join("\n"), entry, index_bits }
}

/// Label of the first block.
pub(super) const FIRST: &str = "%L0";
const SUBGROUPS: &str = "SPV_INTEL_subgroups";

impl Writer<'_> {
    /// Records that the program depends on how work-items form subgroups.
    pub fn uses_subgroups(&mut self) {
        self.extensions.insert(SUBGROUPS);
        self.capabilities.extend(["SubgroupDispatch", "SubgroupShuffleINTEL"]);
    }

    /// Returns the arguments' names and types, as described by `Signature` in the crate `device`.
    fn parameters(&mut self) -> Vec<(String, String)> {
        let (kernel, index) = (self.kernel, self.ty(self.index));
        let mut declared = Vec::new();
        self.bases = vec![String::new(); kernel.mems.len()];
        self.lens = self.bases.clone();
        for param in &kernel.params {
            match param {
                Param::Buffer(mem) => {
                    let (known, name) = (kernel.mem(*mem), format!("%{}", self.names.pick(&kernel.mem(*mem).name)));
                    let element = self.ty(in_memory(known.dtype));
                    let pointer = self.pointer(self.class(*mem), &element);
                    self.decorations.push(format!("OpDecorate {name} FuncParamAttr NoAlias"));
                    if known.space == Space::Buffer(Access::In) {
                        self.decorations.push(format!("OpDecorate {name} FuncParamAttr NoWrite"));
                    }
                    let (offset, len) = (format!("{name}off"), format!("{name}len"));
                    self.bases[mem.index()].clone_from(&name);
                    self.lens[mem.index()].clone_from(&len);
                    declared.extend([(name, pointer), (offset, index.clone()), (len, index.clone())]);
                    self.params.push(None);
                }
                Param::Scalar { ty, name } => {
                    let (dtype, name) = (self.element(ty.dtype()), format!("%{}", self.names.pick(name)));
                    declared.push((name.clone(), self.ty(in_memory(dtype))));
                    self.params.push(Some(name));
                }
            }
        }
        declared.extend((0..3).map(|axis| (format!("%size{axis}"), index.clone())));
        declared
    }

    /// Emits the start of the function: adjusted pointers, converted scalars, arrays.
    fn prologue(&mut self) {
        let kernel = self.kernel;
        for (position, param) in kernel.params.iter().enumerate() {
            match param {
                Param::Buffer(mem) => {
                    let name = self.bases[mem.index()].clone();
                    self.bases[mem.index()] = self.advance(*mem, &name, &format!("{name}off"));
                }
                Param::Scalar { ty, .. } => {
                    let raw = self.params[position].clone().expect("a scalar has a value");
                    let dtype = self.element(ty.dtype());
                    self.params[position] = Some(self.convert_loaded(dtype, raw));
                }
            }
        }
        for (at, mem) in kernel.mems.iter().enumerate() {
            let (Space::Shared(len) | Space::Private(len)) = mem.space else { continue };
            let element = self.ty(in_memory(mem.dtype));
            let array = self.array(&element, len);
            self.lens[at] = self.int(self.index, len.into());
            self.bases[at] = match mem.space {
                Space::Shared(_) => {
                    let (pointer, name) = (self.pointer("Workgroup", &array), self.names.pick(&mem.name));
                    self.globals.push(format!("%{name} = OpVariable {pointer} Workgroup"));
                    format!("%{name}")
                }
                Space::Private(_) | Space::Buffer(_) => self.variable(&array),
            };
        }
    }

    /// Loads the launch builtins, exits work-items beyond an exact grid size, and returns the entry point's interface.
    fn numbers(&mut self, wanted: &[Builtin]) -> String {
        for axis in 0..3 {
            self.builtins.insert(Builtin::GlobalSize(axis), format!("%size{axis}"));
        }
        let mut interface = String::new();
        for builtin in wanted {
            let (name, axis) = variable(*builtin);
            let held = if axis.is_some() { DType::U64 } else { DType::U32 };
            let element = self.ty(held);
            let ty = if axis.is_some() { self.vector(&element, 3) } else { element.clone() };
            let pointer = self.pointer("Input", &ty);
            let entry = format!(" %{name}");
            if !interface.contains(&entry) {
                self.globals.push(format!("%{name} = OpVariable {pointer} Input"));
                self.decorations.push(format!("OpDecorate %{name} BuiltIn {name}"));
                interface += &entry;
            }
            let mut value = self.op(&ty, "OpLoad", &[&format!("%{name}")]);
            if let Some(axis) = axis {
                value = self.op(&element, "OpCompositeExtract", &[&value, &axis.to_string()]);
            } else {
                self.uses_subgroups();
            }
            let value = self.cast(held, self.index, &value);
            self.builtins.insert(*builtin, value);
        }
        if self.kernel.group_size.is_none() {
            // Launches are rounded up to whole groups, but this kernel has an exact grid size.
            for axis in 0..3 {
                let id = self.builtins[&Builtin::GlobalId(axis)].clone();
                let beyond = self.compare("OpUGreaterThanEqual", &[&id, &format!("%size{axis}")]);
                self.if_then(&beyond, Writer::emit_return);
            }
        }
        interface
    }
}

/// Returns the variable that holds a launch builtin, and the component of it.
fn variable(builtin: Builtin) -> (&'static str, Option<u8>) {
    match builtin {
        Builtin::GlobalId(axis) => ("GlobalInvocationId", Some(axis)),
        Builtin::LocalId(axis) => ("LocalInvocationId", Some(axis)),
        Builtin::GroupId(axis) => ("WorkgroupId", Some(axis)),
        Builtin::GroupSize(axis) => ("WorkgroupSize", Some(axis)),
        Builtin::GroupCount(axis) => ("NumWorkgroups", Some(axis)),
        Builtin::SubgroupLane => ("SubgroupLocalInvocationId", None),
        Builtin::GlobalSize(_) | Builtin::SubgroupSize => unreachable!("sizes are arguments or constants"),
    }
}
