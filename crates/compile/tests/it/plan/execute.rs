//! Runs a plan with the kernel interpreter, and compares it with the graph interpreter.

use panoply_compile::plan::{Plan, PlanArg, PlanEpilogue, PlanStep, Role, plan};
use panoply_compile::schedule::schedule;
use panoply_ir::graph::{Graph, Op};
use panoply_ir::graph_interpret::{self, Array, Data};
use panoply_ir::interpret::{self, Access, Arg, Observer, Overflow};
use panoply_ir::kernel::{Kernel, Param};
use panoply_ir::routine::{Gemm, Layout, Routine};
use panoply_ir::{DType, Error, Result, Scalar, Target, Verified};

/// Routines that a device offers in a test.
#[derive(Clone, Copy, Debug)]
pub enum Offers {
    Nothing,
    Gemm,
}

impl Offers {
    pub fn takes(self, _: &Routine) -> bool {
        matches!(self, Offers::Gemm)
    }
}

/// Returns the targets used for every graph: a CPU with lanes, GPUs with groups, and a device with few bindings and
/// small buffers.
pub fn targets() -> [Target; 4] {
    let few = Target {
        max_bindings: 5,
        max_group_items: 64,
        max_group: [64; 3],
        max_buffer_bytes: 1000,
        ..Target::opencl_minimum()
    };
    [Target::cpu(), Target::opencl_minimum(), Target::cuda_minimum(80), few]
}

/// Plans a graph for every target, with and without routines, and compares all outputs with the graph interpreter's.
#[track_caller]
pub fn check(name: &str, graph: &Graph) {
    let (leaves, slots) = inputs(graph, 7);
    let want = graph_interpret::run(graph, &leaves, &slots).unwrap();
    let donated = Graph { donated: (0..leaves.len() as u32).collect(), ..graph.clone() };
    for (graph, name) in [(graph, name), (&donated, &format!("{name} with donated leaves"))] {
        check_plans(name, graph, &leaves, &slots, &want);
    }
}

#[track_caller]
fn check_plans(name: &str, graph: &Graph, leaves: &[Array], slots: &[Scalar], want: &[Array]) {
    for target in targets() {
        for offers in [Offers::Nothing, Offers::Gemm] {
            let plan = plan(graph, &target, &|routine| offers.takes(routine)).unwrap();
            let bindings = |step: &PlanStep| step.buffers().count() as u32;
            assert!(plan.steps.iter().all(|step| bindings(step) <= target.max_bindings), "{name}: {plan}");
            let alone = |bytes: &u64| plan.buffers.iter().any(|buffer| buffer.bytes() == *bytes);
            let holds = |bytes: &u64| *bytes <= target.max_buffer_bytes || alone(bytes);
            assert!(plan.arenas.iter().all(holds), "{name}: {:?} in {plan}", plan.arenas);
            let have = run(&plan, leaves, slots).unwrap_or_else(|error| {
                panic!(
                    "{name}, {:?}: {error}\n{plan}{}",
                    target.style,
                    schedule(graph, &target, &|routine| offers.takes(routine)).unwrap()
                )
            });
            for (number, (have, want)) in have.iter().zip(want).enumerate() {
                if let Some(wrong) = difference(have, want) {
                    let style = target.style;
                    panic!("{name}, output {number}, {style:?}, {offers:?}: {wrong}\n{plan}");
                }
            }
        }
    }
}

/// Returns leaves and slots with values small enough for every type, determined by the seed.
pub fn inputs(graph: &Graph, seed: u64) -> (Vec<Array>, Vec<Scalar>) {
    let (mut leaves, mut slots) = (Vec::new(), Vec::new());
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 33
    };
    for node in &graph.nodes {
        let mut element = |dtype: DType| {
            let bits = draw();
            match dtype {
                DType::Bool => Scalar::from_i128(dtype, (bits % 2) as i128),
                dtype if dtype.is_float() => Scalar::from_f64(dtype, (bits % 33) as f64 / 8.0 - 2.0),
                // Mostly positions within a short axis, some out of range on either side.
                dtype if dtype.is_signed() => Scalar::from_i128(dtype, (bits % 9) as i128 - 1),
                _ => Scalar::from_i128(dtype, (bits % 9) as i128),
            }
        };
        match node.op {
            Op::Input(n) if n as usize == leaves.len() => {
                let elements: Vec<Scalar> = (0..node.shape.numel()).map(|_| element(node.dtype)).collect();
                leaves.push(Array::new(node.shape.clone(), node.dtype, &elements));
            }
            Op::ScalarInput(n) if n as usize == slots.len() => slots.push(element(node.dtype)),
            _ => {}
        }
    }
    (leaves, slots)
}

/// Observer that fails on accesses and overflows that a generated kernel must not have.
struct Strict;

impl Observer for Strict {
    fn access(&mut self, access: Access) -> Result<()> {
        match access.element {
            Some(element) if element < access.len => Ok(()),
            element => Err(Error::mistake(format!("{:?} of element {element:?}, length {}", access.touch, access.len))),
        }
    }

    fn overflow(&mut self, overflow: Overflow) -> Result<()> {
        Err(Error::mistake(format!("{} of {:?} overflows", overflow.op.name(), overflow.operands)))
    }
}

