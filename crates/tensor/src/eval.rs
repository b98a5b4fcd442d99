//! The one place where graphs become work.
//!
//! The part of the graph that has no value yet is copied into a dense [`Graph`] whose leaves are numbered by first visit,
//! so that the same program gives an equal graph on every step. Equal graphs share a plan: a training loop compiles once.
//! Numbers given by the user are slots, outside the graph, so changing a learning rate never compiles again.

use std::panic::Location;
use std::sync::{Arc, Mutex};

use panoply_ir::graph::{self, Graph, NodeId, Op};
use panoply_ir::{Element, Error, ErrorKind, Result, Scalar};
use panoply_runtime::{Buffer, Device, Readback, Storage};

use crate::hasher::{NodeMap, NodeSet};
use crate::plan_cache;
use crate::random::RngWord;
use crate::tensor::{Node, NodeKind, Tensor};

impl Tensor {
    /// Computes the value now, if it is not there.
    pub fn eval(&self) -> Result<()> {
        eval(&[self])
    }

    /// Whether the value is there: reading it computes nothing.
    pub fn is_evaluated(&self) -> bool {
        self.0.value.get().is_some()
    }

    /// The value's buffer, row-major; computed if it is not there. It is this tensor's memory: who writes to it changes the tensor.
    pub fn storage(&self) -> Result<Storage> {
        let whole = self.whole_storage()?;
        let Some(live) = &self.0.valid_lengths else { return Ok(whole) };
        match live.is_prefix(self)? {
            true => whole.slice(0..(self.shape()?.numel() * self.dtype().bytes()) as u64),
            false => self.to_static_shape().storage(),
        }
    }

    /// The buffer with what of its shape is not there.
    fn whole_storage(&self) -> Result<Storage> {
        self.eval()?;
        Ok(self.0.value.get().expect("an evaluated tensor has its value").clone())
    }

    /// The value's bytes: elements in row-major order, little-endian.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // The device is asked first: it knows what is too large.
        self.eval()?;
        let mut bytes = on_host(self.shape()?.numel() * self.dtype().bytes())?;
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills these with the bytes of the elements.
    fn read_into(&self, bytes: &mut [u8]) -> Result<()> {
        match &self.0.valid_lengths {
            Some(live) if !live.is_prefix(self)? => {
                let mut whole = on_host(self.0.shape.numel() * self.dtype().bytes())?;
                self.whole_storage()?.read_bytes(&mut whole)?;
                live.gather(self, &whole, bytes)
            }
            _ => self.storage()?.read_bytes(bytes),
        }
    }

    /// The elements in row-major order. `T` must be the element type.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_holds::<T>("to_vec")?;
        self.eval()?;
        let mut elements = on_host(self.shape()?.numel())?;
        T::read_into(&mut elements, |bytes| self.read_into(bytes))?;
        Ok(elements)
    }

    /// Starts copying the elements to the host, in row-major order: wait for them, or `.await` them, as who runs in a browser must. `T` must
    /// be the element type.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// let reading = (Tensor::from_slice(&[1.0f32, 2.0], [2]) * 3.0).read_async::<f32>()?;
    /// assert_eq!(reading.wait()?, [3.0, 6.0]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn read_async<T: Element>(&self) -> Result<Readback<T>> {
        self.check_holds::<T>("read")?;
        Buffer::from_storage(self.storage()?)?.read_async()
    }

    #[track_caller]
    fn check_holds<T: Element>(&self, what: &str) -> Result<()> {
        self.check()?;
        if T::DTYPE != self.dtype() {
            let message = format!("{what}: {self:?} does not hold {}; cast it first", T::DTYPE);
            return Err(Error::mistake(message).with_location(Location::caller()));
        }
        Ok(())
    }

    /// The only element, as f64.
    #[track_caller]
    pub fn item(&self) -> Result<f64> {
        self.check()?;
        if self.shape()?.numel() != 1 {
            let message = format!("item: {self:?} is not a single number");
            return Err(Error::mistake(message).with_location(Location::caller()));
        }
        let mut word = [0; 8];
        self.read_into(&mut word[..self.dtype().bytes()])?;
        Ok(Scalar { dtype: self.dtype(), bits: u64::from_le_bytes(word) }.to_f64())
    }

    /// The same values on another device; nothing moves if they are there already.
    #[track_caller]
    pub fn to(&self, device: &Device) -> Tensor {
        if self.is_mistake() || self.device().is_none_or(|here| here == device) {
            return self.clone();
        }
        let copied = self.whole_storage().and_then(|storage| {
            let copy = device.allocate(storage.bytes())?;
            copy.copy_from(&storage)?;
            let live = self.0.valid_lengths.as_ref().map(|live| live.resolve(self)).transpose()?.flatten();
            Ok((copy, live))
        });
        match copied {
            Ok((storage, live)) => {
                Tensor::from_storage_unchecked_shape(storage, self.0.shape.clone(), self.dtype(), live)
            }
            Err(error) => Tensor::mistake(error),
        }
    }
}

