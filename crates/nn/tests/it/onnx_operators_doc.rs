//! `docs/onnx-operators.md`: the ONNX operators that can be imported. `UPDATE_GOLDEN=1` rewrites the page.

use std::fmt::Write;
use std::path::PathBuf;

use panoply_nn::onnx::{SupportedOperator, supported_operators};

fn page() -> String {
    let operators = supported_operators();
    let mut page = format!(
        "# ONNX operators\n\n\
         Written by `UPDATE_GOLDEN=1 cargo test -p panoply-nn --test it onnx_operators_doc` from the tables of operators; a test\n\
         compares it.\n\n\
         `nn::onnx::Imported` reads models of opset 6 to 26 with these {} operators. A model with another operator or attribute is\n\
         refused; the error names all of them. Sequences, texts, training and the domain `ai.onnx.ml` are not supported. An operand\n\
         that decides about a shape must not depend on the inputs of a compiled function; outside of one its value is read back.\n",
        operators.len()
    );
    let mut kind = "";
    for SupportedOperator { kind: of, name, attributes } in operators {
        if of != kind {
            write!(page, "\n## {of}\n\n| operator | attributes |\n|---|---|\n").expect("a text can be written to");
            kind = of;
        }
        let attributes: Vec<String> = attributes.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "| `{name}` | {} |", attributes.join(", ")).expect("a text can be written to");
    }
    page
}

#[test]
fn the_page_is_current() {
    let (page, path) = (page(), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx-operators.md"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "{} differs; UPDATE_GOLDEN=1 accepts this", path.display());
}
