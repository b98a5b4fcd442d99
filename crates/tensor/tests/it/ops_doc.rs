//! `docs/ops.md`: every primitive with what its source says of it, and every row of the op table with the primitives it comes to.
//!
//! Nothing in it is written by hand: a primitive that is added, or an operation, is in the list or this fails, and a primitive that
//! no row asks a device for is named in [`UNASKED`]. `UPDATE_GOLDEN=1` writes the list anew, but for its table of devices, which
//! `cargo xtask devices` makes of what the last test run ran on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use panoply_ir::alu::{Alu, Domain, Math};
use panoply_ir::graph::{Graph, Op};
use panoply_tensor::conformance::row::Row;
use panoply_tensor::conformance::rows;
use panoply_tensor::eval::TracedGraph;
use panoply_tensor::{DType, Device, Tensor};

/// Primitives that no row of the op table needs, and where else they are tested.
const UNASKED: &[(&str, &str)] = &[
    ("ControlDependency", "`tests/it/activation_checkpoint.rs`: the gradient of what is checkpointed"),
    ("Fma", "random kernels: the language of kernels has it, tensors do not"),
    ("PopCount", "random kernels, as above"),
];

/// The types that the floats of a row, or its whole numbers if it has no floats, may have instead.
const TYPES: [DType; 7] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::I64, DType::Bool];

/// Around the table that `cargo xtask devices` writes.
const DEVICES: [&str; 2] =
    ["<!-- devices: written by `cargo xtask devices` from the last test run -->", "<!-- end of devices -->"];

/// The variants of an enumeration, with what its source says of each.
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
    assert!(!found.is_empty(), "no enumeration {of}");
    found
}

/// A primitive as its enumeration calls it.
fn name(op: &Op) -> String {
    let variant = |debug: String| debug.split(['(', ' ']).next().unwrap_or_default().to_string();
    match op {
        Op::Alu(Alu::Math(function)) => variant(format!("{function:?}")),
        Op::Alu(alu) => variant(format!("{alu:?}")),
        op => variant(format!("{op:?}")),
    }
}

/// The primitives of a graph, those inside calls among them, and the routines that may do calls of it whole.
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

/// The types that a row can be computed in; what is not a mistake at once has a value.
fn types(row: &Row) -> String {
    let tensors = row.tensors(DType::F32);
    let floats = tensors.iter().any(|tensor| tensor.dtype().is_float());
    let fits = |dtype: &DType| {
        let change = |tensor: &Tensor| {
            if tensor.dtype().is_float() == floats { tensor.cast(*dtype) } else { tensor.clone() }
        };
        let value = (row.op)(&tensors.iter().map(change).collect::<Vec<Tensor>>());
        let fits = value.check().is_ok();
        assert!(!fits || value.eval().is_ok(), "{} of {dtype} is no mistake and has no value: {value}", row.name);
        fits
    };
    TYPES.into_iter().filter(fits).map(|dtype| dtype.to_string()).collect::<Vec<String>>().join(" ")
}

/// The table of rows, and how many need each primitive.
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

/// Which operands a scalar operation takes.
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
    assert_eq!(scalars.len(), by_name.len(), "every scalar operation is in `Alu::ALL`, and its source is read");
    assert_eq!(variants(alu, "Math").len(), Math::ALL.len());
    scalars.iter().for_each(|(name, meaning)| primitive(name, domain(by_name[name]), meaning));

    let known: BTreeSet<&str> = steps.iter().chain(&scalars).map(|(name, _)| name.as_str()).collect();
    let unknown: Vec<&String> = asked.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no variants of the source");
    let unasked: Vec<&str> = known.into_iter().filter(|name| !asked.contains_key(*name)).collect();
    let expected: Vec<&str> = UNASKED.iter().map(|(name, _)| *name).collect();
    assert_eq!(unasked, expected, "no row of the op table needs these");
    compare(&page(&list, &table, steps.len() + scalars.len()));
}

/// The page, with the table of devices as it stands.
fn page(primitives: &str, operations: &str, count: usize) -> String {
    let kept = kept();
    let [begin, end] = DEVICES;
    let devices = kept.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).map_or("\n\n", |(table, _)| table);
    format!(
        "# Operations\n\n\
         Written by `UPDATE_GOLDEN=1 cargo test --workspace --test it ops_doc` from the source and from the op table (`crates/tensor/src/conformance/`); a test\n\
         compares it. Every operation is an expression over the {count} primitives below. A device is given kernels made of those, so it has all\n\
         operations at once, and whatever it computes is compared with an interpreter in f64 that shares nothing with the compiler.\n\n\
         The shape of a result follows from the shapes of what it is made of, never from values: there is no `unique`, no list of the places that are not\n\
         zero and no selection by a mask. `where_`, `masked_fill`, `sort`, `topk` and `bincount` say the same with a length that is known.\n\n\
         ## Where they pass\n\n\
         Rows of the table whose results, and whose gradients, are within their tolerance on a device. `panoply selftest --only ops` asks yours.\n\n\
         {begin}{devices}{end}\n\n\
         ## Operations\n\n\
         What each row of the op table comes to. Several rows try one operation in several ways. The types are those that its floats may have, or its whole\n\
         numbers where it has no floats. A routine does the same whole where a device offers it. `yes` under gradient: the one with respect to every input\n\
         of floats is compared with finite differences in f64, forward mode with reverse mode, and both with the interpreter.\n\n\
         | row | types | gradient | primitives |\n|---|---|---|---|\n{operations}\n\
         ## Primitives\n\n\
         Steps of a graph, then operations on single numbers; how many rows of the table need each.\n\n\
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
