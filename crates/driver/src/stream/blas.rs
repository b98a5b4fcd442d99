//! Matrix products by a vendor's libraries, for one device.
//!
//! Libraries are opened and initialized when the first product is queried; if there are several, the first one that initializes and
//! supports a product computes it. The algorithm is queried once for each shape and alignment and cached. A product that fails returns the
//! error of that run and is not offered again, so that later plans use kernels. Epilogues other than a bias are separate kernels after the
//! product.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use panoply_device::{Error, Gemm, Result};

use super::blas_gemm::Product;
use super::handles::Context;
use super::queue::Queue;
use crate::error_codes::Codes;
use crate::library::DevicePtr;
use crate::lock::locked;

/// Maximum number of cached products; a program has a few dozen.
const KEPT: usize = 1024;
/// Largest alignment in bytes that is distinguished; no algorithm requires more.
const WIDEST: u32 = 256;

/// The library for matrix products to search for.
#[derive(Clone, Debug)]
pub enum GemmRequest {
    /// The library that the system finds.
    Any,
    /// The library at this path.
    This(PathBuf),
    /// No library: the driver's library was chosen by path, and another library would not know its memory.
    None,
}

impl GemmRequest {
    /// Returns the request that goes with a driver's library: the chosen path, otherwise any library for the system's own driver, otherwise
    /// none.
    pub fn beside(library: Option<&Path>, chosen: Option<&Path>) -> GemmRequest {
        match (library, chosen) {
            (_, Some(chosen)) => GemmRequest::This(chosen.to_path_buf()),
            (Some(_), None) => GemmRequest::None,
            (None, None) => GemmRequest::Any,
        }
    }

    /// Returns the path to open; `None` if the system searches.
    pub fn path(&self, kind: &str) -> Result<Option<&Path>> {
        match self {
            GemmRequest::Any => Ok(None),
            GemmRequest::This(path) => Ok(Some(path)),
            GemmRequest::None => {
                Err(Error::unavailable(format!("{kind}: no matrix product library was chosen with the driver's")))
            }
        }
    }
}

/// A vendor's BLAS library, opened but not initialized.
pub trait Library: Send + Sync {
    /// Returns name, version and file, such as `cuBLASLt 12.8 (libcublasLt.so.12)`.
    fn title(&self) -> &str;
    /// Returns the library's error codes.
    fn codes(&self) -> &'static Codes;
    /// Initializes it on a device, which is current on the thread.
    fn start(&self, context: &Arc<Context>) -> Result<Box<dyn Blas>, i32>;
}

/// An initialized library. The device is current on the thread in every call.
pub trait Blas: Send + Sync {
    /// Returns the largest workspace that it uses, in bytes.
    fn workspace(&self) -> usize;
    /// Prepares a product whose matrices are aligned to these numbers of bytes, with at most this workspace; `None` if it is not supported.
    fn prepare(
        &self,
        product: &Product,
        alignments: [u32; 3],
        workspace: usize,
    ) -> Result<Option<Arc<dyn PreparedGemm>>, i32>;
}

/// A matrix product that is ready to run.
pub trait PreparedGemm: Send + Sync {
    /// Returns the size of the workspace it needs, in bytes.
    fn workspace(&self) -> usize;
    /// Enqueues the product, with the addresses of both factors and the result, of the bias if it has one, and of the workspace.
    fn run(&self, matrices: [DevicePtr; 3], bias: DevicePtr, workspace: DevicePtr, queue: &Queue) -> Result<(), i32>;
}

/// The matrix products of a device.
pub struct Products {
    /// In order of preference.
    candidates: Vec<Candidate>,
    context: Arc<Context>,
    /// True if a run has failed and no library could be initialized.
    given_up: AtomicBool,
    known: Mutex<HashMap<Key, Option<Choice>>>,
}

/// A library, initialized at the first product.
struct Candidate {
    library: Arc<dyn Library>,
    blas: OnceLock<Result<Box<dyn Blas>>>,
}

/// A product, the alignments of its matrices, and true if there is a workspace.
type Key = (Gemm, [u32; 3], bool);

/// The index of the library that computes a product, and the prepared product.
type Choice = (usize, Arc<dyn PreparedGemm>);

impl Products {
    /// Creates the state for a nonempty list of libraries.
    pub fn new(libraries: Vec<Arc<dyn Library>>, context: Arc<Context>) -> Products {
        let candidate = |library| Candidate { library, blas: OnceLock::new() };
        let candidates = libraries.into_iter().map(candidate).collect();
        Products { candidates, context, given_up: AtomicBool::new(false), known: Mutex::default() }
    }

    /// Returns true if a library supports a product at any offset of its matrices. Also returns true if the query fails; then `run` reports
    /// the error.
    pub fn offers(&self, gemm: &Gemm) -> bool {
        let known = || {
            Some(
                self.prepare(gemm, &Product::of(gemm)?, anywhere(gemm), true)
                    .map_or(true, |prepared| prepared.is_some()),
            )
        };
        !self.given_up.load(Ordering::Relaxed) && known().unwrap_or(false)
    }

    /// Returns the initialization error of each library, if there is one.
    pub fn obstacles(&self) -> Vec<Option<Error>> {
        self.candidates.iter().map(|candidate| self.blas(candidate).err()).collect()
    }

