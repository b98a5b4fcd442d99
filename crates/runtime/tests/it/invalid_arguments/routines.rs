//! Routine descriptions from outside: invalid ones are errors that name the field. Accepted ones stay within their buffers and compute the
//! results of the f64 reference.
//!
//! Random descriptions run in a child process, whose buffers end at inaccessible pages: 40 of each routine, or 4000 with
//! `PANOPLY_TEST_FULL=1`. `PANOPLY_TEST_SEED` sets the first seed.

mod reference;

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use panoply_cpu::device::{CpuDriver, CpuOptions};
use panoply_ir::flops;
use panoply_ir::kernel::Access;
use panoply_ir::routine::*;
use panoply_ir::{DType, Encoding, Scalar};
use panoply_runtime::env::PoolSetting;
use panoply_runtime::{Device, DeviceOptions, Driver, Storage};

#[cfg(target_os = "linux")]
use super::guard;

/// A deterministic random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Seeds differ in few bits (the first step of SplitMix64's mix).
        (((self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9)) >> 33) as usize % count
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn size(&mut self) -> usize {
        self.of(&[1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33])
    }
}

const VARIANTS: usize = 18;

/// Returns a valid description of the n-th routine.
fn valid(variant: usize, numbers: &mut Numbers) -> Routine {
    let float = numbers.of(&[DType::F32, DType::F64]);
    let all = [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::BF16, DType::I8, DType::U8];
    let any = numbers.of(&all);
    let [s, t, u, v] = [0; 4].map(|_| numbers.size());
    match variant {
        0 => Routine::Gemm(valid_gemm(numbers)),
        1 => Routine::Conv(valid_conv(numbers)),
        2 => Routine::ConvBackwardData(valid_conv(numbers)),
        3 => Routine::ConvBackwardFilter(valid_conv(numbers)),
        4 => Routine::Attention(valid_attention(float, numbers)),
        5 => Routine::AttentionBackward(valid_attention(float, numbers)),
        6 => {
            let axes = [0; 3].map(|_| {
                let (size, stride, dilation) = (1 + numbers.below(3), 1 + numbers.below(3), 1 + numbers.below(2));
                let span = (size - 1) * dilation + 1;
                let length = span + numbers.below(9);
                PoolAxis { length, size, positions: (length - span) / stride + 1, stride, dilation }
            });
            Routine::MaxPoolBackward(Pool { dtype: float, planes: s, axes })
        }
        7 => Routine::Sort(Sort {
            dtype: any,
            rows: s,
            length: t,
            count: 1 + numbers.below(t),
            descending: numbers.below(2) == 0,
        }),
        8 => Routine::SolveTriangular(Triangular {
            dtype: float,
            batch: s,
            size: t,
            columns: u,
            lower: numbers.below(2) == 0,
        }),
        9 => Routine::Cholesky(Cholesky { dtype: float, batch: s, size: t }),
        10 => Routine::Lu(Lu { dtype: float, batch: s, size: t }),
        11 => Routine::Qr(Qr { dtype: float, batch: s, rows: t.max(u), columns: t.min(u) }),
        12 => Routine::Eigh(Eigh { dtype: float, batch: s, size: t }),
        13 => {
            let adds = numbers.below(2) == 0;
            let dtype = if adds { numbers.of(&all[..4]) } else { any };
            let positions = numbers.of(&[DType::I32, DType::I64]);
            Routine::Scatter(Scatter { dtype, positions, accumulate: adds, batch: s, length: t, count: u, columns: v })
        }
        14 => {
            let encoding = numbers.of(&Encoding::ALL);
            let k = encoding.block_elems() * if encoding.block_elems() == 1 { t } else { 1 + t % 3 };
            let dtype = numbers.of(&[DType::F32, DType::F16, DType::BF16]);
            Routine::QuantizedMatmul(QuantizedMatmul { dtype, encoding, m: s, n: u, k, interleaved: false })
        }
        15 => {
            let encoding = numbers.of(&Encoding::ALL);
            let k = encoding.block_elems() * if encoding.block_elems() == 1 { t } else { 1 + t % 3 };
            let dtype = numbers.of(&[DType::F32, DType::F16, DType::BF16]);
            let (used, experts) = (1 + numbers.below(3), 1 + numbers.below(4));
            let slots = numbers.of(&[1, used]);
            Routine::ExpertMatmul(ExpertMatmul { dtype, encoding, m: s, slots, used, experts, n: 1 + v % 7, k })
        }
        16 => {
            let [cap, window] = [numbers.below(2), numbers.below(2)].map(|some| some == 1);
            let key_heads = 1 + u % 3;
            Routine::CachedAttention(CachedAttention {
                tokens: s,
                heads: key_heads * (1 + numbers.below(3)),
                key_heads,
                slots: 1 + numbers.below(3),
                slot_rows: numbers.of(&[1, 2, 5, 63, 64, 70, 150]),
                width: v,
                scale: Scalar::from_f64(DType::F32, 0.25),
                soft_cap: cap.then(|| Scalar::from_f64(DType::F32, 2.0)),
                window: window.then(|| 1 + numbers.below(80)),
            })
        }
        _ => {
            let kinds =
                [FourierKind::Forward, FourierKind::Backward, FourierKind::RealToComplex, FourierKind::ComplexToReal];
            let scale = Scalar::from_f64(float, 0.5);
            Routine::Fourier(Fourier { dtype: float, kind: numbers.of(&kinds), outer: s, length: t, inner: u, scale })
        }
    }
}

