//! Command buffers as CUDA or HIP graphs, which are launched with one call.
//!
//! Each run of consecutive launches becomes a graph, a chain of nodes; commands between runs are enqueued individually. A replay updates
//! the arguments that changed since the last one and launches the graph. Launches of which the driver rejects a graph are enqueued
//! individually; if the launches themselves are invalid, that reports the error.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use panoply_device::{DeviceCommand, Result};

use super::functions::Functions;
use super::handles::Context;
use super::program::Program;
use super::submit::{Encoder, SubLaunch};
use crate::library::Handle;

/// Minimum number of launches for a graph.
const MIN_LAUNCHES: usize = 4;

/// The functions for graphs, if the driver has all of them.
#[derive(Clone, Copy)]
struct Graphs {
    create: unsafe extern "system" fn(*mut Handle, u32) -> i32,
    add: unsafe extern "system" fn(*mut Handle, Handle, *const Handle, usize, *const c_void) -> i32,
    instantiate: unsafe extern "system" fn(*mut Handle, Handle, u64) -> i32,
    change: unsafe extern "system" fn(Handle, Handle, *const c_void) -> i32,
    launch: unsafe extern "system" fn(Handle, Handle) -> i32,
    destroy_instance: unsafe extern "system" fn(Handle) -> i32,
    destroy: unsafe extern "system" fn(Handle) -> i32,
}

impl Graphs {
    fn of(functions: &Functions) -> Option<Graphs> {
        Some(Graphs {
            create: functions.graph_create?,
            add: functions.graph_add?,
            instantiate: functions.graph_instantiate?,
            change: functions.graph_change?,
            launch: functions.graph_launch?,
            destroy_instance: functions.graph_exec_destroy?,
            destroy: functions.graph_destroy?,
        })
    }
}

/// The graphs of a command buffer on a device.
#[derive(Default)]
pub struct Graph {
    runs: Vec<Run>,
    /// True if the commands were divided into runs.
    divided: bool,
}

/// A range of a command buffer's commands.
struct Run {
    steps: Range<usize>,
    launched: LaunchState,
}

enum LaunchState {
    /// A graph is created at the next replay.
    NotYet,
    Whole(GraphInstance),
    OneByOne,
}

/// An instantiated graph.
struct GraphInstance {
    raw: Handle,
    graph: Handle,
    nodes: Vec<Node>,
    graphs: Graphs,
    context: Arc<Context>,
}

/// A kernel node of a graph, with its current arguments.
struct Node {
    raw: Handle,
    values: Vec<u64>,
    program: Arc<Program>,
}

impl Graph {
    /// Returns true if a graph was instantiated for some of the commands.
    pub fn is_made(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.launched, LaunchState::Whole(_)))
    }

    /// Enqueues a command buffer's commands on the encoder's stream.
    pub fn replay(&mut self, encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<()> {
        if !self.divided {
            self.runs = divide(steps, Graphs::of(&encoder.context().api.functions).is_some());
            self.divided = true;
        }
        for run in &mut self.runs {
            run.replay(encoder, &steps[run.steps.clone()])?;
        }
        Ok(())
    }
}

/// Divides commands into runs of launches and the commands between them.
fn divide(steps: &[DeviceCommand], graphs: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let is_launch = |step: &DeviceCommand| matches!(step, DeviceCommand::Dispatch(_));
    for part in steps.chunk_by(|a, b| is_launch(a) == is_launch(b)) {
        let start = runs.last().map_or(0, |run| run.steps.end);
        let whole = graphs && part.len() >= MIN_LAUNCHES && part.first().is_some_and(is_launch);
        let launched = if whole { LaunchState::NotYet } else { LaunchState::OneByOne };
        runs.push(Run { steps: start..start + part.len(), launched });
    }
    runs
}

