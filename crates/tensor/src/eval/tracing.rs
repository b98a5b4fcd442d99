//! Tracing: copies the part of a graph of tensors without values into a dense [`Graph`], with its arguments.
//!
//! Leaves are numbered by first visit, so that one program gives an equal graph in every step. Equal graphs share a plan: a training loop
//! compiles once. Numbers of the user are slots outside the graph, so a new learning rate does not recompile.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use panoply_ir::graph::{self, Graph, NodeId, Op};
use panoply_ir::{Error, Result, Scalar};
use panoply_runtime::{Device, Storage};

use crate::hasher::{NodeMap, NodeSet};
use crate::random::RngWord;
use crate::tensor::{Node, NodeKind, Tensor};

/// A graph with its arguments.
pub struct TracedGraph<'a> {
    /// The graph.
    pub graph: Graph,
    /// Buffers of [`Op::Input`] nodes.
    pub leaves: Vec<Storage>,
    /// Values of [`Op::ScalarInput`] nodes.
    pub slots: Vec<Scalar>,
    /// One tensor for each output of the graph.
    pub roots: Vec<&'a Tensor>,
    /// Tables that are not computed yet, with their index in `leaves`.
    tables: Vec<(usize, Tensor)>,
}

impl<'a> TracedGraph<'a> {
    /// Traces the nodes without a value that the roots depend on, with leaves uploaded to `device`.
    ///
    /// # Errors
    /// A mistake in an expression, or a failed upload.
    pub fn new(device: &Device, roots: &[&'a Tensor]) -> Result<TracedGraph<'a>> {
        let mut traced = TracedGraph::with_donation(device, roots, |_| Vec::new())?;
        traced.upload_tables(device, |_| true)?;
        Ok(traced)
    }

    /// Traces the roots like [`TracedGraph::new`], without computing tables. `donated` returns the donated leaves of
    /// the graph.
    pub(crate) fn with_donation(
        device: &Device,
        roots: &[&'a Tensor],
        donated: impl FnOnce(&TracedNodes<'_>) -> Vec<u32>,
    ) -> Result<TracedGraph<'a>> {
        let (mut tracer, order) = Tracer::trace(TraceMode::Run(device), roots)?;
        let asked = tracer.add_outputs(roots);
        tracer.graph.donated =
            donated(&TracedNodes { order: &order, graph: &tracer.graph, leaves: &tracer.leaves, ids: &tracer.ids });
        let Tracer { graph, leaves, slots, tables, .. } = tracer;
        Ok(TracedGraph { graph, leaves, slots, roots: asked, tables })
    }

    /// Computes and uploads the tables that a plan reads; the others keep an empty buffer.
    pub(crate) fn upload_tables(&mut self, device: &Device, reads: impl Fn(usize) -> bool) -> Result<()> {
        for (leaf, table) in self.tables.drain(..).filter(|(leaf, _)| reads(*leaf)) {
            self.leaves[leaf] = upload_table(device, &table)?;
        }
        Ok(())
    }
}

/// The tensors of a traced graph.
pub(crate) struct TracedNodes<'t> {
    /// The tensor of each node of the graph.
    pub order: &'t [&'t Tensor],
    pub graph: &'t Graph,
    pub leaves: &'t [Storage],
    ids: &'t NodeMap<NodeId>,
}

impl TracedNodes<'_> {
    /// Returns the node of a tensor, if it is in the graph.
    pub fn id(&self, tensor: &Tensor) -> Option<NodeId> {
        self.ids.get(&Arc::as_ptr(&tensor.0)).copied()
    }
}

/// A traced function as a graph of its arguments and captured values.
pub(crate) struct TracedFunction {
    pub graph: Graph,
    pub leaves: Vec<Leaf>,
    pub slots: Vec<Number>,
}

/// Origin of the buffer of an [`Op::Input`] node.
pub(crate) enum Leaf {
    Captured(Storage),
    /// A table, computed once a plan reads it, with an empty buffer until then.
    Table(Tensor, Storage),
    /// The n-th argument.
    Argument(usize),
}

