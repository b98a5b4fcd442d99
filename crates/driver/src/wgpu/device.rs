//! The device contract for one device of `wgpu`.
//!
//! The API's device costs milliseconds and memory, so it is created at the first use, not at discovery. A failure to create it is returned
//! to the caller, and the next call tries again.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard};

use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, Error, MemoryInfo, Program as DeviceProgram, ProgramForm, ProgramId, QueueId,
    RawDevice, Region, Result, Routine, Target, Ticket,
};
use wgpu::{Buffer, BufferDescriptor, BufferUsages, CommandEncoder};

use super::arithmetic::{Function, Trust, is_exact};
use super::discovery::DiscoveredDevice;
use super::encode::{Encoder, Tables};
use super::memory::{Allocation, MemoryBudget, landing};
use super::open::{IN_BROWSER, Open, now};
use super::program::{Program, build};
use super::ticket::{Readback, Submitted};
use super::{bytes, info, subgroups, submit};
use crate::lock::{exclusive, locked, shared};

/// A device of Vulkan, Metal, DirectX 12 or a browser.
pub struct WgpuDevice {
    place: DiscoveredDevice,
    info: DeviceInfo,
    target: Target,
    room: MemoryBudget,
    trust: Trust,
    opening: Mutex<()>,
    used: OnceLock<SharedState>,
}

/// The state that is created at first use.
struct SharedState {
    tables: RwLock<Tables>,
    bytes: Program,
    words: Buffer,
    /// Held while commands are encoded and submitted: they share the `words` buffer, and their order is that of the calls.
    order: Mutex<()>,
    /// Results of the tests of multiply-adds and of consecutive subgroups, run on request.
    tried: [OnceLock<bool>; Function::ALL.len() + 1],
    open: Arc<Open>,
}

impl WgpuDevice {
    /// Creates the device for a discovered adapter; it is opened at first use.
    pub(super) fn new(place: DiscoveredDevice, trust: Trust) -> WgpuDevice {
        let info = info::info(&place);
        let target = info::target(&place, &info);
        let room = MemoryBudget::new(info::memory(&place).total, target.max_buffer_bytes);
        WgpuDevice { place, info, target, room, trust, opening: Mutex::new(()), used: OnceLock::new() }
    }

    /// Returns the device with a changed target, for tests of code that is generated for other devices.
    pub fn with_target(mut self, change: impl FnOnce(&mut Target)) -> WgpuDevice {
        change(&mut self.target);
        self
    }

    /// Returns a function that counts the bytes allocated on this device, even after it was dropped.
    pub fn taken(&self) -> impl Fn() -> u64 + use<> {
        self.room.taken()
    }

    /// Destroys the API's device, as if the GPU were unplugged; later calls fail. For tests.
    ///
    /// # Errors
    ///
    /// The device cannot be opened.
    pub fn lose(&self) -> Result<()> {
        let used = self.used()?;
        used.open.status.lose("it was destroyed".to_string());
        used.open.device.destroy();
        Ok(())
    }

    fn used(&self) -> Result<&SharedState> {
        if let Some(used) = self.used.get() {
            return Ok(used);
        }
        let _one_at_a_time = locked(&self.opening);
        if self.used.get().is_none() {
            now(self.open())?;
        }
        Ok(self.used.get().expect("the device was opened above or by another thread"))
    }

    /// Opens the device, which must not be open. In a browser the multiply-add is tested here, because later calls cannot wait.
    pub(super) async fn open(&self) -> Result<()> {
        let open = Arc::new(Open::new(&self.place, self.info.device_string()).await?);
        let (bytes, words) = (bytes::program(&open)?, submit::words_buffer(&open)?);
        let (tables, order, tried) = (RwLock::default(), Mutex::default(), Default::default());
        let used = self.used.get_or_init(|| SharedState { tables, bytes, words, order, tried, open });
        if IN_BROWSER {
            // WebGPU has no f64.
            let exact = is_exact(self, Function::FmaF32).await?;
            let _ = used.tried[Function::FmaF32 as usize].set(exact);
        }
        Ok(())
    }

    /// Returns the value of a pipeline constant that depends on the device; `None` for an unknown name.
    fn constant(&self, name: &str) -> Result<Option<f64>> {
        let function = Function::ALL.into_iter().position(|function| function.constant() == name);
        let position = match function {
            Some(position) => position,
            None if name == "subgroups_consecutive" => Function::ALL.len(),
            None => return Ok(None),
        };
        if self.trust == Trust::Nothing {
            return Ok(Some(0.0));
        }
        let known = &self.used()?.tried[position];
        let right = match known.get() {
            Some(right) => *right,
            None => {
                let right = match Function::ALL.get(position) {
                    Some(function) => now(is_exact(self, *function))?,
                    None => now(subgroups::are_consecutive(self, &self.target))?,
                };
                *known.get_or_init(|| right)
            }
        };
        Ok(Some(f64::from(u8::from(right))))
    }

    fn copy_back(&self, used: &SharedState, from: Region) -> Result<(wgpu::SubmissionIndex, Readback)> {
        let tables = shared(&used.tables);
        let freed = || Error::mistake(format!("{}: {:?} was freed", self.info.device_string(), from.alloc));
        let allocation = tables.memory.get(from.alloc.0).cloned().ok_or_else(freed)?;
        // Whole words around the region.
        let (start, end) = (from.offset & !3, (from.offset + from.bytes).next_multiple_of(4));
        let landing = landing(&used.open, end - start)?;
        let copy = |encoder: &mut CommandEncoder| {
            encoder.copy_buffer_to_buffer(&allocation.buffer, start, &landing, 0, end - start);
        };
        let _order = locked(&used.order);
        let index = used.encoder(&tables, &self.target).submit(Some(&copy))?;
        let readback = Readback::map(&used.open, landing, from.offset - start, from.bytes)?;
        Ok((index, readback))
    }
}

