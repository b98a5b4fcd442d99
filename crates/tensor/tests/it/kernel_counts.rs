//! Number of kernels and routines of expressions, so that a change that prevents fusion is detected here and not in a benchmark.

use panoply_compile::plan::{PlanStep, plan};
use panoply_ir::Target;
use panoply_ir::kernel::{Kernel, Space};
use panoply_tensor::eval::TracedGraph;
use panoply_tensor::{AttentionOptions, ConvOptions, DType, Device, Dim, SortOrder, Tensor, Window};

/// An expression with the maximum number of steps on the CPU for its value, and for its value with all gradients.
struct Row {
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    forward: usize,
    both: usize,
}

const fn row(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    op: fn(&[Tensor]) -> Tensor,
    forward: usize,
    both: usize,
) -> Row {
    Row { name, inputs, op, forward, both }
}

const ROWS: &[Row] = &[
    row("layer norm", &[&[64, 256]], |x| x[0].layer_norm(1e-5), 1, 2),
    row("group norm", &[&[16, 32, 8, 8]], |x| x[0].group_norm(4, 1e-5), 1, 2),
    row("softmax", &[&[64, 256]], |x| x[0].softmax(-1), 1, 2),
    row("product, bias, gelu", &[&[64, 96], &[96, 128], &[128]], |x| (x[0].matmul(&x[1]) + &x[2]).gelu(), 1, 7),
    row("conv2d, gelu", &[&[16, 8, 16, 16], &[16, 8, 3, 3]], |x| x[0].conv(&x[1], &padded()).gelu(), 1, 5),
    row("conv2d", &[&[16, 8, 16, 16], &[16, 8, 3, 3]], |x| x[0].conv(&x[1], &padded()), 1, 4),
    row(
        "conv2d in bf16",
        &[&[16, 8, 16, 16], &[16, 8, 3, 3]],
        |x| x[0].cast(DType::BF16).conv(&x[1].cast(DType::BF16), &padded()).relu().cast(DType::F32),
        4,
        9,
    ),
    row(
        "attention in bf16",
        &[&[2, 4, 32, 16], &[2, 4, 32, 16], &[2, 4, 32, 16]],
        |x| {
            let [q, k, v] = [0, 1, 2].map(|at| x[at].cast(DType::BF16));
            q.scaled_dot_product_attention(&k, &v, &AttentionOptions::default()).cast(DType::F32)
        },
        5,
        9,
    ),
    row(
        "conv2d, bias, relu",
        &[&[16, 8, 16, 16], &[16, 8, 3, 3], &[16]],
        |x| (x[0].conv(&x[1], &padded()) + x[2].unsqueeze_like_channels(&x[0].conv(&x[1], &padded()))).relu(),
        3,
        9,
    ),
    row("max pool", &[&[16, 8, 16, 16]], |x| x[0].max_pool(&Window { stride: [2, 2], ..Window::new([2, 2]) }), 1, 3),
    row(
        "average pool",
        &[&[16, 8, 16, 16]],
        |x| x[0].avg_pool(&Window { padding: [1, 1], ..Window::new([3, 3]) }),
        1,
        3,
    ),
    row(
        "attention",
        &[&[2, 4, 32, 16], &[2, 4, 32, 16], &[2, 4, 32, 16]],
        |x| {
            x[0].scaled_dot_product_attention(
                &x[1],
                &x[2],
                &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
            )
        },
        1,
        10,
    ),
    row("fft of 128", &[&[8, 128, 2]], |x| x[0].fft(-1), 1, 3),
    row("fft of 1024", &[&[8, 1024, 2]], |x| x[0].fft(-1), 1, 3),
    row("rfft of 4096", &[&[8, 4096]], |x| x[0].rfft(-1), 1, 4),
    row("fft of 1009", &[&[8, 1009, 2]], |x| x[0].fft(-1), 1, 3),
    row("fft2 of 256", &[&[2, 256, 256, 2]], |x| x[0].fft2(), 2, 5),
    row("sort", &[&[8, 64]], |x| x[0].sort(-1, SortOrder::Ascending), 1, 3),
    row("sort of each", &[&[8, 64]], |x| each(x, |x| x.sort(-1, SortOrder::Ascending)), 1, 3),
    row("cholesky of each", &[&[8, 16, 16]], |x| each(x, |x| x.matmul(&x.t()).cholesky()), 2, 12),
    row(
        "attention of each",
        &[&[2, 4, 32, 16]],
        |x| {
            each(x, |x| {
                x.scaled_dot_product_attention(
                    x,
                    x,
                    &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
                )
            })
        },
        1,
        10,
    ),
];

