//! The device contract for one device.
//!
//! A context costs 0.1 seconds and memory, so it is created at the first use, not at discovery. A failure to create it is returned to the
//! caller, and the next call tries again.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use panoply_device::command_buffer;
use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, Error, MemoryInfo, Peer, Program as DeviceProgram, ProgramForm, ProgramId,
    QueueId, RawCommandBuffer, RawDevice, Region, Result, Routine, Scalar, Target, Ticket,
};

use super::blas::{self, Library, Products};
use super::discovery::{DiscoveredDevice, Query};
use super::functions::Functions;
use super::handles::{Context, Event};
use super::memory::MemoryTraits;
use super::program::Builder;
use super::queue::Queue;
use super::submit::{Encoder, Tables};
use super::ticket::{Data, Submitted};
use crate::lock::{exclusive, locked, shared};

/// A device of CUDA or HIP.
pub struct StreamDevice {
    place: DiscoveredDevice,
    info: DeviceInfo,
    target: Target,
    room: MemoryTraits,
    opening: Mutex<()>,
    open: OnceLock<Open>,
}

/// The state that is created at first use.
struct Open {
    tables: RwLock<Tables>,
    /// The event that times are relative to, recorded when times are first requested.
    clock: OnceLock<Arc<Event>>,
    /// Matrix products by libraries, created at the first query.
    products: OnceLock<Products>,
    context: Arc<Context>,
}

impl Open {
    fn products(&self, libraries: &[Arc<dyn Library>]) -> &Products {
        self.products.get_or_init(|| Products::new(libraries.to_vec(), self.context.clone()))
    }
}

impl StreamDevice {
    /// Creates the device for a discovered one; it is opened at first use.
    pub fn new(place: DiscoveredDevice, info: DeviceInfo, target: Target) -> StreamDevice {
        let query = Query(&place);
        StreamDevice {
            target,
            room: MemoryTraits { total: query.memory(), pools: query.has_pools() },
            place,
            info,
            opening: Mutex::new(()),
            open: OnceLock::new(),
        }
    }

    fn open(&self) -> Result<&Open> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let _one_at_a_time = locked(&self.opening);
        if self.open.get().is_none() {
            let context = Context::retain(&self.place, self.info.device_string())?;
            let queues = vec![Arc::new(Queue::new(&context)?)];
            let tables = RwLock::new(Tables { queues, ..Tables::default() });
            let _ = self.open.set(Open { tables, clock: OnceLock::new(), products: OnceLock::new(), context });
        }
        Ok(self.open.get().expect("the device was opened above or by another thread"))
    }

    fn libraries(&self) -> Result<Vec<Arc<dyn Library>>> {
        self.place.api.vendor.products(&self.place)
    }

    fn queue_of<'a>(&self, tables: &'a Tables, queue: QueueId) -> Result<&'a Arc<Queue>> {
        tables.queues.get(queue.0 as usize).ok_or_else(|| {
            let (label, last) = (self.info.device_string(), tables.queues.len() - 1);
            Error::mistake(format!("{label}: no queue {}; the last one is {last}", queue.0))
        })
    }

    /// Returns a queue, and the address of a region.
    fn find(&self, queue: QueueId, region: &Region) -> Result<(Arc<Queue>, u64)> {
        let open = self.open()?;
        let tables = shared(&open.tables);
        let address = tables.address(region, &open.context.label)?;
        Ok((self.queue_of(&tables, queue)?.clone(), address))
    }
}

