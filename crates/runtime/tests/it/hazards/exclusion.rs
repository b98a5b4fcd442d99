//! Accesses to the same allocation never overlap in time on a synchronous device, from any thread, handle or queue. The device under test
//! counts concurrent accesses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use panoply_device::null::NullDevice;
use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, MemoryInfo, Program, ProgramId, QueueId, RawDevice, Region, Routine, Ticket,
};
use panoply_ir::kernel::Access;
use panoply_ir::{Result, Target};
use panoply_runtime::{Buffer, Device, DeviceOptions, Launch};

use super::test_device::build_mix;

/// A device whose calls are long enough for another thread to interfere, and that counts conflicting concurrent calls.
#[derive(Debug)]
struct Watched {
    null: NullDevice,
    /// Active readers and writers of each allocation.
    inside: Mutex<HashMap<AllocId, (usize, usize)>>,
    calls: AtomicUsize,
    collisions: AtomicUsize,
}

impl Watched {
    fn call<R>(&self, touched: &[(Region, Access)], work: impl FnOnce() -> R) -> R {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.count(touched, |readers, writers, writes| {
            if *writers > 0 || (writes && *readers > 0) {
                self.collisions.fetch_add(1, Ordering::Relaxed);
            }
            *(if writes { writers } else { readers }) += 1;
        });
        let done = work();
        (0..20).for_each(|_| std::thread::yield_now());
        self.count(touched, |readers, writers, writes| *(if writes { writers } else { readers }) -= 1);
        done
    }

    fn count(&self, touched: &[(Region, Access)], mut change: impl FnMut(&mut usize, &mut usize, bool)) {
        let mut inside = self.inside.lock().unwrap();
        for (region, access) in touched {
            let (readers, writers) = inside.entry(region.alloc).or_default();
            change(readers, writers, *access != Access::In);
        }
    }
}

/// Returns the accessed regions; the kernels of this test read their first buffer and write their second.
fn touched(steps: &[DeviceCommand]) -> Vec<(Region, Access)> {
    let mut touched = Vec::new();
    for step in steps {
        match step {
            DeviceCommand::Dispatch(dispatch) => {
                let regions = dispatch.args.iter().filter_map(panoply_device::Arg::region);
                touched.extend(regions.zip([Access::In, Access::InOut]));
            }
            DeviceCommand::Copy { from, to } => touched.extend([(*from, Access::In), (*to, Access::Out)]),
            DeviceCommand::Fill { to, .. } => touched.push((*to, Access::Out)),
            DeviceCommand::Routine(..) | DeviceCommand::Wait(_) => {}
        }
    }
    touched
}

impl RawDevice for Watched {
    fn info(&self) -> &DeviceInfo {
        self.null.info()
    }

    fn target(&self) -> &Target {
        self.null.target()
    }

    fn memory(&self) -> MemoryInfo {
        self.null.memory()
    }

    fn supports_routine(&self, routine: &Routine) -> bool {
        self.null.supports_routine(routine)
    }

    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        self.null.allocate(bytes)
    }

    fn free(&self, alloc: AllocId) {
        self.null.free(alloc);
    }

    fn compile(&self, program: &Program) -> Result<ProgramId> {
        self.null.compile(program)
    }

    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        self.null.binary(program)
    }

    fn release(&self, program: ProgramId) {
        self.null.release(program);
    }

    fn queue(&self) -> Result<QueueId> {
        self.null.queue()
    }

    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        self.call(&touched(steps), || self.null.submit(queue, steps, timed))
    }

    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        self.call(&[(to, Access::Out)], || self.null.write(queue, to, bytes))
    }

    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        self.call(&[(from, Access::In)], || self.null.read(queue, from))
    }

    fn synchronize(&self) -> Result<()> {
        self.null.synchronize()
    }
}

#[test]
fn accesses_to_one_allocation_are_mutually_exclusive() {
    const ROUNDS: usize = 100;
    let watched = Arc::new(Watched {
        null: NullDevice::new(Target::cpu()),
        inside: Mutex::default(),
        calls: AtomicUsize::new(0),
        collisions: AtomicUsize::new(0),
    });
    let device = Device::new(watched.clone(), DeviceOptions::default());
    let a = device.buffer(&[0u32; 64]).unwrap();
    let b = device.buffer(&[0u32; 64]).unwrap();
    let twin = |of: &Buffer<u32>| Buffer::<u32>::from_storage(of.storage().clone()).unwrap();
    let start = Barrier::new(6);
    let rounds = |work: &mut dyn FnMut()| {
        start.wait();
        (0..ROUNDS).for_each(|_| work());
    };
    std::thread::scope(|scope| {
        let queue = || device.queue().unwrap();
        // Launches in both directions: inconsistent lock order would deadlock.
        let (from, mut to, on) = (twin(&a), twin(&b), queue());
        let (other_from, mut other_to, other_on) = (twin(&b), twin(&a), queue());
        let launch = |from: &Buffer<u32>, to: &mut Buffer<u32>, on: &panoply_runtime::Queue| {
            Launch::new(build_mix, vec![from.into(), to.into()]).on(on).launch(64).unwrap();
        };
        let rounds = &rounds;
        scope.spawn(move || rounds(&mut || launch(&from, &mut to, &on)));
        scope.spawn(move || rounds(&mut || launch(&other_from, &mut other_to, &other_on)));
        let (mut written, on) = (twin(&a), queue());
        scope.spawn(move || rounds(&mut || written.write_on(&on, &[1; 64]).unwrap()));
        // Slices share the allocation.
        let mut filled = twin(&a);
        scope.spawn(move || rounds(&mut || filled.slice_mut(8..16).unwrap().fill(3).unwrap()));
        let read = twin(&b);
        scope.spawn(move || rounds(&mut || assert_eq!(read.slice(8..).unwrap().to_vec().unwrap().len(), 56)));
        let (from, mut to) = (twin(&a), twin(&b));
        scope.spawn(move || rounds(&mut || to.copy_from(&from).unwrap()));
    });
    assert!(watched.calls.load(Ordering::Relaxed) >= 6 * ROUNDS);
    assert_eq!(watched.collisions.load(Ordering::Relaxed), 0, "concurrent conflicting calls");
}
