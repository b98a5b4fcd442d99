//! `docs/ops.md`: every primitive with its documentation, and every row of the op table with the primitives it consists of.
//!
//! Nothing in it is written by hand. A new primitive or operation must be in the list, or this test fails. A primitive that no row uses
//! must be named in [`UNASKED`]. `UPDATE_GOLDEN=1` rewrites the page except for its table of devices, which `cargo xtask devices` writes
//! from the last test run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use panoply_ir::alu::{Alu, Domain, Math};
use panoply_ir::graph::{Graph, Op};
use panoply_tensor::conformance::row::Row;
use panoply_tensor::conformance::rows;
use panoply_tensor::eval::TracedGraph;
use panoply_tensor::{DType, Device, Tensor};

/// Primitives that no row of the op table uses, and where they are tested instead.
const UNASKED: &[(&str, &str)] = &[
    ("ControlDependency", "`tests/it/activation_checkpoint.rs`: the gradient of what is checkpointed"),
    ("Fma", "random kernels: the language of kernels has it, tensors do not"),
    ("PopCount", "random kernels, as above"),
];

/// Types that are tried for the floats of a row, or for its integers if it has no floats.
const TYPES: [DType; 7] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::I64, DType::Bool];

/// Markers around the table that `cargo xtask devices` writes.
const DEVICES: [&str; 2] =
    ["<!-- devices: written by `cargo xtask devices` from the last test run -->", "<!-- end of devices -->"];

/// Returns the variants of an enum in source text, each with its documentation.
fn variants(source: &str, of: &str) -> Vec<(String, String)> {
    let head = format!("pub enum {of} {{");
    let body = source.lines().skip_while(|line| *line != head).skip(1).take_while(|line| *line != "}");
    let (mut found, mut meaning) = (Vec::new(), Vec::new());
    for line in body.map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            meaning.push(words);
        } else if line.starts_with(char::is_uppercase) {
            let name = line.split(|letter: char| !letter.is_alphanumeric()).next().expect("a line has a first word");
            let meaning = std::mem::take(&mut meaning).join(" ").replace("[`", "`").replace("`]", "`");
            found.push((name.to_string(), meaning.replace('|', "\\|")));
        }
    }
    assert!(!found.is_empty(), "no enum {of}");
    found
}

/// Returns the name of a primitive as in its enum.
fn name(op: &Op) -> String {
    let variant = |debug: String| debug.split(['(', ' ']).next().unwrap_or_default().to_string();
    match op {
        Op::Alu(Alu::Math(function)) => variant(format!("{function:?}")),
        Op::Alu(alu) => variant(format!("{alu:?}")),
        op => variant(format!("{op:?}")),
    }
}

/// Collects the primitives of a graph, including those inside calls, and the library routines that can replace calls.
fn walk(graph: &Graph, primitives: &mut BTreeSet<String>, routines: &mut BTreeSet<&'static str>) {
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        for node in &graph.nodes {
            primitives.insert(name(&node.op));
            if let Op::Call(call, _) = &node.op {
                routines.extend(call.routine.map(|routine| routine.name()));
                graphs.push(&call.body);
            }
        }
    }
}

/// Returns the types that a row can be computed in; what passes `check` must also evaluate.
fn types(row: &Row) -> String {
    let tensors = row.tensors(DType::F32);
    let floats = tensors.iter().any(|tensor| tensor.dtype().is_float());
    let fits = |dtype: &DType| {
        let change = |tensor: &Tensor| {
            if tensor.dtype().is_float() == floats { tensor.cast(*dtype) } else { tensor.clone() }
        };
        let value = (row.op)(&tensors.iter().map(change).collect::<Vec<Tensor>>());
        let fits = value.check().is_ok();
        assert!(!fits || value.eval().is_ok(), "{} of {dtype} passes `check` but does not evaluate: {value}", row.name);
        fits
    };
    TYPES.into_iter().filter(fits).map(|dtype| dtype.to_string()).collect::<Vec<String>>().join(" ")
}

/// Writes the table of rows, and returns the number of rows that need each primitive.
fn operations(list: &mut String) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for row in rows() {
        let value = (row.op)(&row.tensors(DType::F32));
        let traced = TracedGraph::new(&Device::current().unwrap(), &[&value]).unwrap();
        let (mut primitives, mut routines) = (BTreeSet::new(), BTreeSet::new());
        walk(&traced.graph, &mut primitives, &mut routines);
        primitives.iter().for_each(|primitive| *asked.entry(primitive.clone()).or_default() += 1);
        primitives.retain(|primitive| !["Input", "Const", "ScalarInput", "Call"].contains(&primitive.as_str()));
        let of = primitives.into_iter().collect::<Vec<String>>().join(" ");
        let whole = routines.into_iter().map(|name| format!(" (or `{name}`)")).collect::<String>();
        let gradient = if row.differentiable { "yes" } else { "–" };
        writeln!(list, "| {} | {} | {gradient} | {of}{whole} |", row.name, types(row)).unwrap();
    }
    asked
}