impl RawDevice for StreamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        let (mut free, mut total) = (0, 0);
        let known = self.open.get().is_some_and(|open| {
            // SAFETY: the pointers are valid.
            let ask = |functions: &Functions| unsafe { (functions.free_memory)(&mut free, &mut total) };
            open.context.ask("querying free memory", ask).is_ok()
        });
        MemoryInfo { total: self.room.total, free: known.then_some(free as u64) }
    }

    fn supports_routine(&self, routine: &Routine) -> bool {
        let Routine::Gemm(gemm) = routine else { return false };
        // Without a library the device does not have to be opened.
        let Ok(libraries) = self.libraries() else { return false };
        self.open().is_ok_and(|open| open.products(&libraries).offers(gemm))
    }

    fn blas_library(&self) -> Option<String> {
        Some(match self.libraries() {
            Ok(libraries) => {
                // A device that is not in use is not opened for this query.
                let obstacles = self.open.get().map(|open| open.products(&libraries).obstacles());
                blas::report(&libraries, &obstacles.unwrap_or_default())
            }
            Err(why) => format!("own kernels: {}", why.message()),
        })
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let open = self.open()?;
        let mut tables = exclusive(&open.tables);
        let allocation = self.room.allocate(bytes, &open.context, &tables.queues)?;
        Ok(AllocId(tables.memory.insert(allocation)))
    }

    fn free(&self, alloc: AllocId) {
        if let Some(open) = self.open.get() {
            let mut tables = exclusive(&open.tables);
            if let Some(allocation) = tables.memory.remove(alloc.0) {
                allocation.release(&tables.queues);
            }
        }
    }

    fn accepted_forms(&self) -> Vec<ProgramForm> {
        self.place.api.brand().takes.to_vec()
    }

    fn compile(&self, program: &DeviceProgram) -> Result<ProgramId> {
        let open = self.open()?;
        let built = Builder { context: &open.context, made_for: &self.target.name }.build(program)?;
        Ok(ProgramId(exclusive(&open.tables).programs.insert(Arc::new(built))))
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        let program = shared(&self.open.get()?.tables).programs.get(program.0).cloned();
        Some(program?.binary(&self.target.name))
    }

    fn release(&self, program: ProgramId) {
        if let Some(open) = self.open.get() {
            let program = exclusive(&open.tables).programs.remove(program.0);
            // Unloaded here, outside the lock.
            drop(program);
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let open = self.open()?;
        let queue = Arc::new(Queue::new(&open.context)?);
        let queues = &mut exclusive(&open.tables).queues;
        // Memory that was allocated in the default queue's order must be usable in this queue, so it waits for the default queue.
        queue.stream.wait(&queues[0].stream.mark()?)?;
        queues.push(queue);
        Ok(QueueId(queues.len() as u32 - 1))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let open = self.open()?;
        let tables = shared(&open.tables);
        let queue = self.queue_of(&tables, queue)?;
        let _order = queue.order();
        if timed && open.clock.get().is_none() {
            let _ = open.clock.set(Arc::new(Event::timed(&queue.stream)?));
        }
        Encoder { queue, tables: &tables, products: open.products.get() }.run(steps, open.clock.get().filter(|_| timed))
    }

    fn record(&self, steps: Vec<DeviceCommand>, places: Vec<command_buffer::BindingSlot>) -> Result<RawCommandBuffer> {
        let graph = exclusive(&self.open()?.tables).graphs.insert(Arc::default());
        let mut command_buffer = RawCommandBuffer::new(steps, places);
        command_buffer.graph = graph;
        Ok(command_buffer)
    }

    fn replay(
        &self,
        queue: QueueId,
        command_buffer: &mut RawCommandBuffer,
        bindings: &[Region],
        slots: &[Scalar],
    ) -> Result<Ticket> {
        command_buffer.set(bindings, slots);
        let open = self.open()?;
        let tables = shared(&open.tables);
        let queue = self.queue_of(&tables, queue)?;
        let graph = tables.graphs.get(command_buffer.graph);
        let graph = graph.ok_or_else(|| {
            Error::mistake(format!("{}: the command buffer was destroyed", self.info.device_string()))
        })?;
        let _order = queue.order();
        let encoder = Encoder { queue, tables: &tables, products: open.products.get() };
        locked(graph).replay(&encoder, command_buffer.steps())?;
        Ok(Submitted::ticket(queue, queue.stream.mark()?, None, None))
    }

    fn destroy_command_buffer(&self, command_buffer: RawCommandBuffer) {
        if let Some(open) = self.open.get() {
            let graph = exclusive(&open.tables).graphs.remove(command_buffer.graph);
            if graph.as_ref().is_some_and(|graph| locked(graph).is_made()) {
                // HIP does not specify the destruction of a running graph. A failure means that the device is lost.
                let _ = self.synchronize();
            }
            drop(graph);
        }
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        let (queue, address) = self.find(queue, &to)?;
        if bytes.is_empty() { Ok(()) } else { queue.write(address, bytes) }
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let (queue, address) = self.find(queue, &from)?;
        if from.bytes == 0 {
            let event = queue.stream.mark()?;
            return Ok(Submitted::ticket(&queue, event, None, Some(Data::Here(Vec::new()))));
        }
        queue.read(address, from)
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let (queue, address) = self.find(queue, &from)?;
        if bytes.is_empty() { Ok(()) } else { queue.read_into(address, bytes) }
    }

    fn peer(&self, region: Region) -> Option<Peer> {
        let open = self.open.get()?;
        let address = shared(&open.tables).address(&region, &open.context.label).ok()?;
        Some(open.context.peer(address))
    }

    fn copy_peer(&self, queue: QueueId, to: Region, from: Peer) -> Result<Ticket> {
        let (queue, address) = self.find(queue, &to)?;
        let (context, bytes, _order) = (&queue.stream.context, to.bytes as usize, queue.order());
        queue.stream.ask(format_args!("copying {bytes} bytes from another device"), |_, stream| {
            context.api.vendor.copy_peer(context.peer(address), from, bytes, stream)
        })?;
        Ok(Submitted::ticket(&queue, queue.stream.mark()?, None, None))
    }

    fn synchronize(&self) -> Result<()> {
        let Some(open) = self.open.get() else { return Ok(()) };
        let queues = shared(&open.tables).queues.clone();
        queues.iter().try_for_each(|queue| queue.stream.synchronize())
    }
}

impl fmt::Debug for StreamDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamDevice({}, {})", self.info.device_string(), self.info.name)
    }
}

impl Drop for StreamDevice {
    fn drop(&mut self) {
        // Running work that uses memory and modules left by the caller is waited for.
        let _ = self.synchronize();
    }
}