impl Run {
    fn replay(&mut self, encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<()> {
        match &mut self.launched {
            LaunchState::OneByOne => return steps.iter().try_for_each(|step| encoder.step(step)),
            LaunchState::NotYet => match GraphInstance::new(encoder, steps)? {
                Some(made) => self.launched = LaunchState::Whole(made),
                None => self.launched = LaunchState::OneByOne,
            },
            LaunchState::Whole(made) => {
                if !made.change(encoder, steps)? {
                    self.launched = LaunchState::OneByOne;
                }
            }
        }
        match &self.launched {
            LaunchState::Whole(made) => made.launch(encoder),
            LaunchState::NotYet | LaunchState::OneByOne => steps.iter().try_for_each(|step| encoder.step(step)),
        }
    }
}

impl GraphInstance {
    /// Instantiates a graph of launches in a chain; `None` if the driver rejects it.
    fn new(encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<Option<GraphInstance>> {
        let context = encoder.context();
        let Some(graphs) = Graphs::of(&context.api.functions) else { return Ok(None) };
        let _current = context.enter()?;
        let mut made = GraphInstance { raw: 0, graph: 0, nodes: Vec::new(), graphs, context: context.clone() };
        // SAFETY: the pointer is valid.
        let mut code = unsafe { (graphs.create)(&mut made.graph, 0) };
        for step in steps {
            let DeviceCommand::Dispatch(dispatch) = step else { continue };
            encoder.parts(dispatch, &mut |part| {
                if code == 0 {
                    code = made.add(part);
                }
                Ok(())
            })?;
        }
        if code == 0 {
            // SAFETY: the pointer is valid and the graph live.
            code = unsafe { (graphs.instantiate)(&mut made.raw, made.graph, 0) };
        }
        Ok((code == 0).then_some(made))
    }

    fn add(&mut self, part: &SubLaunch<'_>) -> i32 {
        let before = self.nodes.last().map(|node| node.raw);
        let before: &[Handle] = before.as_slice();
        let mut raw = 0;
        let code = part.described(self.context.api.brand(), |described| {
            let none = ptr::null();
            let start = if before.is_empty() { none } else { before.as_ptr() };
            // SAFETY: the nodes belong to this graph, function and arguments are live, and the driver copies the description.
            unsafe { (self.graphs.add)(&mut raw, self.graph, start, before.len(), described) }
        });
        self.nodes.push(Node { raw, values: part.values.to_vec(), program: part.program.clone() });
        code
    }

    /// Updates the arguments that changed; returns false if the driver rejects it.
    fn change(&mut self, encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<bool> {
        let context = encoder.context();
        let _current = context.enter()?;
        let (mut nodes, mut code) = (self.nodes.iter_mut(), 0);
        let (change, raw) = (self.graphs.change, self.raw);
        for step in steps {
            let DeviceCommand::Dispatch(dispatch) = step else { continue };
            encoder.parts(dispatch, &mut |part| {
                let Some(node) = nodes.next().filter(|node| code == 0 && node.values != part.values) else {
                    return Ok(());
                };
                debug_assert!(
                    Arc::ptr_eq(&node.program, part.program),
                    "the programs of a command buffer do not change"
                );
                // SAFETY: the node belongs to the graph that was instantiated; function and arguments are live as when it was added.
                code = part.described(context.api.brand(), |described| unsafe { change(raw, node.raw, described) });
                node.values.copy_from_slice(part.values);
                Ok(())
            })?;
        }
        Ok(code == 0)
    }

    fn launch(&self, encoder: &Encoder<'_>) -> Result<()> {
        let doing = format_args!("launching {} kernels", self.nodes.len());
        // SAFETY: graph and stream are live and of one context.
        encoder.queue.stream.ask(doing, |_, stream| unsafe { (self.graphs.launch)(self.raw, stream) })
    }
}

impl Drop for GraphInstance {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // A failure here means that the device is lost. The driver completes launches in progress.
        // SAFETY: this is the only reference to them.
        unsafe {
            if self.raw != 0 {
                (self.graphs.destroy_instance)(self.raw);
            }
            if self.graph != 0 {
                (self.graphs.destroy)(self.graph);
            }
        }
    }
}
