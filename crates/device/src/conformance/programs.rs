//! Programs: compilation, rejection, binaries and release.

use std::collections::HashSet;
use std::sync::Arc;

use panoply_ir::Result;
use panoply_ir::target::Language;
use panoply_ir::verify::verify;

use super::bench::{Bench, HeldProgram, launch};
use super::kernels::{double_add, slow};
use super::{Case, Requirement, broken, expect};
use crate::command::Arg;
use crate::program::{Program, SourceText};

pub const CASES: &[Case] = &[
    Case { name: "a program is released and compiled again", needs: &[Requirement::Computing], run: again },
    Case { name: "ids of live programs are unique", needs: &[], run: unique_ids },
    Case { name: "a program is released while running", needs: &[Requirement::Computing], run: released_running },
    Case { name: "a rejected program has a log", needs: &[Requirement::Computing, Requirement::Text], run: refused },
    Case { name: "a program loads from its binary", needs: &[Requirement::Computing, Requirement::Text], run: binary },
    Case { name: "a program in another form is rejected", needs: &[Requirement::Computing], run: other_form },
];

/// Checks that the program computes twice 5 plus 7.
fn works(bench: &Bench<'_>, program: &HeldProgram<'_>) -> Result<()> {
    let x = bench.holding(&[5u32])?;
    let args = vec![Arg::Scalar(7u32.into()), Arg::Buffer(x.all())];
    bench.run(&[launch(program, [1; 3], [1; 3], args)])?;
    expect("the program's result", x.words()?, vec![17])
}

fn again(bench: &Bench<'_>) -> Result<()> {
    for _ in 0..3 {
        works(bench, &bench.compile(double_add())?)?;
    }
    Ok(())
}

fn unique_ids(bench: &Bench<'_>) -> Result<()> {
    let mut held = vec![bench.compile(double_add())?, bench.compile(double_add())?];
    for _ in 0..4 {
        held.remove(0);
        held.push(bench.compile(double_add())?);
        held.push(bench.compile(slow())?);
        let ids: HashSet<_> = held.iter().map(|program| program.id).collect();
        expect("number of distinct program ids", ids.len(), held.len())?;
    }
    Ok(())
}

fn released_running(bench: &Bench<'_>) -> Result<()> {
    let (program, x) = (bench.compile(slow())?, bench.holding(&[1u32])?);
    let args = vec![Arg::Scalar(30_000u32.into()), Arg::Buffer(x.all())];
    let ticket = bench.run(&[launch(&program, [1; 3], [1; 3], args)])?;
    drop(program);
    ticket.wait()?;
    expect("the program's result", x.words()?, vec![30_001])
}

fn text(bench: &Bench<'_>) -> Result<SourceText> {
    let kernel = Arc::new(verify(double_add().finish()?)?);
    match (bench.render)(&kernel, bench.device.target())? {
        Program::Text(text) => Ok(text),
        Program::Ir(_) | Program::Binary { .. } | Program::Image(_) | Program::Host(_) => {
            Err(broken("the renderer returned no source text"))
        }
    }
}

fn refused(bench: &Bench<'_>) -> Result<()> {
    let good = text(bench)?;
    let bad = SourceText { source: format!("{}\nthis is not a program;\n", good.source), ..good.clone() };
    match bench.device.compile(&Program::Text(bad)) {
        Ok(id) => {
            drop(bench.own(id));
            return Err(broken("invalid source text was accepted"));
        }
        Err(error) if error.is_compile_failed() && !error.notes().is_empty() => {}
        Err(error) => return Err(broken("invalid source text must give a compile error log").note(error.to_string())),
    }
    works(bench, &bench.own(bench.device.compile(&Program::Text(good))?))
}

fn binary(bench: &Bench<'_>) -> Result<()> {
    let text = text(bench)?;
    let first = bench.own(bench.device.compile(&Program::Text(text.clone()))?);
    let Some(bytes) = bench.device.binary(first.id) else { return Ok(()) };
    drop(first);
    // A damaged binary must be harmless: the device falls back to the source text.
    let half = bytes[..bytes.len() / 2].to_vec();
    let mut altered = bytes.clone();
    altered.iter_mut().skip(bytes.len() / 3).step_by(61).for_each(|byte| *byte ^= 0x5A);
    for bytes in [bytes, half, altered, vec![1, 2, 3], Vec::new()] {
        let program = Program::Binary { bytes, text: text.clone() };
        works(bench, &bench.own(bench.device.compile(&program)?))?;
    }
    Ok(())
}

fn other_form(bench: &Bench<'_>) -> Result<()> {
    let kernel = Arc::new(verify(double_add().finish()?)?);
    let other = match bench.device.target().language {
        Language::OpenClC
        | Language::Hip
        | Language::Ptx { .. }
        | Language::Wgsl
        | Language::SpirV
        | Language::CudaC
        | Language::Msl => Program::Ir(kernel),
        Language::Ir => Program::Text(SourceText {
            language: Language::OpenClC,
            source: "kernel void double_add() {}".into(),
            entry: "double_add".into(),
            signature: crate::program::Signature::of(&kernel, 64),
        }),
    };
    match bench.device.compile(&other) {
        Err(_) => works(bench, &bench.compile(double_add())?),
        Ok(id) => {
            drop(bench.own(id));
            Err(broken("a program in another form was accepted"))
        }
    }
}