/// Applies a function to each element along the first axis.
fn each(x: &[Tensor], f: fn(&Tensor) -> Tensor) -> Tensor {
    let [y] = Tensor::vmap([&x[0]], |[x]| [f(x)]);
    y
}

fn padded() -> ConvOptions<2> {
    ConvOptions { padding: [1, 1], ..ConvOptions::default() }
}

fn steps(device: &Device, roots: &[&Tensor]) -> Vec<PlanStep> {
    let traced = TracedGraph::new(device, roots).unwrap();
    plan(&traced.graph, device.target(), &|routine| device.supports_routine(routine)).unwrap().steps
}

#[test]
fn expressions_take_no_more_kernels_than_expected() {
    let device = Device::get("cpu").unwrap();
    let mut wrong = Vec::new();
    device.scope(|| {
        for row in ROWS {
            let inputs: Vec<Tensor> = row
                .inputs
                .iter()
                .map(|shape| Tensor::from_slice(&vec![0.5f32; shape.iter().product()], *shape))
                .collect();
            let value = (row.op)(&inputs);
            let gradients = value.square().sum(..).gradients(&inputs.iter().collect::<Vec<&Tensor>>()).unwrap();
            let forward = steps(&device, &[&value]).len();
            let both = steps(&device, &[&value].into_iter().chain(&gradients).collect::<Vec<&Tensor>>()).len();
            if forward > row.forward || both > row.both {
                wrong.push(format!(
                    "{}: {forward} steps, {both} with gradients; at most {} and {}",
                    row.name, row.forward, row.both
                ));
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows whose first inputs, by number, have a batch axis.
const BATCHED: &[(&str, usize)] = &[
    ("layer norm", 1),
    ("softmax", 1),
    ("product, bias, gelu", 1),
    ("conv2d, gelu", 1),
    ("max pool", 1),
    ("average pool", 1),
    ("attention", 3),
    ("fft of 128", 1),
];

/// A routine is also used if a dynamic dimension is only a batch axis.
#[test]
fn a_dynamic_batch_takes_the_same_routines() {
    let device = Device::get("cpu").unwrap();
    let routines = |steps: &[PlanStep]| steps.iter().filter(|step| matches!(step, PlanStep::Routine { .. })).count();
    device.scope(|| {
        for (name, batched) in BATCHED {
            let row = ROWS.iter().find(|row| row.name == *name).expect("a row has this name");
            let counts = [false, true].map(|open| {
                let batch = Dim::new("batch", row.inputs[0][0]);
                let tensor = |(n, shape): (usize, &&'static [usize])| {
                    let x = Tensor::from_slice(&vec![0.5f32; shape.iter().product()], *shape);
                    if open && n < *batched { x.mark_dynamic(0, &batch) } else { x }
                };
                let inputs: Vec<Tensor> = row.inputs.iter().enumerate().map(tensor).collect();
                let value = (row.op)(&inputs);
                let gradients = value.square().sum(..).gradients(&inputs.iter().collect::<Vec<&Tensor>>()).unwrap();
                let forward = steps(&device, &[&value]);
                let both = steps(&device, &[&value].into_iter().chain(&gradients).collect::<Vec<&Tensor>>());
                [forward.len(), routines(&forward), both.len(), routines(&both)]
            });
            let [plain, open] = counts;
            assert_eq!(open[..2], plain[..2], "{name}: steps and routines of the value");
            // Operands that are summed over the batch are copied, with zeros as padding.
            assert!(
                open[2] <= plain[2] + 3 && open[3] == plain[3],
                "{name}: {open:?} with gradients, expected {plain:?}"
            );
        }
    });
}

/// Sorting by counting takes time quadratic in the length of a row.
#[test]
fn numbers_of_every_type_are_sorted_by_a_routine() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool) {
            let largest = Tensor::from_slice(&[0.5f32; 512], [8, 64]).cast(dtype).topk(4, -1).values;
            let steps = steps(&device, &[&largest]);
            assert!(steps.iter().any(|step| matches!(step, PlanStep::Routine { .. })), "{dtype}");
        }
    });
}

/// Returns the kernels of an expression and its gradients, on a GPU without routines, that do not use shared memory for their operands.
fn untiled(op: fn(&[Tensor]) -> Tensor, shapes: &[&[usize]]) -> Vec<String> {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let inputs: Vec<Tensor> =
            shapes.iter().map(|shape| Tensor::from_slice(&vec![0.5f32; shape.iter().product()], *shape)).collect();
        let value = op(&inputs);
        let gradients = value.square().sum(..).gradients(&inputs.iter().collect::<Vec<&Tensor>>()).unwrap();
        let roots: Vec<&Tensor> = std::iter::once(&value).chain(&gradients).collect();
        let graph = TracedGraph::new(&device, &roots).unwrap().graph;
        let plan = plan(&graph, &Target { f64: true, ..Target::opencl_minimum() }, &|_| false).unwrap();
        let uses_shared_memory = |kernel: &Kernel| kernel.mems.iter().any(|mem| matches!(mem.space, Space::Shared(_)));
        let untiled = plan.steps.iter().filter_map(|step| match step {
            PlanStep::Kernel { kernel, .. } => (!uses_shared_memory(kernel)).then(|| kernel.name.clone()),
            PlanStep::Routine { .. } | PlanStep::Copy { .. } => Some("not a kernel".to_string()),
        });
        untiled.collect()
    })
}

