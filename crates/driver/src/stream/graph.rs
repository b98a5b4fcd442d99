//! Tapes as graphs: what a driver was told once it launches as a whole.
//!
//! Runs of launches become a graph each, its nodes in a row; what lies between them is given to the stream step by step. A replay tells
//! the driver the arguments that changed since the last one, and launches. What a driver refuses to make a graph of is launched step
//! by step, as without graphs: if something is wrong with the launches themselves, they say it.

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

/// Launches that are worth a graph.
const LEAST: usize = 4;

/// The functions for graphs; all or none.
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

/// A command buffer on a device.
#[derive(Default)]
pub struct Graph {
    runs: Vec<Run>,
    /// Whether the runs were looked for.
    divided: bool,
}

/// Some of a command buffer's steps.
struct Run {
    steps: Range<usize>,
    launched: Launched,
}

enum Launched {
    /// A graph is to be made at the next replay.
    NotYet,
    Whole(Made),
    OneByOne,
}

/// A graph that can be launched.
struct Made {
    raw: Handle,
    graph: Handle,
    nodes: Vec<Node>,
    graphs: Graphs,
    context: Arc<Context>,
}

/// One launch of a graph, with the arguments it was told last.
struct Node {
    raw: Handle,
    values: Vec<u64>,
    program: Arc<Program>,
}

impl Graph {
    /// Whether the driver has a graph of some of the steps.
    pub fn is_made(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.launched, Launched::Whole(_)))
    }

    /// Gives a command buffer's steps to the encoder's stream.
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

/// Runs of launches, and what is between them.
fn divide(steps: &[DeviceCommand], graphs: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let is_launch = |step: &DeviceCommand| matches!(step, DeviceCommand::Dispatch(_));
    for part in steps.chunk_by(|a, b| is_launch(a) == is_launch(b)) {
        let start = runs.last().map_or(0, |run| run.steps.end);
        let whole = graphs && part.len() >= LEAST && part.first().is_some_and(is_launch);
        let launched = if whole { Launched::NotYet } else { Launched::OneByOne };
        runs.push(Run { steps: start..start + part.len(), launched });
    }
    runs
}

impl Run {
    fn replay(&mut self, encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<()> {
        match &mut self.launched {
            Launched::OneByOne => return steps.iter().try_for_each(|step| encoder.step(step)),
            Launched::NotYet => match Made::new(encoder, steps)? {
                Some(made) => self.launched = Launched::Whole(made),
                None => self.launched = Launched::OneByOne,
            },
            Launched::Whole(made) => {
                if !made.change(encoder, steps)? {
                    self.launched = Launched::OneByOne;
                }
            }
        }
        match &self.launched {
            Launched::Whole(made) => made.launch(encoder),
            Launched::NotYet | Launched::OneByOne => steps.iter().try_for_each(|step| encoder.step(step)),
        }
    }
}

impl Made {
    /// A graph of launches, one after the other; none if the driver will not.
    fn new(encoder: &Encoder<'_>, steps: &[DeviceCommand]) -> Result<Option<Made>> {
        let context = encoder.context();
        let Some(graphs) = Graphs::of(&context.api.functions) else { return Ok(None) };
        let _current = context.enter()?;
        let mut made = Made { raw: 0, graph: 0, nodes: Vec::new(), graphs, context: context.clone() };
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
            // SAFETY: the nodes are of this graph, function and arguments are live, and the driver copies what it is told.
            unsafe { (self.graphs.add)(&mut raw, self.graph, start, before.len(), described) }
        });
        self.nodes.push(Node { raw, values: part.values.to_vec(), program: part.program.clone() });
        code
    }

    /// Tells the driver the arguments that changed; false if it will not be told.
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
                debug_assert!(Arc::ptr_eq(&node.program, part.program), "a command buffer keeps its programs");
                // SAFETY: the node is of the graph this was made of; the rest as when it was added.
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

impl Drop for Made {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // What fails here belongs to a lost device. The driver finishes what it was given.
        // SAFETY: nobody else has them.
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
