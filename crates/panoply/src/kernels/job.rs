//! A program as data: its inputs, its launches and its check. It runs on any device and on the IR's interpreter.

use panoply_ir::dtype::{Element, Scalar};
use panoply_ir::interpret::{self, Arg};
use panoply_ir::verify::verify;
use panoply_ir::{DType, Error, Result};
use panoply_runtime::{Buffer, Device, Launch, LaunchArg, Readback, Storage};
use panoply_tensor::Rng;

use super::{Build, CheckResult};

/// A program with its inputs.
pub struct Job {
    /// Initial contents of every buffer.
    pub data: Vec<Data>,
    /// Launches, in order.
    pub steps: Vec<JobLaunch>,
    /// Compares the final buffers with the expected ones.
    pub check: fn(&Job, &[Data]) -> CheckResult,
    /// Bytes that the algorithm must move.
    pub bytes: u64,
    /// Operations that the algorithm must do.
    pub ops: u64,
}

/// A kernel launch.
pub struct JobLaunch {
    /// Builds the kernel.
    pub build: Build,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// Arguments, in order.
    pub args: Vec<JobArg>,
}

/// A kernel argument.
#[derive(Clone, Copy, Debug)]
pub enum JobArg {
    /// A number.
    Scalar(Scalar),
    /// An index or length.
    Index(u64),
    /// A buffer to read, by its position in [`Job::data`].
    Read(usize),
    /// A buffer to read and write.
    Write(usize),
}

/// Elements of a buffer on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Type of the elements.
    pub dtype: DType,
    /// Bytes of the elements, in native byte order.
    pub bytes: Vec<u8>,
}

impl Data {
    /// Returns data with these elements.
    pub fn of<T: Element>(elements: &[T]) -> Data {
        Data { dtype: T::DTYPE, bytes: bytemuck::cast_slice(elements).to_vec() }
    }

    /// Returns the next `len` numbers of a sequence.
    pub fn next_of(numbers: &mut impl Iterator<Item = f32>, len: usize) -> Data {
        Data::of(&numbers.take(len).collect::<Vec<f32>>())
    }

    /// Returns `len` zeros.
    pub fn zeros<T: Element>(len: usize) -> Data {
        Data { dtype: T::DTYPE, bytes: vec![0; len * size_of::<T>()] }
    }

    /// Returns the elements if they are of type `T`, else none.
    pub fn elements<T: Element>(&self) -> Vec<T> {
        if self.dtype != T::DTYPE {
            return Vec::new();
        }
        T::from_bytes(&self.bytes)
    }
}

impl JobLaunch {
    /// Returns a one-dimensional launch.
    pub fn new(build: Build, items: usize, args: Vec<JobArg>) -> JobLaunch {
        JobLaunch { build, grid: [items as u64, 1, 1], args }
    }

    /// Returns a two-dimensional launch.
    pub fn over(build: Build, (x, y): (usize, usize), args: Vec<JobArg>) -> JobLaunch {
        JobLaunch { build, grid: [x as u64, y as u64, 1], args }
    }
}

impl From<f32> for JobArg {
    fn from(value: f32) -> JobArg {
        JobArg::Scalar(value.into())
    }
}

impl From<u32> for JobArg {
    fn from(value: u32) -> JobArg {
        JobArg::Scalar(value.into())
    }
}

impl From<usize> for JobArg {
    fn from(value: usize) -> JobArg {
        JobArg::Index(value as u64)
    }
}

impl Job {
    /// Copies the buffers to a device.
    ///
    /// # Errors
    /// If the device has too little memory, or the copy fails.
    pub fn upload(&self, device: &Device) -> Result<Vec<Storage>> {
        self.data.iter().map(|data| device.upload(&data.bytes)).collect()
    }

    /// Launches every step.
    ///
    /// # Errors
    /// If a kernel cannot be built, compiled or launched.
    pub fn launch(&self, memory: &[Storage]) -> Result<()> {
        for step in &self.steps {
            let args = step.args.iter().map(|pass| match *pass {
                JobArg::Scalar(value) => LaunchArg::Scalar(value),
                JobArg::Index(value) => LaunchArg::Index(value),
                JobArg::Read(at) => LaunchArg::read(&memory[at], self.data[at].dtype),
                JobArg::Write(at) => LaunchArg::write(&memory[at], self.data[at].dtype),
            });
            Launch::new(step.build, args.collect()).launch(step.grid)?;
        }
        Ok(())
    }

    /// Starts copying the buffers to the host.
    ///
    /// # Errors
    /// If a copy cannot be started.
    pub fn read(&self, memory: &[Storage]) -> Result<Vec<Readback<u8>>> {
        memory.iter().map(|storage| Buffer::from_storage(storage.clone())?.read_async()).collect()
    }

    /// Copies the buffers to the host.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn download(&self, memory: &[Storage]) -> Result<Vec<Data>> {
        let wait = |(data, reading): (&Data, Readback<u8>)| Ok(Data { dtype: data.dtype, bytes: reading.wait()? });
        self.data.iter().zip(self.read(memory)?).map(wait).collect()
    }

    /// Runs every step on the interpreter and returns the final buffers.
    ///
    /// # Errors
    /// If a kernel cannot be built, fails verification, or violates the IR's semantics.
    pub fn interpret(&self) -> Result<Vec<Data>> {
        let mut data = self.data.clone();
        for step in &self.steps {
            let kernel = verify((step.build)()?)?;
            let group = kernel.group_size.unwrap_or([1; 3]);
            let mut args = arguments(step, &mut data)?;
            interpret::run(&kernel, step.grid, group, &mut args, &mut ())?;
        }
        Ok(data)
    }
}

/// Returns the interpreter's arguments of a step; each buffer is borrowed once.
fn arguments<'a>(step: &JobLaunch, data: &'a mut [Data]) -> Result<Vec<Arg<'a>>> {
    let mut bytes: Vec<Option<&mut Vec<u8>>> = data.iter_mut().map(|data| Some(&mut data.bytes)).collect();
    let mut take = |at: usize| {
        let twice = || Error::mistake(format!("buffer {at} is passed twice in one launch"));
        bytes.get_mut(at).and_then(Option::take).ok_or_else(twice)
    };
    let arg = |pass: &JobArg| {
        Ok(match *pass {
            JobArg::Scalar(value) => Arg::Scalar(value),
            JobArg::Index(value) => Arg::Index(value),
            JobArg::Read(at) => Arg::Read(take(at)?),
            JobArg::Write(at) => Arg::Write(take(at)?),
        })
    };
    step.args.iter().map(arg).collect()
}

/// Returns an endless sequence of random words, the same on every machine for the same seed.
pub fn words(seed: u64) -> impl Iterator<Item = u32> {
    let mut rng = Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || rng.next_words()).flatten()
}

/// Returns an endless sequence of random numbers from `least` up to `most`, the same on every machine for the same seed.
pub fn uniform(seed: u64, least: f32, most: f32) -> impl Iterator<Item = f32> {
    words(seed).map(move |word| least + (word >> 8) as f32 / (1 << 24) as f32 * (most - least))
}
