//! Tests whether the fused multiply-adds of a device round once.
//!
//! WGSL does not specify it, and no API reports it. So each device computes examples: products whose last bits matter, canceled by an
//! addend that would make the result zero after a second rounding. If one is wrong, kernels compute the function in integers.

use std::future::poll_fn;
use std::task::{Context, Poll};

use panoply_device::{
    Arg, DType, DeviceCommand, Dispatch, ParamType, Program, QueueId, RawDevice, Region, Result, Signature, SourceText,
    Ticket,
};

use super::device::WgpuDevice;

/// The device functions that kernels can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The functions that are exact in all examples.
    Measured,
    /// None: kernels use the replacements, which work on every device.
    Nothing,
}

/// Number of examples.
const COUNT: usize = 2048;

/// A test program with one buffer, which holds the inputs followed by the results.
pub struct Example<'a> {
    pub source: String,
    pub entry: &'a str,
    /// The type of the buffer's elements.
    pub dtype: DType,
    pub grid: u64,
    pub group: u32,
    pub inputs: &'a [u8],
    /// Size of the results in bytes.
    pub results: u64,
}

/// A float function that is not exact on every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// a × b + c of f32.
    FmaF32,
    /// a × b + c of f64.
    FmaF64,
}

impl Function {
    /// Every function.
    pub const ALL: [Function; 2] = [Function::FmaF32, Function::FmaF64];

    /// Returns the pipeline constant that is true if the device's function is exact.
    pub fn constant(self) -> &'static str {
        match self {
            Function::FmaF32 => "fused_f32",
            Function::FmaF64 => "fused_f64",
        }
    }
}

/// Returns true if a function of the device is exact in all examples.
pub async fn is_exact(device: &WgpuDevice, function: Function) -> Result<bool> {
    let (dtype, (inputs, expected)) = match function {
        Function::FmaF32 => (DType::F32, examples_f32()),
        Function::FmaF64 => (DType::F64, examples_f64()),
    };
    let source = format!(
        "@group(0) @binding(1) var<storage, read_write> x: array<{dtype}>;\n\
         @compute @workgroup_size(64) fn example(@builtin(global_invocation_id) at: vec3<u32>) {{\n    \
         let i = at.x;\n    x[{}u + i] = fma(x[3u * i], x[3u * i + 1u], x[3u * i + 2u]);\n}}\n",
        3 * COUNT
    );
    let (grid, results) = (COUNT as u64, expected.len() as u64);
    let example = Example { source, entry: "example", dtype, grid, group: 64, inputs: &inputs, results };
    Ok(computed(device, example).await? == expected)
}

/// Runs an example and returns its results.
pub async fn computed(device: &WgpuDevice, example: Example<'_>) -> Result<Vec<u8>> {
    let Example { source, entry, dtype, grid, group, inputs, results } = example;
    let program = device.compile(&Program::Text(SourceText {
        language: panoply_device::Language::Wgsl,
        source,
        entry: entry.to_string(),
        signature: Signature { params: vec![ParamType::Buffer(dtype)], index_bits: 32, hidden: false },
    }))?;
    let given = inputs.len() as u64;
    let alloc = device.allocate(given + results)?;
    let all = Region { alloc, offset: 0, bytes: given + results };
    let run = || {
        device.write(QueueId::DEFAULT, Region { bytes: given, ..all }, inputs)?;
        let (grid, group, args) = ([grid, 1, 1], [group, 1, 1], vec![Arg::Buffer(all)]);
        device.submit(
            QueueId::DEFAULT,
            &[DeviceCommand::Dispatch(Dispatch { program, grid, group_size: group, args, parts: Vec::new() })],
            false,
        )?;
        device.read(QueueId::DEFAULT, Region { offset: given, bytes: results, ..all })
    };
    let found = match run() {
        Ok(ticket) => read_bytes(ticket).await,
        Err(error) => Err(error),
    };
    device.free(alloc);
    device.release(program);
    found
}

/// Waits for a read and returns its bytes.
async fn read_bytes(ticket: Ticket) -> Result<Vec<u8>> {
    let done = |context: &mut Context<'_>| match ticket.poll() {
        Ok(false) if ticket.wake(context.waker()) => Poll::Pending,
        _ => Poll::Ready(()),
    };
    poll_fn(done).await;
    ticket.take()
}

/// Returns the bytes of operand triples, and of the results.
fn examples_f32() -> (Vec<u8>, Vec<u8>) {
    let mut bits = Bits(1);
    let (mut inputs, mut expected) = (Vec::new(), Vec::new());
    for i in 0..COUNT {
        let [a, b, c] = [0; 3].map(|_| f32::from_bits((bits.next() as u32 & 0x80FF_FFFF) | 0x3F00_0000));
        let c = if i % 2 == 0 { -(a * b) } else { c * 2f32.powi(i as i32 % 60 - 30) };
        inputs.extend([a, b, c].iter().flat_map(|x| x.to_le_bytes()));
        expected.extend(a.mul_add(b, c).to_le_bytes());
    }
    (inputs, expected)
}

fn examples_f64() -> (Vec<u8>, Vec<u8>) {
    let mut bits = Bits(2);
    let (mut inputs, mut expected) = (Vec::new(), Vec::new());
    for i in 0..COUNT {
        let [a, b, c] = [0; 3].map(|_| f64::from_bits((bits.next() & 0x800F_FFFF_FFFF_FFFF) | 0x3FF0_0000_0000_0000));
        let c = if i % 2 == 0 { -(a * b) } else { c * 2f64.powi(i as i32 % 120 - 60) };
        inputs.extend([a, b, c].iter().flat_map(|x| x.to_le_bytes()));
        expected.extend(a.mul_add(b, c).to_le_bytes());
    }
    (inputs, expected)
}

/// Pseudorandom numbers (SplitMix64, Steele and others 2014).
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