/// So many zeros, if this host has memory for them.
pub(crate) fn on_host<T: bytemuck::Zeroable + Clone>(count: usize) -> Result<Vec<T>> {
    let short = |_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::OutOfMemory, format!("this host has no {bytes} bytes for the elements of a tensor"))
    };
    Vec::<T>::new().try_reserve_exact(count).map_err(short)?;
    // Not the memory that was tried: zeros that the system gives are not written again.
    Ok(vec![T::zeroed(); count])
}

/// Computes the values of all these tensors, in one plan for each device. Either all of a device's get theirs or none.
pub fn eval(roots: &[&Tensor]) -> Result<()> {
    roots.iter().try_for_each(|root| root.check())?;
    let mut waiting: Vec<&Tensor> = roots.iter().copied().filter(|root| root.0.value.get().is_none()).collect();
    while let Some(first) = waiting.first() {
        let device = first.0.device.clone().map_or_else(Device::current, Ok)?;
        let (here, elsewhere): (Vec<&Tensor>, Vec<&Tensor>) =
            waiting.into_iter().partition(|root| root.0.device.as_ref().is_none_or(|other| *other == device));
        eval_on(&device, &here, |_| Vec::new())?;
        waiting = elsewhere;
    }
    Ok(())
}

/// Computes values on one device; of what was traced it is asked which leaves are spent.
pub(crate) fn eval_on(
    device: &Device,
    roots: &[&Tensor],
    spent: impl FnOnce(&TracedNodes<'_>) -> Vec<u32>,
) -> Result<()> {
    // Data need no plan.
    for root in roots {
        match &root.0.source {
            NodeKind::Host(bytes) => drop(upload(device, &root.0, bytes)?),
            NodeKind::Table(_) => drop(upload_table(device, root)?),
            _ => {}
        }
    }
    let roots: Vec<&Tensor> = roots.iter().copied().filter(|root| root.0.value.get().is_none()).collect();
    if roots.is_empty() {
        return Ok(());
    }
    let mut traced = TracedGraph::with_donation(device, &roots, spent)?;
    let ready = plan_cache::lookup_or_compile(device, std::mem::take(&mut traced.graph))?;
    traced.upload_tables(device, |leaf| ready.reads(leaf))?;
    let values = ready.run(device, traced.leaves, &traced.slots)?;
    for (root, storage) in traced.roots.iter().zip(values) {
        let _ = root.0.value.set(storage);
    }
    Ok(())
}

/// A graph with what it runs on.
pub struct TracedGraph<'a> {
    /// What was asked for.
    pub graph: Graph,
    /// The buffers behind [`Op::Input`].
    pub leaves: Vec<Storage>,
    /// The numbers behind [`Op::ScalarInput`].
    pub slots: Vec<Scalar>,
    /// One tensor for each output.
    pub roots: Vec<&'a Tensor>,
    /// Tables that are not made yet, and which leaves they are.
    tables: Vec<(usize, Tensor)>,
}