/// Returns a product with any order of the axes and with gaps; operands can repeat.
fn valid_gemm(numbers: &mut Numbers) -> Gemm {
    let dtype = numbers.of(&[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8]);
    let [batch, m, n, k] = [0; 4].map(|_| numbers.size());
    let k = if numbers.below(9) == 0 { 0 } else { k };
    let mut layout = |rows: usize, columns: usize, repeats: bool| {
        let (gap, transposed) = (numbers.below(3), numbers.below(2) == 0);
        let (row, column) = if transposed { (1, rows + gap) } else { (columns + gap, 1) };
        let next = if repeats && numbers.below(3) == 0 { 0 } else { (rows + gap) * (columns + gap) };
        Layout { offset: numbers.of(&[0, 0, 3]), batch: next, row, column }
    };
    let (a, b, c) = (layout(m, k, true), layout(k, n, true), layout(m, n, false));
    Gemm { dtype, tf32: false, bias: false, batch, m, n, k, a, b, c }
}

fn valid_conv(numbers: &mut Numbers) -> Conv {
    let real = 1 + numbers.below(3);
    let axes = std::array::from_fn(|axis| {
        if axis < 3 - real {
            return ConvAxis::NONE;
        }
        let (size, stride, dilation) = (1 + numbers.below(3), 1 + numbers.below(3), 1 + numbers.below(2));
        let (padding, span) = (numbers.below(4), (size - 1) * dilation + 1);
        let length = (1 + numbers.below(7)).max(span.saturating_sub(2 * padding));
        ConvAxis { length, size, positions: (length + 2 * padding - span) / stride + 1, stride, dilation, padding }
    });
    let dtype = numbers.of(&[DType::F32, DType::F64, DType::F16, DType::BF16]);
    let (inputs, outputs) = (numbers.of(&[1, 2, 3, 17]), numbers.of(&[1, 2, 7, 19]));
    Conv { dtype, batch: 1 + numbers.below(3), groups: 1 + numbers.below(2), inputs, outputs, axes }
}

fn valid_attention(dtype: DType, numbers: &mut Numbers) -> Attention {
    let key_heads = 1 + numbers.below(3);
    let heads = key_heads * (1 + numbers.below(3));
    let [queries, keys, width, depth] = [0; 4].map(|_| numbers.size());
    let mask = (numbers.below(2) == 0).then(|| Mask {
        dtype: numbers.of(&[DType::Bool, dtype]),
        batch: numbers.of(&[0, heads * queries * keys]),
        head: numbers.of(&[0, queries * keys]),
        query: numbers.of(&[0, keys]),
        key: numbers.of(&[0, 1]),
    });
    let (past, scale) = (numbers.of(&[None, Some(0), Some(3), Some(100)]), Scalar::from_f64(dtype, 0.5));
    Attention { dtype, batch: 1 + numbers.below(2), heads, key_heads, queries, keys, width, depth, past, scale, mask }
}

