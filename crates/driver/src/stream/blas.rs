//! Matrix products by a vendor's libraries, for one device: which does what, how, and in what room.
//!
//! Libraries are opened and started when somebody first asks for a product; of several the first one does it that starts and can. How a product is done is asked
//! once for each shape and alignment and kept. What fails is the error of one run and is not offered again, so whoever plans anew gets
//! kernels. What a product's result goes through is a kernel behind it, but for a bias.

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

/// Products that are kept ready; a program has a few dozen.
const KEPT: usize = 1024;
/// The alignment in bytes beyond which no algorithm asks for more.
const WIDEST: u32 = 256;

/// Which library of matrix products is looked for.
#[derive(Clone, Debug)]
pub enum GemmRequest {
    /// The one that the system finds.
    Any,
    /// This one.
    This(PathBuf),
    /// None: the driver's library was chosen, and another's would not know its memory.
    None,
}

impl GemmRequest {
    /// What is wanted beside a driver's library: the one that was chosen, or any beside the system's own driver.
    pub fn beside(library: Option<&Path>, chosen: Option<&Path>) -> GemmRequest {
        match (library, chosen) {
            (_, Some(chosen)) => GemmRequest::This(chosen.to_path_buf()),
            (Some(_), None) => GemmRequest::None,
            (None, None) => GemmRequest::Any,
        }
    }

    /// The path to open, if it is not for the system to find.
    pub fn path(&self, kind: &str) -> Result<Option<&Path>> {
        match self {
            GemmRequest::Any => Ok(None),
            GemmRequest::This(path) => Ok(Some(path)),
            GemmRequest::None => {
                Err(Error::unavailable(format!("{kind}: no library of them was chosen with the driver's")))
            }
        }
    }
}

/// A vendor's library of linear algebra, found and not yet started.
pub trait Library: Send + Sync {
    /// What it is and where, as `cuBLASLt 12.8 (libcublasLt.so.12)`.
    fn title(&self) -> &str;
    /// What its codes mean.
    fn codes(&self) -> &'static Codes;
    /// Starts it on a device, which is the thread's own.
    fn start(&self, context: &Arc<Context>) -> Result<Box<dyn Blas>, i32>;
}

/// A library at work on a device, which is the thread's own in every call.
pub trait Blas: Send + Sync {
    /// The most workspace it makes use of, in bytes.
    fn workspace(&self) -> usize;
    /// How it does a product whose matrices begin at multiples of these bytes, with so much workspace at most; none if it does not.
    fn ready(&self, product: &Product, alignments: [u32; 3], workspace: usize) -> Result<Option<Arc<dyn Ready>>, i32>;
}

/// A product that a library is ready to do.
pub trait Ready: Send + Sync {
    /// Bytes of workspace it needs.
    fn workspace(&self) -> usize;
    /// Gives it to a queue: where both factors and the result begin, where the bias does if it has one, and the workspace.
    fn run(&self, matrices: [DevicePtr; 3], bias: DevicePtr, workspace: DevicePtr, queue: &Queue) -> Result<(), i32>;
}

/// What a device does about matrix products.
pub struct Products {
    /// In the order in which they are asked.
    candidates: Vec<Candidate>,
    context: Arc<Context>,
    /// Whether somebody was told that no library starts.
    given_up: AtomicBool,
    known: Mutex<HashMap<Key, Option<Way>>>,
}

/// A library, started at the first product.
struct Candidate {
    library: Arc<dyn Library>,
    blas: OnceLock<Result<Box<dyn Blas>>>,
}

/// A product, what its matrices are aligned to, and whether there is a workspace.
type Key = (Gemm, [u32; 3], bool);

/// How a product is done, and the place of the library that does it.
type Way = (usize, Arc<dyn Ready>);

impl Products {
    /// Products by libraries, of which there is at least one.
    pub fn new(libraries: Vec<Arc<dyn Library>>, context: Arc<Context>) -> Products {
        let candidate = |library| Candidate { library, blas: OnceLock::new() };
        let candidates = libraries.into_iter().map(candidate).collect();
        Products { candidates, context, given_up: AtomicBool::new(false), known: Mutex::default() }
    }