impl<'a> TracedGraph<'a> {
    /// The part of the roots' history that has no value yet, with its leaves on the device.
    pub fn new(device: &Device, roots: &[&'a Tensor]) -> Result<TracedGraph<'a>> {
        let mut traced = TracedGraph::with_donation(device, roots, |_| Vec::new())?;
        traced.upload_tables(device, |_| true)?;
        Ok(traced)
    }

    /// The same where some leaves are spent, which is asked of what was traced, and tables are not made.
    pub(crate) fn with_donation(
        device: &Device,
        roots: &[&'a Tensor],
        spent: impl FnOnce(&TracedNodes<'_>) -> Vec<u32>,
    ) -> Result<TracedGraph<'a>> {
        let (mut tracer, order) = Tracer::trace(TraceMode::Run(device), roots)?;
        let asked = tracer.add_outputs(roots);
        tracer.graph.donated =
            spent(&TracedNodes { order: &order, graph: &tracer.graph, leaves: &tracer.leaves, ids: &tracer.ids });
        let Tracer { graph, leaves, slots, tables, .. } = tracer;
        Ok(TracedGraph { graph, leaves, slots, roots: asked, tables })
    }

    /// Makes the tables that a plan reads; no memory stands for the others.
    pub(crate) fn upload_tables(&mut self, device: &Device, reads: impl Fn(usize) -> bool) -> Result<()> {
        for (leaf, table) in self.tables.drain(..).filter(|(leaf, _)| reads(*leaf)) {
            self.leaves[leaf] = upload_table(device, &table)?;
        }
        Ok(())
    }
}

/// The tensors that a graph was made of.
pub(crate) struct TracedNodes<'t> {
    /// One for each node of the graph.
    pub order: &'t [&'t Tensor],
    pub graph: &'t Graph,
    pub leaves: &'t [Storage],
    ids: &'t NodeMap<NodeId>,
}

impl TracedNodes<'_> {
    /// The node of a tensor, if it has one.
    pub fn id(&self, tensor: &Tensor) -> Option<NodeId> {
        self.ids.get(&Arc::as_ptr(&tensor.0)).copied()
    }
}

/// What a function does, as a graph over what it is given and what it holds besides.
pub(crate) struct TracedFunction {
    pub graph: Graph,
    pub leaves: Vec<Leaf>,
    pub slots: Vec<Number>,
}

/// Whose the buffer behind an [`Op::Input`] is.
pub(crate) enum Leaf {
    Captured(Storage),
    /// Made once a plan reads it; what stands for it until then.
    Table(Tensor, Storage),
    /// The n-th of what is given.
    Argument(usize),
}

/// Whose the number behind an [`Op::ScalarInput`] is.
pub(crate) enum Number {
    Captured(Scalar),
    /// The n-th of what is given.
    Argument(usize),
    /// Of a generator that is given.
    Word(RngWord),
}

/// What a function under trace is given.
pub(crate) struct TraceBindings<'d> {
    pub device: &'d Device,
    /// Which trace.
    pub trace: u64,
    /// Tensors that have a value or are numbers.
    pub tensors: &'d [Tensor],
    /// What stands for each of them.
    pub placeholders: &'d [Tensor],
}