/// Returns all numeric fields of a description.
fn fields(routine: &mut Routine) -> Vec<&mut usize> {
    match routine {
        Routine::Gemm(Gemm { batch, m, n, k, a, b, c, .. }) => {
            let layouts = [a, b, c].into_iter();
            let strides = layouts.flat_map(|of| [&mut of.offset, &mut of.batch, &mut of.row, &mut of.column]);
            strides.chain([batch, m, n, k]).collect()
        }
        Routine::Conv(of) | Routine::ConvBackwardData(of) | Routine::ConvBackwardFilter(of) => {
            let axes =
                of.axes.iter_mut().flat_map(|ConvAxis { length, size, positions, stride, dilation, padding }| {
                    [length, size, positions, stride, dilation, padding]
                });
            axes.chain([&mut of.batch, &mut of.groups, &mut of.inputs, &mut of.outputs]).collect()
        }
        Routine::Attention(of) | Routine::AttentionBackward(of) => {
            let Attention { batch, heads, key_heads, queries, keys, width, depth, past, mask, .. } = of;
            let mask = mask.iter_mut().flat_map(|Mask { batch, head, query, key, .. }| [batch, head, query, key]);
            [batch, heads, key_heads, queries, keys, width, depth].into_iter().chain(past).chain(mask).collect()
        }
        Routine::MaxPoolBackward(of) => {
            let axes = of.axes.iter_mut().flat_map(|PoolAxis { length, size, positions, stride, dilation }| {
                [length, size, positions, stride, dilation]
            });
            axes.chain([&mut of.planes]).collect()
        }
        Routine::Sort(Sort { rows, length, count, .. }) => vec![rows, length, count],
        Routine::SolveTriangular(Triangular { batch, size, columns, .. }) => vec![batch, size, columns],
        Routine::Cholesky(Cholesky { batch, size, .. }) => vec![batch, size],
        Routine::Lu(Lu { batch, size, .. }) => vec![batch, size],
        Routine::Qr(Qr { batch, rows, columns, .. }) => vec![batch, rows, columns],
        Routine::Eigh(Eigh { batch, size, .. }) => vec![batch, size],
        Routine::Scatter(Scatter { batch, length, count, columns, .. }) => vec![batch, length, count, columns],
        Routine::Fourier(Fourier { outer, length, inner, .. }) => vec![outer, length, inner],
        Routine::QuantizedMatmul(QuantizedMatmul { m, n, k, .. }) => vec![m, n, k],
        Routine::ExpertMatmul(ExpertMatmul { m, slots, used, experts, n, k, .. }) => {
            vec![m, slots, used, experts, n, k]
        }
        Routine::CachedAttention(CachedAttention {
            tokens, heads, key_heads, slots, slot_rows, width, window, ..
        }) => [tokens, heads, key_heads, slots, slot_rows, width].into_iter().chain(window).collect(),
    }
}

/// Returns the description with up to three fields replaced.
fn altered(mut routine: Routine, numbers: &mut Numbers) -> Routine {
    for _ in 0..1 + numbers.below(3) {
        let mut fields = fields(&mut routine);
        let at = numbers.below(fields.len());
        let now = *fields[at];
        let huge = [1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 62, usize::MAX];
        let near = [0, 1, 2, 5, 33, now.saturating_sub(1), now.saturating_add(1), now.saturating_mul(2)];
        *fields[at] = if numbers.below(3) == 0 { numbers.of(&huge) } else { numbers.of(&near) };
    }
    routine
}

fn device() -> Device {
    let options = CpuOptions { threads: Some(2), ..CpuOptions::default() };
    // SAFETY: `Device` validates its arguments.
    let raw = unsafe { CpuDriver::new(options).probe() }.expect("the CPU is always available").remove(0);
    Device::new(raw, DeviceOptions { pool: PoolSetting::Off, ..DeviceOptions::default() })
}