/// Origin of the number of an [`Op::ScalarInput`] node.
pub(crate) enum Number {
    Captured(Scalar),
    /// The n-th argument.
    Argument(usize),
    /// A word of a generator that is an argument.
    Word(RngWord),
}

/// The arguments of a function under trace, with their placeholders.
pub(crate) struct TraceBindings<'d> {
    pub device: &'d Device,
    /// Identifier of the trace.
    pub trace: u64,
    /// The arguments: evaluated tensors, or numbers.
    pub tensors: &'d [Tensor],
    /// The placeholder of each argument.
    pub placeholders: &'d [Tensor],
}

impl TracedFunction {
    /// Traces the results of a function. Also returns for each result its index among the outputs of the graph.
    pub fn new(given: &TraceBindings<'_>, results: &[&Tensor]) -> Result<(TracedFunction, Vec<usize>)> {
        let (mut tracer, _) = Tracer::trace(TraceMode::Bind(given), results)?;
        tracer.add_outputs(results);
        let outputs: HashMap<NodeId, usize> =
            tracer.graph.outputs.iter().enumerate().map(|(at, output)| (*output, at)).collect();
        let which = results.iter().map(|result| outputs[&tracer.ids[&Arc::as_ptr(&result.0)]]).collect();
        let Tracer { graph, leaves, slots, bindings, tables, .. } = tracer;
        let mut leaves: Vec<Leaf> = leaves.into_iter().map(Leaf::Captured).collect();
        for (at, table) in tables {
            if let Leaf::Captured(nothing) = &leaves[at] {
                leaves[at] = Leaf::Table(table, nothing.clone());
            }
        }
        let mut slots: Vec<Number> = slots.into_iter().map(Number::Captured).collect();
        for binding in bindings {
            match binding {
                TraceBinding::Leaf(at, n) => leaves[at] = Leaf::Argument(n),
                TraceBinding::Slot(at, number) => slots[at] = number,
            }
        }
        Ok((TracedFunction { graph, leaves, slots }, which))
    }
}

/// Returns the outputs of an operation as a graph of its inputs.
pub(crate) fn describe(name: &str, outputs: &[Tensor]) -> Result<Graph> {
    let roots: Vec<&Tensor> = outputs.iter().collect();
    let (Tracer { mut graph, ids, .. }, _) = Tracer::trace(TraceMode::Body(name), &roots)?;
    graph.outputs = roots.iter().map(|root| ids[&Arc::as_ptr(&root.0)]).collect();
    Ok(graph)
}

/// Purpose of a traced graph.
#[derive(Clone, Copy)]
enum TraceMode<'d> {
    /// Evaluation on a device: data become leaves and numbers become slots.
    Run(&'d Device),
    /// A function to replay with other arguments: placeholders are bound to the current arguments.
    Bind(&'d TraceBindings<'d>),
    /// The body of the named operation: inputs become leaves, numbers become constants, data is an error.
    Body(&'d str),
}

/// A graph under construction.
struct Tracer<'d> {
    mode: TraceMode<'d>,
    graph: Graph,
    leaves: Vec<Storage>,
    slots: Vec<Scalar>,
    bindings: Vec<TraceBinding>,
    /// Tables that are not computed yet, with their index in `leaves`.
    tables: Vec<(usize, Tensor)>,
    ids: NodeMap<NodeId>,
}

/// A leaf or slot that is bound to an argument.
enum TraceBinding {
    Leaf(usize, usize),
    Slot(usize, Number),
}