    /// Enqueues a product, with the addresses of its buffers, and of the bias if it has one.
    pub fn run(&self, gemm: &Gemm, buffers: [DevicePtr; 3], bias: DevicePtr, queue: &Queue) -> Result<()> {
        let done = self.attempt(gemm, buffers, bias, queue);
        // Memory can be available the next time.
        if done.as_ref().is_err_and(|error| !error.is_out_of_memory()) {
            locked(&self.known).insert((*gemm, anywhere(gemm), true), None);
            if self.obstacles().iter().all(Option::is_some) {
                self.given_up.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    fn attempt(&self, gemm: &Gemm, buffers: [DevicePtr; 3], bias: DevicePtr, queue: &Queue) -> Result<()> {
        let none = || Error::unsupported(format!("{}: {} does not support {gemm}", self.context.label, self.titles()));
        let product = Product::of(gemm).ok_or_else(none)?;
        let width = gemm.dtype.bytes() as u64;
        let matrices = product.matrices().map(|matrix| buffers[matrix.buffer] + matrix.offset as u64 * width);
        let alignments = matrices.map(|address| 1 << address.trailing_zeros().min(WIDEST.ilog2()));
        let (mut by, mut prepared) = self.prepare(gemm, &product, alignments, true)?.ok_or_else(none)?;
        let mut workspace = 0;
        if prepared.workspace() > 0 {
            match queue.workspace(self.workspace()) {
                Ok(address) => workspace = address,
                // A product without a workspace is slower but works; if there is none, kernels are used, which need no workspace.
                Err(error) if error.is_out_of_memory() => {
                    let titles = self.titles();
                    let full = || Error::unsupported(format!("{titles}: no memory for the workspace: {error}"));
                    (by, prepared) = self.prepare(gemm, &product, alignments, false)?.ok_or_else(full)?;
                }
                Err(error) => return Err(error),
            }
        }
        let _current = self.context.enter()?;
        prepared
            .run(matrices, bias, workspace, queue)
            .map_err(|code| self.failed(&*self.candidates[by].library, gemm, code))
    }

    fn prepare(&self, gemm: &Gemm, product: &Product, alignments: [u32; 3], room: bool) -> Result<Option<Choice>> {
        let key = (*gemm, alignments, room);
        if let Some(known) = locked(&self.known).get(&key) {
            return Ok(known.clone());
        }
        // The query is slow, so the lock is not held: other threads can look up products, and two threads can query the same one.
        let prepared = self.ask(gemm, product, alignments, room)?;
        let mut known = locked(&self.known);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, prepared.clone());
        Ok(prepared)
    }

    /// Queries the initialized libraries in order; returns an error if none could be initialized.
    fn ask(&self, gemm: &Gemm, product: &Product, alignments: [u32; 3], room: bool) -> Result<Option<Choice>> {
        let mut obstacle = None;
        let mut asked = false;
        for (by, candidate) in self.candidates.iter().enumerate() {
            let blas = match self.blas(candidate) {
                Ok(blas) => blas,
                Err(error) => {
                    obstacle.get_or_insert(error);
                    continue;
                }
            };
            asked = true;
            let _current = self.context.enter()?;
            let prepared = blas.prepare(product, alignments, if room { blas.workspace() } else { 0 });
            if let Some(prepared) = prepared.map_err(|code| self.failed(&*candidate.library, gemm, code))? {
                return Ok(Some((by, prepared)));
            }
        }
        obstacle.filter(|_| !asked).map_or(Ok(None), Err)
    }

    fn blas<'a>(&self, candidate: &'a Candidate) -> Result<&'a dyn Blas> {
        let start = || {
            let _current = self.context.enter()?;
            candidate
                .library
                .start(&self.context)
                .map_err(|code| self.failed(&*candidate.library, "initializing", code))
        };
        candidate.blas.get_or_init(start).as_ref().map(|blas| &**blas).map_err(Error::clone)
    }

    /// Returns the workspace size of a queue, which is large enough for every library.
    fn workspace(&self) -> usize {
        let started = self.candidates.iter().filter_map(|candidate| self.blas(candidate).ok());
        started.map(|blas| blas.workspace()).max().unwrap_or(0)
    }

    fn titles(&self) -> String {
        let titles: Vec<&str> = self.candidates.iter().map(|candidate| candidate.library.title()).collect();
        titles.join(", ")
    }

    fn failed(&self, library: &dyn Library, doing: impl Display, code: i32) -> Error {
        library.codes().failed(format_args!("{}: {}: {doing}", self.context.label, library.title()), code)
    }
}

/// Describes which libraries compute products, given the initialization errors where they are known.
pub fn report(libraries: &[Arc<dyn Library>], obstacles: &[Option<Error>]) -> String {
    let obstacle = |at: usize| obstacles.get(at).and_then(Option::as_ref);
    let at_work = libraries.iter().enumerate().filter(|(at, _)| obstacle(*at).is_none());
    let at_work: Vec<&str> = at_work.map(|(_, library)| library.title()).collect();
    let why: Vec<&str> = obstacles.iter().flatten().map(|error| error.message()).collect();
    match (at_work.is_empty(), why.is_empty()) {
        (true, _) => format!("own kernels: {}", why.join("; ")),
        (false, true) => at_work.join(", "),
        (false, false) => format!("{}; without {}", at_work.join(", "), why.join("; ")),
    }
}

/// Returns the alignments that matrices have at any offset.
fn anywhere(gemm: &Gemm) -> [u32; 3] {
    [gemm.dtype.bytes() as u32; 3]
}