/// Returns the elements of a buffer: small integers, which all types represent and whose sums are exact.
fn values(routine: &Routine, operand: &Operand, numbers: &mut Numbers) -> Vec<f64> {
    let elems = operand.elems.expect("small");
    let signed = !matches!(operand.dtype, DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let range = match (operand.dtype, routine) {
        (DType::Bool, _) => 2,
        (DType::I32 | DType::I64, Routine::Scatter(of)) if operand.name == "positions" => of.length.min(100) + 4,
        (DType::I32, Routine::CachedAttention(of)) => of.slots.saturating_mul(of.slot_rows).min(1000) + 4,
        _ => 7,
    };
    let low = if signed { (range / 2).min(3) as f64 } else { 0.0 };
    (0..elems).map(|_| numbers.below(range) as f64 - low).collect()
}

fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let bits = |value: &f64| Scalar::from_f64(dtype, *value).bits.to_le_bytes();
    values.iter().flat_map(|value| bits(value).into_iter().take(dtype.bytes())).collect()
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    bytes.chunks(dtype.bytes()).map(|bytes| Scalar { dtype, bits: bits(bytes) }.to_f64()).collect()
}

/// Returns a buffer at the end or at the start of an allocation of whole pages.
fn buffer(device: &Device, bytes: &[u8], at_end: bool) -> Storage {
    let whole = (bytes.len() as u64).next_multiple_of(4096).max(4096);
    let storage = device.allocate(whole).expect("memory");
    let start = if at_end { whole - bytes.len() as u64 } else { 0 };
    let part = storage.slice(start..start + bytes.len() as u64).expect("the part is within the allocation");
    if !bytes.is_empty() {
        part.write_bytes(bytes).expect("the lengths are equal");
    }
    part
}

fn submit(device: &Device, routine: Routine, buffers: &[Storage]) -> panoply_runtime::Result<()> {
    device.submit(&[panoply_runtime::Command::Routine { routine, buffers: buffers.iter().collect(), epilogue: None }])
}

/// Maximum number of buffer elements for which a description runs.
const MAX_ELEMS: u64 = 1 << 16;

fn fits(routine: &Routine) -> bool {
    routine.operands().all(|operand| operand.elems.is_some_and(|elems| elems <= MAX_ELEMS))
}

/// Submits a description with suitable buffers, if they are small enough, and checks the results. Returns true if it was accepted.
fn run(device: &Device, routine: Routine, numbers: &mut Numbers) -> bool {
    let _ = (flops::of(&routine), routine.to_string(), device.supports_routine(&routine), routine.is_empty());
    let operands: Vec<Operand> = routine.operands().collect();
    if !fits(&routine) {
        let buffers: Vec<Storage> = operands.iter().map(|_| buffer(device, &[0; 4096], true)).collect();
        let error = submit(device, routine, &buffers).expect_err("its buffers are too short");
        assert!(error.is_mistake() || error.is_unsupported(), "{error}");
        return false;
    }
    let at_end = numbers.below(3) > 0;
    let given: Vec<Vec<f64>> = operands.iter().map(|operand| values(&routine, operand, numbers)).collect();
    let pairs = operands.iter().zip(&given);
    let buffers: Vec<Storage> =
        pairs.map(|(operand, values)| buffer(device, &encode(operand.dtype, values), at_end)).collect();
    if let Err(error) = submit(device, routine, &buffers) {
        assert!(error.is_mistake() || error.is_unsupported(), "{error}");
        return false;
    }
    let after: Vec<Vec<f64>> = operands
        .iter()
        .zip(&buffers)
        .map(|(operand, buffer)| decode(operand.dtype, &buffer.read().expect("the buffer is readable")))
        .collect();
    for (at, operand) in operands.iter().enumerate().filter(|(_, operand)| operand.access == Access::In) {
        assert_eq!(after[at], given[at], "{routine:?} wrote to its input {}", operand.name);
    }
    reference::compare(&routine, &given, &after);
    true
}