impl<'d> Tracer<'d> {
    /// Builds the graph of everything the roots depend on. Also returns the tensor of each node.
    fn trace<'t>(mode: TraceMode<'d>, roots: &[&'t Tensor]) -> Result<(Tracer<'d>, Vec<&'t Tensor>)> {
        let order = topological_order(roots, |tensor| tensor.0.value.get().is_some());
        let mut tracer = Tracer {
            mode,
            graph: Graph::default(),
            leaves: Vec::new(),
            slots: Vec::new(),
            bindings: Vec::new(),
            tables: Vec::new(),
            ids: NodeMap::with_capacity_and_hasher(order.len(), Default::default()),
        };
        tracer.graph.nodes.reserve(order.len());
        for tensor in &order {
            let id = tracer.add(tensor)?;
            tracer.ids.insert(Arc::as_ptr(&tensor.0), id);
        }
        Ok((tracer, order))
    }

    /// Makes each root an output, once. Returns the roots that became outputs.
    fn add_outputs<'t>(&mut self, roots: &[&'t Tensor]) -> Vec<&'t Tensor> {
        let (mut asked, mut known) = (Vec::new(), HashSet::new());
        for root in roots {
            let id = self.ids[&Arc::as_ptr(&root.0)];
            if known.insert(id) {
                self.graph.outputs.push(id);
                asked.push(*root);
            }
        }
        asked
    }

    fn add(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let node = &tensor.0;
        let inputs: Vec<NodeId> = match node.value.get() {
            Some(_) => Vec::new(),
            None => node.operands().iter().map(|input| self.ids[&Arc::as_ptr(&input.0)]).collect(),
        };
        let op = match (&node.source, node.value.get()) {
            (_, Some(storage)) => self.leaf(storage.clone())?,
            (NodeKind::Op(op), None) => op.clone(),
            (NodeKind::Call(body, output), None) => Op::Call(body.call.clone(), *output),
            (NodeKind::ScalarArg(value, word), None) => self.random_word(tensor, *value, *word)?,
            (NodeKind::Host(bytes), None) => self.upload(node, bytes)?,
            (NodeKind::Table(_), None) => self.table(tensor)?,
            (NodeKind::Detach | NodeKind::Checkpoint(_), None) => Op::Reshape,
            (NodeKind::Input(n), None) => self.input(tensor, *n)?,
            (NodeKind::Materialized, None) => unreachable!("a materialized node has a value from the start"),
            (NodeKind::Mistake(mistake), None) => return Err(mistake.report()),
        };
        self.graph.nodes.push(graph::Node { op, inputs, shape: node.shape.clone(), dtype: node.dtype });
        Ok(NodeId(self.graph.nodes.len() as u32 - 1))
    }

    fn leaf(&mut self, storage: Storage) -> Result<Op> {
        match self.mode {
            TraceMode::Run(_) | TraceMode::Bind(_) => {
                self.leaves.push(storage);
                Ok(Op::Input(self.leaves.len() as u32 - 1))
            }
            TraceMode::Body(name) => Err(holds_data(name)),
        }
    }

    /// Adds a number; in a function that is replayed a random word is drawn again in every run.
    fn random_word(&mut self, tensor: &Tensor, value: Scalar, word: Option<RngWord>) -> Result<Op> {
        match (self.mode, word) {
            (TraceMode::Body(_), _) => Ok(Op::Const(value)),
            (TraceMode::Run(_) | TraceMode::Bind(_), None) => Ok(self.number(value, None)),
            (TraceMode::Bind(given), Some(word)) if word.generator.0 == given.trace => {
                Ok(self.number(value, Some(Number::Word(word))))
            }
            (TraceMode::Run(_) | TraceMode::Bind(_), Some(_)) => Err(no_value(tensor)),
        }
    }

    fn number(&mut self, value: Scalar, binding: Option<Number>) -> Op {
        self.bindings.extend(binding.map(|number| TraceBinding::Slot(self.slots.len(), number)));
        self.slots.push(value);
        Op::ScalarInput(self.slots.len() as u32 - 1)
    }

    fn input(&mut self, tensor: &Tensor, n: u32) -> Result<Op> {
        let at = n as usize;
        match self.mode {
            TraceMode::Body(_) => Ok(Op::Input(n)),
            TraceMode::Bind(given) if given.placeholders.get(at).is_some_and(|input| input.ptr_eq(tensor)) => {
                if let Some(value) = given.tensors[at].number() {
                    return Ok(self.number(value, Some(Number::Argument(at))));
                }
                let storage = given.tensors[at].0.value.get().expect("arguments have values");
                self.bindings.push(TraceBinding::Leaf(self.leaves.len(), at));
                self.leaf(storage.clone())
            }
            TraceMode::Run(_) | TraceMode::Bind(_) => Err(no_value(tensor)),
        }
    }

    fn upload(&mut self, node: &Node, bytes: &Mutex<Option<Arc<[u8]>>>) -> Result<Op> {
        let storage = upload(self.device()?, node, bytes)?;
        self.leaf(storage)
    }

    /// Adds a leaf with an empty buffer, which is replaced once the plan is known.
    fn table(&mut self, tensor: &Tensor) -> Result<Op> {
        let nothing = self.device()?.allocate(0)?;
        self.tables.push((self.leaves.len(), tensor.clone()));
        self.leaf(nothing)
    }

    fn device(&self) -> Result<&'d Device> {
        match self.mode {
            TraceMode::Run(device) => Ok(device),
            TraceMode::Bind(given) => Ok(given.device),
            TraceMode::Body(name) => Err(holds_data(name)),
        }
    }
}