impl TracedFunction {
    /// The part of the results' history that has no value yet; and for each result which of the graph's outputs it is.
    pub fn new(given: &TraceBindings<'_>, results: &[&Tensor]) -> Result<(TracedFunction, Vec<usize>)> {
        let (mut tracer, _) = Tracer::trace(TraceMode::Bind(given), results)?;
        tracer.add_outputs(results);
        let outputs = &tracer.graph.outputs;
        let which = |result: &&Tensor| outputs.iter().position(|output| *output == tracer.ids[&Arc::as_ptr(&result.0)]);
        let which = results.iter().map(|result| which(result).expect("every result was asked for")).collect();
        let Tracer { graph, leaves, slots, ties, tables, .. } = tracer;
        let mut leaves: Vec<Leaf> = leaves.into_iter().map(Leaf::Captured).collect();
        for (at, table) in tables {
            if let Leaf::Captured(nothing) = &leaves[at] {
                leaves[at] = Leaf::Table(table, nothing.clone());
            }
        }
        let mut slots: Vec<Number> = slots.into_iter().map(Number::Captured).collect();
        for tie in ties {
            match tie {
                TraceBinding::Leaf(at, n) => leaves[at] = Leaf::Argument(n),
                TraceBinding::Slot(at, number) => slots[at] = number,
            }
        }
        Ok((TracedFunction { graph, leaves, slots }, which))
    }
}

/// An operation's outputs as a graph of its inputs.
pub(crate) fn describe(name: &str, outputs: &[Tensor]) -> Result<Graph> {
    let roots: Vec<&Tensor> = outputs.iter().collect();
    let (Tracer { mut graph, ids, .. }, _) = Tracer::trace(TraceMode::Body(name), &roots)?;
    graph.outputs = roots.iter().map(|root| ids[&Arc::as_ptr(&root.0)]).collect();
    Ok(graph)
}

/// What a graph is wanted for.
#[derive(Clone, Copy)]
enum TraceMode<'d> {
    /// To be run on a device: data are leaves there, numbers are slots.
    Run(&'d Device),
    /// To be run on a device over other tensors each time: these stand for those that are given now.
    Bind(&'d TraceBindings<'d>),
    /// To be the body of this operation: its inputs are leaves, numbers are part of it, and there are no data.
    Body(&'d str),
}

/// A graph under construction.
struct Tracer<'d> {
    scene: TraceMode<'d>,
    graph: Graph,
    leaves: Vec<Storage>,
    slots: Vec<Scalar>,
    ties: Vec<TraceBinding>,
    /// Leaves that are tables, which are not made yet.
    tables: Vec<(usize, Tensor)>,
    ids: NodeMap<NodeId>,
}

/// A leaf or a slot that is given.
enum TraceBinding {
    Leaf(usize, usize),
    Slot(usize, Number),
}

impl<'d> Tracer<'d> {
    /// The graph of all that the roots depend on, and the tensor of each of its nodes.
    fn trace<'t>(scene: TraceMode<'d>, roots: &[&'t Tensor]) -> Result<(Tracer<'d>, Vec<&'t Tensor>)> {
        let order = topological_order(roots, |tensor| tensor.0.value.get().is_some());
        let mut tracer = Tracer {
            scene,
            graph: Graph::default(),
            leaves: Vec::new(),
            slots: Vec::new(),
            ties: Vec::new(),
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

    /// Makes each of the roots an output once; those that are.
    fn add_outputs<'t>(&mut self, roots: &[&'t Tensor]) -> Vec<&'t Tensor> {
        let mut asked = Vec::new();
        for root in roots {
            let id = self.ids[&Arc::as_ptr(&root.0)];
            if !self.graph.outputs.contains(&id) {
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
            (NodeKind::Materialized, None) => unreachable!("a given value is there from the start"),
            (NodeKind::Mistake(mistake), None) => return Err(mistake.report()),
        };
        self.graph.nodes.push(graph::Node { op, inputs, shape: node.shape.clone(), dtype: node.dtype });
        Ok(NodeId(self.graph.nodes.len() as u32 - 1))
    }

    fn leaf(&mut self, storage: Storage) -> Result<Op> {
        match self.scene {
            TraceMode::Run(_) | TraceMode::Bind(_) => {
                self.leaves.push(storage);
                Ok(Op::Input(self.leaves.len() as u32 - 1))
            }
            TraceMode::Body(name) => Err(holds_data(name)),
        }
    }