const CASES: &str = "PANOPLY_TEST_ROUTINE_CASES";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs cases of each routine, printing each before it runs.
fn run_cases(cases: u64) {
    #[cfg(target_os = "linux")]
    guard::enable();
    let (device, (progress, watched)) = (device(), mpsc::channel());
    std::thread::spawn(move || {
        loop {
            match watched.recv_timeout(Duration::from_secs(30)) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("the case did not finish within 30 s");
                    std::process::abort();
                }
            }
        }
    });
    let first = number("PANOPLY_TEST_SEED").unwrap_or(1);
    for variant in 0..VARIANTS {
        let mut accepted = 0;
        for case in first..first + cases {
            let mut numbers = Numbers(case * 0x9e37_79b9 + variant as u64 * 7919);
            for _ in 0..4 {
                numbers.below(2);
            }
            let mut routine = valid(variant, &mut numbers);
            let alters = numbers.below(2) == 0;
            if alters {
                routine = altered(routine, &mut numbers);
            }
            eprintln!("seed {case}: {routine:?}");
            progress.send(()).expect("the watchdog runs");
            let ran = run(&device, routine, &mut numbers);
            assert!(ran || alters || !fits(&routine), "{routine:?} is valid but was rejected: {:?}", routine.check());
            accepted += u64::from(ran);
        }
        assert!(accepted > cases / 4 && accepted < cases, "{accepted} of {cases} cases of variant {variant} ran");
    }
}

#[test]
fn random_descriptions_are_rejected_or_correct() {
    if let Some(cases) = number(CASES) {
        return run_cases(cases);
    }
    let full = std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1");
    let name = "invalid_arguments::routines::random_descriptions_are_rejected_or_correct";
    let output = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CASES, if full { "4000" } else { "40" })
        // The last lines shown are those of the panic.
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("this program starts again");
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    let tail: Vec<&str> = lines.lines().rev().take(12).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{}:\n{}", output.status, tail.join("\n"));
}

/// Checks the error of a description that is submitted with buffers of one page each.
fn refused(routine: Routine, message: &str) {
    let device = device();
    let buffers: Vec<Storage> = routine.operands().map(|_| buffer(&device, &[0; 4096], true)).collect();
    let error = submit(&device, routine, &buffers).expect_err("the description is invalid");
    assert!(error.is_mistake(), "{error}");
    assert_eq!(error.message(), message);
    assert!(!device.supports_routine(&routine), "{routine:?}");
}

#[test]
fn invalid_matrix_products_name_the_field() {
    let dense = |rows: usize, columns: usize| Layout { offset: 0, batch: rows * columns, row: columns, column: 1 };
    let (a, b, c) = (dense(2, 3), dense(3, 4), dense(2, 4));
    let of = Gemm { dtype: DType::F32, tf32: false, bias: false, batch: 1, m: 2, n: 4, k: 3, a, b, c };
    let overlap = |strides: &str| {
        format!(
            "gemm: c has strides {strides} for 1×2×4 elements, some of which overlap; each stride must exceed the end of the axes with \
             smaller strides, as 8, 4, 1 do"
        )
    };
    refused(Routine::Gemm(Gemm { c: Layout { row: 0, ..c }, ..of }), &overlap("8, 0, 1"));
    refused(Routine::Gemm(Gemm { c: Layout { row: 3, ..c }, ..of }), &overlap("8, 3, 1"));
    refused(Routine::Gemm(Gemm { dtype: DType::Bool, ..of }), "gemm: dtype is bool; it must be a float or i8");
    refused(Routine::Gemm(Gemm { tf32: true, dtype: DType::F64, ..of }), "gemm: tf32 is set for f64; it requires f32");
    let far = Layout { row: usize::MAX, ..a };
    refused(
        Routine::Gemm(Gemm { a: far, ..of }),
        "gemm: offset and strides of a exceed the largest address; use smaller ones",
    );
    let once = Layout { offset: 0, batch: 0, row: 0, column: 0 };
    refused(
        Routine::Gemm(Gemm { a: once, b: once, k: 1 << 40, ..of }),
        "gemm: k is 1099511627776 and both operands repeat one element along it; it must be at most 2147483647 then",
    );
}

