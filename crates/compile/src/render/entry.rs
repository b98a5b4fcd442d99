//! Renders the program around a kernel's statements: pragmas, called functions, and the entry point with its arguments.

use panoply_ir::kernel::{Access, Builtin, Expr, ExprId, Kernel, Op, Param, Space};
use panoply_ir::{DType, Target};

use super::GeneratedSource;
use super::c_dialect::{CDialect, Extensions, mentioned};
use super::expr::{Value, Writer};
use super::names::Names;
use super::ops::{Ops, in_memory};
use super::prelude::Prelude;
use super::requirements::uses;
use crate::opt::walk::live_exprs;

/// Renders a kernel without collectives as a program.
pub(super) fn program(
    kernel: &Kernel,
    target: &Target,
    dialect: &'static CDialect,
    index_bits: u32,
) -> GeneratedSource {
    let live = live_exprs(kernel);
    let native_f16 = target.f16 && uses(kernel, &live, DType::F16);
    let index = if index_bits == 32 { DType::U32 } else { DType::U64 };
    let mut names = Names::default();
    let entry = names.pick(&kernel.name);
    let mems = kernel.mems.iter().map(|mem| names.pick(&mem.name)).collect();
    let param = |param: &Param| match param {
        Param::Scalar { name, .. } => Some(Value::atom(names.pick(name))),
        Param::Buffer(_) => None,
    };
    let params = kernel.params.iter().map(param).collect();
    let mut writer = Writer {
        kernel,
        ops: Ops { dialect, prelude: Prelude::new(dialect, native_f16), index },
        names,
        mems,
        params,
        locals: vec![Vec::new(); kernel.locals.len()],
        lines: Vec::new(),
        depth: 1,
        temporaries: 0,
    };
    writer.prologue(&builtins(kernel, &live));
    writer.block(&kernel.body);
    let subgroup = shuffles(kernel, &live).then(|| target.subgroup_of(kernel.group_size));
    let extensions = Extensions { f64: uses(kernel, &live, DType::F64), f16: native_f16, subgroup };
    let program = format!(
        "{}{} {entry}(\n    {})\n{{\n{}\n}}\n",
        writer.ops.prelude.source(),
        (dialect.entry)(kernel.group_size, &extensions),
        arguments(&writer).join(",\n    "),
        writer.lines.join("\n"),
    );
    let source = format!("{}{}{program}", (dialect.preamble)(&extensions), mentioned(dialect.library, &program));
    GeneratedSource { source, entry, index_bits }
}

/// Returns true if the kernel depends on how work-items form subgroups.
fn shuffles(kernel: &Kernel, live: &[ExprId]) -> bool {
    let mut shuffles = live.iter().any(|id| kernel.exprs.get(*id) == Expr::Builtin(Builtin::SubgroupLane));
    kernel.walk(&mut |stmt| shuffles |= matches!(stmt.op, Op::Collective { .. }));
    shuffles
}

/// Returns the launch builtins stored in variables, in a fixed order.
pub(super) fn builtins(kernel: &Kernel, live: &[ExprId]) -> Vec<Builtin> {
    let mut known = Vec::new();
    if kernel.group_size.is_none() {
        known.extend((0..3).map(Builtin::GlobalId));
    }
    for id in live {
        match kernel.exprs.get(*id) {
            // A size is an argument, and the size of a fixed group is a constant.
            Expr::Builtin(Builtin::GlobalSize(_)) => {}
            Expr::Builtin(Builtin::GroupSize(_)) if kernel.group_size.is_some() => {}
            Expr::Builtin(builtin) if !known.contains(&builtin) => known.push(builtin),
            _ => {}
        }
    }
    known
}

/// Returns the declarations of the arguments, as described by `Signature` in the crate `device`.
fn arguments(writer: &Writer<'_>) -> Vec<String> {
    let Writer { kernel, ops, .. } = writer;
    let dialect = ops.dialect;
    let index = ops.name(ops.index);
    let mut lines = Vec::new();
    for (param, value) in kernel.params.iter().zip(&writer.params) {
        match (param, value) {
            (Param::Buffer(mem), _) => {
                let constant = if kernel.mem(*mem).space == Space::Buffer(Access::In) { "const " } else { "" };
                let (name, ty) = (&writer.mems[mem.index()], ops.name(in_memory(kernel.mem(*mem).dtype)));
                let pointer = format!("{}{constant}{ty} *{}{name}", dialect.global, dialect.restrict);
                lines.push(format!("{pointer}, const {index} {name}off, const {index} {name}len"));
            }
            (Param::Scalar { ty, .. }, Some(value)) => {
                let name = &value.lanes[0];
                let (ty, suffix) = match ty.dtype() {
                    Some(dtype) if in_memory(dtype) != dtype => (in_memory(dtype), "bits"),
                    dtype => (ops.register(dtype), ""),
                };
                lines.push(format!("const {} {name}{suffix}", ops.name(ty)));
            }
            (Param::Scalar { .. }, None) => unreachable!("a scalar parameter has a value"),
        }
    }
    lines.push(format!("const {index} size0, const {index} size1, const {index} size2"));
    lines
}