    /// A number, which may be drawn anew in every run of a function.
    fn random_word(&mut self, tensor: &Tensor, value: Scalar, word: Option<RngWord>) -> Result<Op> {
        match (self.scene, word) {
            (TraceMode::Body(_), _) => Ok(Op::Const(value)),
            (TraceMode::Run(_) | TraceMode::Bind(_), None) => Ok(self.number(value, None)),
            (TraceMode::Bind(given), Some(word)) if word.generator.0 == given.trace => {
                Ok(self.number(value, Some(Number::Word(word))))
            }
            (TraceMode::Run(_) | TraceMode::Bind(_), Some(_)) => Err(no_value(tensor)),
        }
    }

    fn number(&mut self, value: Scalar, tie: Option<Number>) -> Op {
        self.ties.extend(tie.map(|number| TraceBinding::Slot(self.slots.len(), number)));
        self.slots.push(value);
        Op::ScalarInput(self.slots.len() as u32 - 1)
    }

    fn input(&mut self, tensor: &Tensor, n: u32) -> Result<Op> {
        let at = n as usize;
        match self.scene {
            TraceMode::Body(_) => Ok(Op::Input(n)),
            TraceMode::Bind(given) if given.placeholders.get(at).is_some_and(|input| input.ptr_eq(tensor)) => {
                if let Some(value) = given.tensors[at].number() {
                    return Ok(self.number(value, Some(Number::Argument(at))));
                }
                let storage = given.tensors[at].0.value.get().expect("what is given has a value");
                self.ties.push(TraceBinding::Leaf(self.leaves.len(), at));
                self.leaf(storage.clone())
            }
            TraceMode::Run(_) | TraceMode::Bind(_) => Err(no_value(tensor)),
        }
    }

    fn upload(&mut self, node: &Node, bytes: &Mutex<Option<Arc<[u8]>>>) -> Result<Op> {
        let storage = upload(self.device()?, node, bytes)?;
        self.leaf(storage)
    }

    /// A leaf without memory until the plan is known.
    fn table(&mut self, tensor: &Tensor) -> Result<Op> {
        let nothing = self.device()?.allocate(0)?;
        self.tables.push((self.leaves.len(), tensor.clone()));
        self.leaf(nothing)
    }

    fn device(&self) -> Result<&'d Device> {
        match self.scene {
            TraceMode::Run(device) => Ok(device),
            TraceMode::Bind(given) => Ok(given.device),
            TraceMode::Body(name) => Err(holds_data(name)),
        }
    }
}

/// A table's numbers on a device, worked out if they are not there.
pub(crate) fn upload_table(device: &Device, tensor: &Tensor) -> Result<Storage> {
    let NodeKind::Table(table) = &tensor.0.source else { unreachable!("it is asked of tables") };
    if let Some(storage) = tensor.0.value.get() {
        return Ok(storage.clone());
    }
    let storage = device.upload(&table.bytes(tensor.dtype())?)?;
    // Another thread may have been first; its numbers are the same.
    Ok(tensor.0.value.get_or_init(|| storage).clone())
}

/// Brings a node's bytes to a device, once.
fn upload(device: &Device, node: &Node, bytes: &Mutex<Option<Arc<[u8]>>>) -> Result<Storage> {
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
    let message = format!("{tensor:?} is given to a function under trace, or drawn in it, and has no value there");
    Error::mistake(message).note("let the function return what is to be read, and read it outside")
}

#[cold]
fn holds_data(name: &str) -> Error {
    Error::mistake(format!("{name}: its body holds data; pass them as an input"))
}

/// Everything the roots depend on, each once, inputs before users. What `is_leaf` says is not entered.
pub(crate) fn topological_order<'t>(roots: &[&'t Tensor], is_leaf: impl Fn(&Tensor) -> bool) -> Vec<&'t Tensor> {
    let mut order = Vec::new();
    let mut seen = NodeSet::default();
    // A tensor, and how many of its inputs were entered.
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