#[test]
fn invalid_windows_name_the_axis() {
    let axis = ConvAxis { length: 5, size: 3, positions: 3, stride: 1, dilation: 1, padding: 0 };
    let of = |axis| Conv {
        dtype: DType::F32,
        batch: 1,
        groups: 1,
        inputs: 1,
        outputs: 1,
        axes: [ConvAxis::NONE, ConvAxis::NONE, axis],
    };
    for (name, routine) in [
        ("conv", Routine::Conv as fn(Conv) -> Routine),
        ("conv_backward_data", Routine::ConvBackwardData),
        ("conv_backward_filter", Routine::ConvBackwardFilter),
    ] {
        let wrong = |conv: Conv, message: &str| refused(routine(conv), &format!("{name}: {message}"));
        wrong(of(ConvAxis { stride: 0, ..axis }), "stride of axis 2 is 0; it must be at least 1");
        wrong(of(ConvAxis { dilation: 0, ..axis }), "dilation of axis 2 is 0; it must be at least 1");
        wrong(of(ConvAxis { size: 0, ..axis }), "size of axis 2 is 0; it must be at least 1");
        wrong(
            of(ConvAxis { positions: 4, ..axis }),
            "positions of axis 2 is 4; 3 windows of 3 elements, stride 1 and dilation 1 fit 5 elements with padding 0",
        );
        wrong(
            of(ConvAxis { padding: usize::MAX, ..axis }),
            &format!("padding of axis 2 is {}; it must be at most the largest i32, 2147483647", usize::MAX),
        );
        wrong(Conv { groups: 0, ..of(axis) }, "groups is 0; it must be at least 1");
        wrong(Conv { dtype: DType::I32, ..of(axis) }, "dtype is i32; it must be a float");
    }
    let pool = PoolAxis { length: 5, size: 2, positions: 5, stride: 1, dilation: 1 };
    refused(
        Routine::MaxPoolBackward(Pool { dtype: DType::F32, planes: 1, axes: [PoolAxis::NONE, pool, PoolAxis::NONE] }),
        "max_pool_gradient: positions of axis 1 is 5; at most 4 windows of 2 elements, stride 1 and dilation 1 fit 5 elements",
    );
}

#[test]
fn invalid_attention_names_the_field() {
    let scale = Scalar::from_f64(DType::F32, 1.0);
    let of = Attention {
        dtype: DType::F32,
        batch: 1,
        heads: 5,
        key_heads: 3,
        queries: 1,
        keys: 1,
        width: 1,
        depth: 1,
        past: None,
        scale,
        mask: None,
    };
    for (name, routine) in [
        ("attention", Routine::Attention as fn(Attention) -> Routine),
        ("attention_gradient", Routine::AttentionBackward),
    ] {
        let wrong = |of: Attention, message: &str| refused(routine(of), &format!("{name}: {message}"));
        wrong(of, "heads is 5; it must be a multiple of key_heads, 3, which must be at least 1");
        wrong(
            Attention { key_heads: 0, ..of },
            "heads is 5; it must be a multiple of key_heads, 0, which must be at least 1",
        );
        let of = Attention { heads: 3, ..of };
        wrong(
            Attention { scale: Scalar::from_f64(DType::F64, 1.0), ..of },
            "scale is f64; it must be f32, like the buffers",
        );
        let mask = Mask { dtype: DType::F64, batch: 0, head: 0, query: 0, key: 0 };
        wrong(Attention { mask: Some(mask), ..of }, "mask is f64; it must be bool, or f32 like the scores");
        let past = usize::MAX;
        let limit = isize::MAX;
        wrong(
            Attention { past: Some(past), ..of },
            &format!("past is {past}; the sum of past and queries must be below {limit}"),
        );
    }
}