#[test]
fn products_and_convolutions_are_tiled_on_a_gpu() {
    let none: [&str; 0] = [];
    assert_eq!(untiled(|x| x[0].matmul(&x[1]), &[&[8, 48, 64], &[64, 32]]), none);
    let doubles = |x: &[Tensor]| x[0].cast(DType::F64).matmul(&x[1].cast(DType::F64));
    // The operand that both products need is converted once.
    assert_eq!(untiled(doubles, &[&[8, 48, 64], &[64, 32]]), ["cast"]);
    assert_eq!(untiled(|x| x[0].conv(&x[1], &padded()), &[&[4, 32, 14, 14], &[64, 32, 3, 3]]), none);
    let strided = |x: &[Tensor]| x[0].conv(&x[1], &ConvOptions { stride: [2, 2], ..padded() });
    assert_eq!(untiled(strided, &[&[4, 32, 14, 14], &[64, 32, 3, 3]]), none);
}

/// The scores are never stored in memory. The gradients are two kernels, after one that computes row means.
#[test]
fn attention_is_one_kernel_on_a_gpu() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let shape = [4, 256, 64];
        let x = [0, 1, 2].map(|_| Tensor::from_slice(&vec![0.5f32; 4 * 256 * 64], shape));
        let value = x[0].scaled_dot_product_attention(
            &x[1],
            &x[2],
            &AttentionOptions { is_causal: true, ..AttentionOptions::default() },
        );
        let gradients = value.square().sum(..).gradients(&[&x[0], &x[1], &x[2]]).unwrap();
        let planned = |roots: &[&Tensor], target: &Target| {
            let plan = plan(&TracedGraph::new(&device, roots).unwrap().graph, target, &|_| false).unwrap();
            (plan.steps.len(), plan.peak_bytes)
        };
        let (bytes, logsumexp) = (4 * 256 * 64 * 4, 4 * 256 * 4);
        let all: Vec<&Tensor> = std::iter::once(&value).chain(&gradients).collect();
        for target in [
            Target::opencl_minimum(),
            Target::spirv_minimum(),
            Target::cuda_minimum(80),
            Target::hip_minimum(64),
            Target::webgpu_minimum(),
        ] {
            assert_eq!(planned(&[&value], &target), (1, bytes + logsumexp), "{}", target.name);
            // Stored are the cotangent of the output, the value, three gradients, and two numbers for each query.
            assert_eq!(planned(&all, &target), (4, 5 * bytes + 2 * logsumexp), "{}", target.name);
        }
    });
}