impl SharedState {
    fn encoder<'a>(&'a self, tables: &'a Tables, target: &Target) -> Encoder<'a> {
        let (words, commands, most) = (Vec::new(), Vec::new(), target.max_binding_bytes);
        Encoder { open: &self.open, tables, most, bytes: &self.bytes, words_buffer: &self.words, words, commands }
    }

    /// Returns the tables, after checking that a queue exists.
    fn tables_for(&self, queue: QueueId) -> Result<RwLockReadGuard<'_, Tables>> {
        let tables = shared(&self.tables);
        if queue.0 > tables.queues {
            let (label, last) = (&self.open.status.label, tables.queues);
            return Err(Error::mistake(format!("{label}: no queue {}; the last one is {last}", queue.0)));
        }
        Ok(tables)
    }
}

impl RawDevice for WgpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: self.room.total, free: None }
    }

    fn supports_routine(&self, _routine: &Routine) -> bool {
        false
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        let used = self.used()?;
        let allocation: Allocation = self.room.allocate(bytes, &used.open)?;
        Ok(AllocId(exclusive(&used.tables).memory.insert(Arc::new(allocation))))
    }

    fn free(&self, alloc: AllocId) {
        if let Some(used) = self.used.get() {
            let mut tables = exclusive(&used.tables);
            let allocation = tables.memory.remove(alloc.0);
            tables.programs.values().for_each(|program| program.unbind(alloc.0));
            used.bytes.unbind(alloc.0);
            drop(tables);
            // Released here, outside the lock.
            drop(allocation);
        }
    }

    fn accepted_forms(&self) -> Vec<ProgramForm> {
        info::takes(&self.place)
    }

    fn compile(&self, program: &DeviceProgram) -> Result<ProgramId> {
        let takes = self.accepted_forms();
        if !program.form().is_some_and(|form| takes.contains(&form)) {
            return Err(program.rejected_by(self.info.device_string(), &takes));
        }
        let used = self.used()?;
        let built = build(&used.open, program, &self.target.name, &|name| self.constant(name))?;
        Ok(ProgramId(exclusive(&used.tables).programs.insert(Arc::new(built))))
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        let program = shared(&self.used.get()?.tables).programs.get(program.0).cloned();
        program?.cache_data(&self.target.name)
    }

    fn release(&self, program: ProgramId) {
        if let Some(used) = self.used.get() {
            let program = exclusive(&used.tables).programs.remove(program.0);
            drop(program);
        }
    }

    fn queue(&self) -> Result<QueueId> {
        let tables = &mut exclusive(&self.used()?.tables);
        tables.queues += 1;
        Ok(QueueId(tables.queues))
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        let used = self.used()?;
        let tables = used.tables_for(queue)?;
        let _order = locked(&used.order);
        let encoder = used.encoder(&tables, &self.target);
        let (index, times) = if timed {
            let (index, times) = encoder.run_timed(steps)?;
            (index, Some(times))
        } else {
            (encoder.run(steps)?, None)
        };
        Ok(Submitted::ticket(&used.open, index, times, None))
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        let used = self.used()?;
        let tables = used.tables_for(queue)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let open = &used.open;
        let doing = format_args!("writing {} bytes", bytes.len());
        let freed = || Error::mistake(format!("{}: {:?} was freed", open.status.label, to.alloc));
        let allocation = tables.memory.get(to.alloc.0).ok_or_else(freed)?;
        let _order = locked(&used.order);
        // Whole words are written directly; the rest goes through a staging buffer.
        let direct = if to.offset.is_multiple_of(4) { bytes.len() & !3 } else { 0 };
        if direct > 0 {
            open.checked(doing, || open.queue.write_buffer(&allocation.buffer, to.offset, &bytes[..direct]))?;
        }
        let rest = &bytes[direct..];
        if rest.is_empty() {
            // Without a submission the write would not be executed.
            return open.checked(doing, || open.submit([])).map(drop);
        }
        let mut words = rest.to_vec();
        words.resize(rest.len().next_multiple_of(4), 0);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let descriptor = BufferDescriptor { label: None, size: words.len() as u64, usage, mapped_at_creation: false };
        let staged = open.checked(doing, || {
            let staged = open.device.create_buffer(&descriptor);
            open.queue.write_buffer(&staged, 0, &words);
            staged
        })?;
        let mut encoder = used.encoder(&tables, &self.target);
        let region = Region { offset: to.offset + direct as u64, bytes: rest.len() as u64, ..to };
        encoder.copy_from(&staged, &region)?;
        encoder.flush().map(drop)
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        let used = self.used()?;
        drop(used.tables_for(queue)?);
        if from.bytes == 0 {
            return Ok(Ticket::Done);
        }
        let (index, readback) = self.copy_back(used, from)?;
        Ok(Submitted::ticket(&used.open, index, None, Some(readback)))
    }

    fn read_into(&self, queue: QueueId, from: Region, bytes: &mut [u8]) -> Result<()> {
        let used = self.used()?;
        drop(used.tables_for(queue)?);
        if bytes.is_empty() {
            return Ok(());
        }
        let (_, readback) = self.copy_back(used, from)?;
        readback.take(&used.open, |data| bytes.copy_from_slice(data))
    }

    fn synchronize(&self) -> Result<()> {
        self.used.get().map_or(Ok(()), |used| used.open.wait_for_all())
    }
}

impl fmt::Debug for WgpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuDevice({}, {})", self.info.device_string(), self.info.name)
    }
}