    /// Whether a library does a product, wherever in their buffers its matrices begin. If none can even be asked, running says so.
    pub fn offers(&self, gemm: &Gemm) -> bool {
        let known =
            || Some(self.ready(gemm, &Product::of(gemm)?, anywhere(gemm), true).map_or(true, |ready| ready.is_some()));
        !self.given_up.load(Ordering::Relaxed) && known().unwrap_or(false)
    }

    /// Why each of the libraries does not start, if it does not.
    pub fn obstacles(&self) -> Vec<Option<Error>> {
        self.candidates.iter().map(|candidate| self.blas(candidate).err()).collect()
    }

    /// Gives a product to a queue; its buffers begin at these addresses, its bias at another if it has one.
    pub fn run(&self, gemm: &Gemm, buffers: [DevicePtr; 3], bias: DevicePtr, queue: &Queue) -> Result<()> {
        let done = self.attempt(gemm, buffers, bias, queue);
        // Memory may be there the next time.
        if done.as_ref().is_err_and(|error| !error.is_out_of_memory()) {
            locked(&self.known).insert((*gemm, anywhere(gemm), true), None);
            if self.obstacles().iter().all(Option::is_some) {
                self.given_up.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    fn attempt(&self, gemm: &Gemm, buffers: [DevicePtr; 3], bias: DevicePtr, queue: &Queue) -> Result<()> {
        let none = || Error::unsupported(format!("{}: {} does not do {gemm}", self.context.label, self.titles()));
        let product = Product::of(gemm).ok_or_else(none)?;
        let width = gemm.dtype.bytes() as u64;
        let matrices = product.matrices().map(|matrix| buffers[matrix.buffer] + matrix.offset as u64 * width);
        let alignments = matrices.map(|address| 1 << address.trailing_zeros().min(WIDEST.ilog2()));
        let (mut by, mut ready) = self.ready(gemm, &product, alignments, true)?.ok_or_else(none)?;
        let mut workspace = 0;
        if ready.workspace() > 0 {
            match queue.workspace(self.workspace()) {
                Ok(address) => workspace = address,
                // It is slower without, and works; if not, kernels need none.
                Err(error) if error.is_out_of_memory() => {
                    let titles = self.titles();
                    let full = || Error::unsupported(format!("{titles} has no room for its workspace: {error}"));
                    (by, ready) = self.ready(gemm, &product, alignments, false)?.ok_or_else(full)?;
                }
                Err(error) => return Err(error),
            }
        }
        let _current = self.context.enter()?;
        ready
            .run(matrices, bias, workspace, queue)
            .map_err(|code| self.failed(&*self.candidates[by].library, gemm, code))
    }

    fn ready(&self, gemm: &Gemm, product: &Product, alignments: [u32; 3], room: bool) -> Result<Option<Way>> {
        let key = (*gemm, alignments, room);
        if let Some(known) = locked(&self.known).get(&key) {
            return Ok(known.clone());
        }
        // Asking is slow: others may look meanwhile, and two threads may ask the same.
        let ready = self.ask(gemm, product, alignments, room)?;
        let mut known = locked(&self.known);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, ready.clone());
        Ok(ready)
    }

    /// Asks the libraries that start, one after the other; an error if none does.
    fn ask(&self, gemm: &Gemm, product: &Product, alignments: [u32; 3], room: bool) -> Result<Option<Way>> {
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
            let ready = blas.ready(product, alignments, if room { blas.workspace() } else { 0 });
            if let Some(ready) = ready.map_err(|code| self.failed(&*candidate.library, gemm, code))? {
                return Ok(Some((by, ready)));
            }
        }
        obstacle.filter(|_| !asked).map_or(Ok(None), Err)
    }

    fn blas<'a>(&self, candidate: &'a Candidate) -> Result<&'a dyn Blas> {
        let start = || {
            let _current = self.context.enter()?;
            candidate.library.start(&self.context).map_err(|code| self.failed(&*candidate.library, "starting", code))
        };
        candidate.blas.get_or_init(start).as_ref().map(|blas| &**blas).map_err(Error::clone)
    }

    /// The workspace of a queue, which serves every library.
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

/// Who does products, given why each of the libraries does not start, where that is known.
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

/// Alignments that matrices have wherever they begin.
fn anywhere(gemm: &Gemm) -> [u32; 3] {
    [gemm.dtype.bytes() as u32; 3]
}