/// The routine is used through slices, transposes and batches, but not if anything other than the conversion precedes the product.
#[test]
fn int8_products_are_a_routine() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let numbers = |count: usize, by: usize| (0..count).map(|i| (i * by % 255) as u8 as i8).collect::<Vec<i8>>();
        let (x, w) = (numbers(3 * 40 * 64, 37), numbers(50 * 64, 91));
        let (left, right) = (Tensor::from_slice(&x, [3, 40, 64]), Tensor::from_slice(&w, [50, 64]));
        let wide = |x: &Tensor| x.cast(DType::I32);
        let product = wide(&left).matmul(&wide(&right.t()));
        let [PlanStep::Routine { routine, .. }] = &steps(&device, &[&product])[..] else { panic!("one routine") };
        assert!(routine.to_string().starts_with("gemm i8"), "{routine}");
        let dot = |i: usize, column: usize| {
            (0..64).map(|k| i32::from(x[i * 64 + k]) * i32::from(w[column * 64 + k])).sum::<i32>()
        };
        let want: Vec<i32> = (0..3 * 40 * 50).map(|at| dot(at / 50, at % 50)).collect();
        assert_eq!(product.to_vec::<i32>().unwrap(), want);
        let offset = (wide(&left) - 3.0).matmul(&wide(&right.t()));
        assert!(steps(&device, &[&offset]).iter().all(|step| matches!(step, PlanStep::Kernel { .. })));
        // The product of i8 operands is i8 and wraps; that of the routine is i32.
        let narrow = left.matmul(&right.t());
        assert!(steps(&device, &[&narrow]).iter().all(|step| matches!(step, PlanStep::Kernel { .. })));
        let wrapped: Vec<i8> = want.iter().map(|sum| *sum as i8).collect();
        assert_eq!(narrow.to_vec::<i8>().unwrap(), wrapped);
        let bools = left.cast(DType::Bool).cast(DType::I32).matmul(&wide(&right.t()));
        assert!(steps(&device, &[&bools]).iter().all(|step| matches!(step, PlanStep::Kernel { .. })));
    });
}

/// Compares with manual counts: products as routines and as kernels, an elementwise chain, and operations that are not float arithmetic.
#[test]
fn profiles_count_operations() {
    let counted = |device: &str, of: &dyn Fn(Tensor, Tensor) -> Tensor| {
        let device = Device::get(device).unwrap();
        device.scope(|| {
            let x = Tensor::from_slice(&[1.5f32; 24 * 40], [24, 40]);
            let w = Tensor::from_slice(&[0.5f32; 40 * 16], [40, 16]);
            let profile = panoply_runtime::Profiler::start(&device).unwrap();
            of(x, w).eval().unwrap();
            let work = profile.finish().unwrap().work;
            work.iter().map(|work| work.flops).try_fold(0, |sum, flops| Some(sum + flops?))
        })
    };
    for device in ["cpu", "cpu:checked"] {
        assert_eq!(counted(device, &|x, w| x.matmul(&w)), Some(2 * 24 * 40 * 16), "{device}");
        assert_eq!(counted(device, &|x, _| (x * 2.0 + 1.0).sqrt()), Some(3 * 24 * 40), "{device}");
        assert_eq!(counted(device, &|x, _| x.sum(1)), Some(24 * 40), "{device}");
        assert_eq!(counted(device, &|x, _| x.cast(DType::I32) + 1.0), Some(0), "{device}");
    }
}
