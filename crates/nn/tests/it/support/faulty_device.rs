//! A CPU device with other properties, whose kernels can be wrong.

use std::sync::Arc;

use panoply_device::{
    AllocId, DeviceCommand, DeviceInfo, MemoryInfo, Program, ProgramId, QueueId, RawDevice, Region, Ticket,
};
use panoply_ir::routine::Routine;
use panoply_ir::target::Target;
use panoply_ir::{text, verify::verify_proven};
use panoply_tensor::Result;

/// A device that reports `target` and changes kernels before they are compiled.
#[derive(Debug)]
pub struct FaultyDevice {
    pub cpu: Arc<dyn RawDevice>,
    pub target: Target,
    /// Transforms the text of a kernel before it is compiled.
    pub text: fn(String) -> String,
}

impl RawDevice for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        self.cpu.info()
    }
    fn target(&self) -> &Target {
        &self.target
    }
    fn memory(&self) -> MemoryInfo {
        self.cpu.memory()
    }
    fn supports_routine(&self, routine: &Routine) -> bool {
        self.cpu.supports_routine(routine)
    }
    fn allocate(&self, bytes: u64) -> Result<AllocId> {
        self.cpu.allocate(bytes)
    }
    fn free(&self, alloc: AllocId) {
        self.cpu.free(alloc);
    }
    fn compile(&self, program: &Program) -> Result<ProgramId> {
        let Program::Ir(kernel) = program else { return self.cpu.compile(program) };
        let other = (self.text)(text::print(kernel));
        // SAFETY: the optimizer proved the guards, and only scalar operations are changed, not accesses.
        let kernel = unsafe { verify_proven(text::parse(&other)?) }?;
        self.cpu.compile(&Program::Ir(Arc::new(kernel)))
    }
    fn binary(&self, program: ProgramId) -> Option<Vec<u8>> {
        self.cpu.binary(program)
    }
    fn release(&self, program: ProgramId) {
        self.cpu.release(program);
    }
    fn queue(&self) -> Result<QueueId> {
        self.cpu.queue()
    }
    fn submit(&self, queue: QueueId, steps: &[DeviceCommand], timed: bool) -> Result<Ticket> {
        self.cpu.submit(queue, steps, timed)
    }
    fn write(&self, queue: QueueId, to: Region, bytes: &[u8]) -> Result<()> {
        self.cpu.write(queue, to, bytes)
    }
    fn read(&self, queue: QueueId, from: Region) -> Result<Ticket> {
        self.cpu.read(queue, from)
    }
    fn synchronize(&self) -> Result<()> {
        self.cpu.synchronize()
    }
}