/// Returns a table on a device, computing and uploading it on first use.
pub(crate) fn upload_table(device: &Device, tensor: &Tensor) -> Result<Storage> {
    let NodeKind::Table(table) = &tensor.0.source else { unreachable!("the node is a table") };
    if let Some(storage) = tensor.0.value.get() {
        return Ok(storage.clone());
    }
    let storage = device.upload(&table.bytes(tensor.dtype())?)?;
    // Another thread may have been first; its values are equal.
    Ok(tensor.0.value.get_or_init(|| storage).clone())
}

/// Uploads the host bytes of a node, once.
pub(crate) fn upload(device: &Device, node: &Node, bytes: &Mutex<Option<Arc<[u8]>>>) -> Result<Storage> {
    let mut held = bytes.lock().expect("no thread panics while it holds host bytes");
    if let Some(storage) = node.value.get() {
        return Ok(storage.clone());
    }
    let storage = device.upload(held.as_ref().expect("host bytes are there until the value is"))?;
    let _ = node.value.set(storage.clone());
    *held = None;
    Ok(storage)
}

#[cold]
fn no_value(tensor: &Tensor) -> Error {
    let message =
        format!("{tensor:?} is an input of a function under trace, or drawn in it, and has no value during the trace");
    Error::mistake(message).note("return the tensor from the function and read it outside")
}

#[cold]
fn holds_data(name: &str) -> Error {
    Error::mistake(format!("{name}: its body captures data; pass it as an input"))
}

/// Returns everything the roots depend on, each node once, inputs before users. Inputs of nodes for which `is_leaf`
/// is true are not visited.
pub(crate) fn topological_order<'t>(roots: &[&'t Tensor], is_leaf: impl Fn(&Tensor) -> bool) -> Vec<&'t Tensor> {
    let mut order = Vec::new();
    let mut seen = NodeSet::default();
    // Tensors on the current path, with the number of inputs already visited.
    let mut path: Vec<(&Tensor, usize)> = Vec::new();
    for root in roots {
        if seen.insert(Arc::as_ptr(&root.0)) {
            path.push((root, 0));
        }
        while let Some((tensor, entered)) = path.last_mut() {
            let inputs: &[Tensor] = if *entered == 0 && is_leaf(tensor) { &[] } else { &tensor.0.inputs };
            match inputs.get(*entered) {
                Some(input) => {
                    *entered += 1;
                    if seen.insert(Arc::as_ptr(&input.0)) {
                        path.push((input, 0));
                    }
                }
                None => {
                    order.push(*tensor);
                    path.pop();
                }
            }
        }
    }
    order
}