/// Returns the operands that a scalar operation accepts.
fn domain(alu: Alu) -> &'static str {
    match alu.domain() {
        Domain::Float => "floats",
        Domain::Number => "numbers",
        Domain::Int => "integers",
        Domain::Bits => "integers, bools",
        Domain::Any => "all",
    }
}

#[test]
fn the_list_of_operations_is_that_of_the_source() {
    let (graph, alu) = (include_str!("../../../ir/src/graph.rs"), include_str!("../../../ir/src/alu.rs"));
    let (mut table, mut list) = (String::new(), String::new());
    let asked = Device::get("cpu").unwrap().scope(|| operations(&mut table));
    let mut primitive = |name: &str, takes: &str, meaning: &str| {
        let asked = asked.get(name).map_or("–".to_string(), usize::to_string);
        writeln!(list, "| {name} | {takes} | {meaning} | {asked} |").unwrap();
    };
    let steps = variants(graph, "Op").into_iter().filter(|(name, _)| name != "Alu");
    let scalars = variants(alu, "Alu").into_iter().filter(|(name, _)| name != "Math").chain(variants(alu, "Math"));
    let (steps, scalars): (Vec<_>, Vec<_>) = (steps.collect(), scalars.collect());
    steps.iter().for_each(|(name, meaning)| primitive(name, "", meaning));
    let by_name: BTreeMap<String, Alu> = Alu::ALL.into_iter().map(|alu| (name(&Op::Alu(alu)), alu)).collect();
    assert_eq!(scalars.len(), by_name.len(), "every scalar operation is in `Alu::ALL` and is found in the source");
    assert_eq!(variants(alu, "Math").len(), Math::ALL.len());
    scalars.iter().for_each(|(name, meaning)| primitive(name, domain(by_name[name]), meaning));

    let known: BTreeSet<&str> = steps.iter().chain(&scalars).map(|(name, _)| name.as_str()).collect();
    let unknown: Vec<&String> = asked.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not variants in the source");
    let unasked: Vec<&str> = known.into_iter().filter(|name| !asked.contains_key(*name)).collect();
    let expected: Vec<&str> = UNASKED.iter().map(|(name, _)| *name).collect();
    assert_eq!(unasked, expected, "primitives that no row of the op table uses");
    compare(&page(&list, &table, steps.len() + scalars.len()));
}

/// Returns the page, with the table of devices as in the current file.
fn page(primitives: &str, operations: &str, count: usize) -> String {
    let kept = kept();
    let [begin, end] = DEVICES;
    let devices = kept.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).map_or("\n\n", |(table, _)| table);
    format!(
        "# Operations\n\n\
         Written by `UPDATE_GOLDEN=1 cargo test --workspace --test it ops_doc` from the source and from the op table (`crates/tensor/src/conformance/`); a test\n\
         compares it. Every operation is an expression over the {count} primitives below, and kernels are compiled from the primitives, so every device\n\
         supports all operations. Results are compared with an interpreter in f64 that shares no code with the compiler.\n\n\
         The shape of a result depends on the shapes of the operands, never on their values: there is no `unique`, no `nonzero` and no\n\
         `masked_select`. `where_self`, `masked_fill`, `sort`, `topk` and `bincount` replace them, with results of a known length.\n\n\
         ## Where they pass\n\n\
         The number of rows whose results, and whose gradients, are within their tolerance on a device. `panoply selftest --suite ops` runs them on yours.\n\n\
         {begin}{devices}{end}\n\n\
         ## Operations\n\n\
         The primitives of each row of the op table. Several rows test one operation in different ways. The types are those that the\n\
         float inputs of a row can have, or its integer inputs if it has no floats. On devices that offer it, a library routine can\n\
         replace the primitives. `yes` under gradient: the gradients with respect to all float inputs are compared with finite\n\
         differences in f64, forward mode is compared with reverse mode, and both are compared with the interpreter.\n\n\
         | row | types | gradient | primitives |\n|---|---|---|---|\n{operations}\n\
         ## Primitives\n\n\
         Graph operations, then scalar operations, with the number of rows that use each.\n\n\
         | primitive | takes | meaning | rows |\n|---|---|---|---|\n{primitives}"
    )
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md")
}

fn kept() -> String {
    std::fs::read_to_string(path()).unwrap_or_default()
}

#[track_caller]
fn compare(page: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path(), page).unwrap();
    }
    let kept = kept();
    let differ = kept.lines().zip(page.lines()).find(|(kept, page)| kept != page);
    assert!(kept == page, "{} differs; UPDATE_GOLDEN=1 accepts this: {differ:?}", path().display());
}