/// Runs a plan and returns its outputs as elements.
pub fn run(plan: &Plan, leaves: &[Array], slots: &[Scalar]) -> Result<Vec<Vec<Scalar>>> {
    let mut arenas: Vec<Vec<u8>> = plan.arenas.iter().map(|bytes| vec![0xAA; *bytes as usize]).collect();
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for buffer in &plan.buffers {
        memory.push(match buffer.role {
            Role::Leaf(n) | Role::Donated(n) => to_bytes(&leaves[n as usize].scalars()),
            Role::Output | Role::Temp { .. } => vec![0xAA; buffer.bytes() as usize],
        });
    }
    for step in &plan.steps {
        // Temporaries are kept in the arenas between steps, so that a wrong lifetime gives a wrong result.
        let temps: Vec<(usize, usize, std::ops::Range<usize>)> = step
            .buffers()
            .filter_map(|id| match plan.buffers[id.index()].role {
                Role::Temp { arena, offset } => {
                    let start = offset as usize;
                    Some((id.index(), arena, start..start + plan.buffers[id.index()].bytes() as usize))
                }
                _ => None,
            })
            .collect();
        temps.iter().for_each(|(id, arena, range)| memory[*id].copy_from_slice(&arenas[*arena][range.clone()]));
        match step {
            PlanStep::Kernel { kernel, grid, args } => launch(kernel, *grid, args, &mut memory, slots)?,
            PlanStep::Copy { from, to } => memory[to.index()] = memory[from.index()].clone(),
            PlanStep::Routine { routine, buffers, epilogue } => {
                let Routine::Gemm(gemm) = routine else { panic!("the only routines are matrix products") };
                let operand = |at: usize| {
                    let id = buffers[at].index();
                    from_bytes(&memory[id], plan.buffers[id].dtype)
                };
                let (last, result) = (buffers.len() - 1, buffers[buffers.len() - 1].index());
                let mut product = multiply(gemm, &operand(0), &operand(1), &operand(last));
                if gemm.bias {
                    let added =
                        |(sum, bias): (&Scalar, &Scalar)| Scalar::from_f64(sum.dtype, sum.to_f64() + bias.to_f64());
                    product = product.iter().zip(operand(2).iter().cycle()).map(added).collect();
                }
                memory[result] = to_bytes(&product);
                if let Some(PlanEpilogue { kernel, grid, args, keep_output: keeps }) = epilogue.as_deref() {
                    launch(kernel, *grid, args, &mut memory, slots)?;
                    // An output that is not kept might never have been written.
                    memory[result].iter_mut().filter(|_| !keeps).for_each(|byte| *byte = 0xAA);
                }
            }
        }
        temps.iter().for_each(|(id, arena, range)| arenas[*arena][range.clone()].copy_from_slice(&memory[*id]));
    }
    let output = |id: &panoply_compile::plan::BufferId| from_bytes(&memory[id.index()], plan.buffers[id.index()].dtype);
    Ok(plan.outputs.iter().map(output).collect())
}

fn launch(
    kernel: &Verified<Kernel>,
    grid: [u64; 3],
    args: &[PlanArg],
    memory: &mut [Vec<u8>],
    slots: &[Scalar],
) -> Result<()> {
    let group = kernel.group_size.unwrap_or([7, 2, 1]);
    let mut bound: Vec<Option<&mut Vec<u8>>> = memory.iter_mut().map(Some).collect();
    let given = args.iter().zip(&kernel.params).map(|(arg, param)| match (arg, param) {
        (PlanArg::Buffer(id), Param::Buffer(_)) => {
            Arg::Write(bound[id.index()].take().expect("a kernel binds each buffer at most once"))
        }
        (PlanArg::ScalarInput(n), Param::Scalar { .. }) => Arg::Scalar(slots[*n as usize]),
        (PlanArg::Scalar(value), Param::Scalar { .. }) => Arg::Scalar(*value),
        other => panic!("argument and parameter do not match: {other:?}"),
    });
    let mut given: Vec<Arg> = given.collect();
    let ran = interpret::run(kernel, grid, group, &mut given, &mut Strict);
    ran.map_err(|error| error.note(kernel.to_string()))
}

fn multiply(gemm: &Gemm, a: &[Scalar], b: &[Scalar], c: &[Scalar]) -> Vec<Scalar> {
    let at = |l: Layout, i: usize, r: usize, c: usize| l.offset + i * l.batch + r * l.row + c * l.column;
    let mut product = c.to_vec();
    for i in 0..gemm.batch {
        for row in 0..gemm.m {
            for column in 0..gemm.n {
                let term = |k| a[at(gemm.a, i, row, k)].to_f64() * b[at(gemm.b, i, k, column)].to_f64();
                let sum: f64 = (0..gemm.k).map(term).sum();
                product[at(gemm.c, i, row, column)] = Scalar::from_f64(gemm.result(), sum);
            }
        }
    }
    product
}

fn to_bytes(elements: &[Scalar]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.bits.to_le_bytes().into_iter().take(element.dtype.bytes())).collect()
}

fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    let element = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        Scalar { dtype, bits: u64::from_le_bytes(word) }
    };
    bytes.chunks(dtype.bytes()).map(element).collect()
}

/// Returns a description of the first element that differs by more than the rounding error of its type.
pub fn difference(have: &[Scalar], want: &Array) -> Option<String> {
    if have.len() != want.shape.numel() {
        return Some(format!("{} elements, expected {}", have.len(), want.shape.numel()));
    }
    let tolerance = match want.dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    };
    // A finite number that the type rounds to infinity.
    let rounded = want.scalars();
    let close = |have: &Scalar, at: usize| match &want.data {
        Data::Ints(data) => have.to_i128() == data[at],
        Data::Floats(data) => {
            let (have, want) = (have.to_f64(), data[at]);
            have == want
                || have == rounded[at].to_f64()
                || (have.is_nan() && want.is_nan())
                || (have - want).abs() <= tolerance * (1.0 + want.abs())
        }
    };
    let at = (0..have.len()).find(|at| !close(&have[*at], *at))?;
    Some(format!("element {at} is {}, expected {}", have[at], rounded[at]))
}