#[test]
fn invalid_attention_to_a_cache_names_the_field() {
    let scale = Scalar::from_f64(DType::F32, 1.0);
    let of = CachedAttention {
        tokens: 1,
        heads: 4,
        key_heads: 2,
        slots: 2,
        slot_rows: 8,
        width: 4,
        scale,
        soft_cap: None,
        window: None,
    };
    let wrong = |of: CachedAttention, message: &str| {
        refused(Routine::CachedAttention(of), &format!("cached_attention: {message}"));
    };
    wrong(
        CachedAttention { key_heads: 3, ..of },
        "heads is 4; it must be a multiple of key_heads, 3, which must be at least 1",
    );
    wrong(CachedAttention { window: Some(0), ..of }, "window is 0; it must be at least 1");
    let cap = Some(Scalar::from_f64(DType::F64, 1.0));
    wrong(CachedAttention { soft_cap: cap, ..of }, "soft_cap is f64; it must be f32, like the buffers");
    wrong(
        CachedAttention { slots: 1 << 20, slot_rows: 1 << 11, ..of },
        &format!("slots and slot_rows have more than {} rows; use fewer or shorter slots", i32::MAX),
    );
}

#[test]
fn invalid_sorts_factorizations_and_transforms_name_the_field() {
    let dtype = DType::F32;
    let sort = Sort { dtype, rows: 1, length: 3, count: 4, descending: false };
    refused(Routine::Sort(sort), "sort: count is 4; it must be at most length, 3");
    refused(
        Routine::Sort(Sort { dtype: DType::Bool, count: 3, ..sort }),
        "sort: dtype is bool; it must be an integer or a float",
    );
    let qr = Qr { dtype, batch: 1, rows: 2, columns: 3 };
    refused(Routine::Qr(qr), "qr: columns is 3; it must be at most rows, 2");
    let int = DType::I32;
    for (name, routine) in [
        (
            "solve_triangular",
            Routine::SolveTriangular(Triangular { dtype: int, batch: 1, size: 2, columns: 1, lower: true }),
        ),
        ("cholesky", Routine::Cholesky(Cholesky { dtype: int, batch: 1, size: 2 })),
        ("lu", Routine::Lu(Lu { dtype: int, batch: 1, size: 2 })),
        ("eigh", Routine::Eigh(Eigh { dtype: int, batch: 1, size: 2 })),
    ] {
        refused(routine, &format!("{name}: dtype is i32; it must be a float"));
    }
    let scatter = Scatter { dtype, positions: dtype, accumulate: true, batch: 1, length: 1, count: 1, columns: 1 };
    refused(Routine::Scatter(scatter), "scatter: positions is f32; it must be i32 or i64");
    let scale = Scalar::from_f64(DType::F64, 1.0);
    let transform = Fourier { dtype, kind: FourierKind::Forward, outer: 1, length: 4, inner: 1, scale };
    refused(Routine::Fourier(transform), "fourier: scale is f64; it must be f32, like the buffers");
    let large = Cholesky { dtype, batch: usize::MAX, size: usize::MAX };
    let limit = isize::MAX;
    refused(
        Routine::Cholesky(large),
        &format!("cholesky: matrix has more than {limit} bytes; use smaller sizes or strides"),
    );
}

/// Dilations can be much larger than buffers: the input is not copied with all gaps.
#[test]
fn scratch_memory_is_bounded_by_the_buffers() {
    let (size, dilation) = (2, (1 << 31) - 1);
    let axis = ConvAxis { length: 1, size, positions: 1, stride: 1, dilation, padding: dilation.div_ceil(2) };
    let axis = ConvAxis { positions: 1 + 2 * axis.padding - dilation, ..axis };
    let axes = [axis, axis, axis];
    let conv = Conv { dtype: DType::F32, batch: 1, groups: 1, inputs: 1, outputs: 1, axes };
    assert!(Routine::Conv(conv).check().is_ok(), "{:?}", Routine::Conv(conv).check());
    assert!(!device().supports_routine(&Routine::Conv(conv)));
}

#[test]
fn descriptions_of_any_size_are_written() {
    let axes = [ConvAxis::NONE; 3];
    let of = Conv { dtype: DType::F16, batch: 1, groups: 2, inputs: usize::MAX, outputs: 3, axes };
    let text = Routine::Conv(of).to_string();
    assert!(text.contains(&format!("1×{}→6", 2 * usize::MAX as u128)), "{text}");
}
