//! The rules for text: comments, docs, messages and documents say what they mean in the terms of the field.

use super::Finding;
use super::source::Source;

/// Phrases that no page of this field uses, each with a plain replacement. In two pieces, or this file would break its own rule.
const PHRASES: &[([&str; 2], &str)] = &[
    (["no", "body"], "`no one`, or the subject itself"),
    (["some", "body"], "the subject itself"),
    (["so ", "many"], "`this many`, or the number"),
    (["the other way ", "round"], "`conversely`, or the case itself"),
    (["what flows ", "back"], "`gradient` or `cotangent`"),
    (["it is ", "no "], "`it is not a`"),
    (["that is ", "no "], "`that is not a`"),
    (["which is ", "no "], "`which is not a`"),
    (["goes on ", "with"], "`continues with`"),
    (["nothing is ", "said"], "`the option is not given`"),
];

/// Words that begin a clause without a subject and verb of its own.
const CLAUSES: &[&str] = &["What", "How", "Which", "Whether", "Who", "Whom", "Whose", "Where"];

/// No phrase of [`PHRASES`] in comments, messages and documents.
pub fn phrases(source: &Source) -> Vec<Finding> {
    let is_text = source.is_rust() || (source.path.ends_with(".md") && !source.path.starts_with("docs/measured/"));
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate().filter(|_| is_text) {
        let lower = line.to_lowercase();
        for (pieces, instead) in PHRASES {
            let phrase = pieces.concat();
            let whole = |at: usize| !lower[..at].ends_with(|c: char| c.is_alphanumeric());
            if lower.match_indices(&phrase).any(|(at, _)| whole(at)) {
                let what = format!("`{}`; write {instead}", phrase.trim());
                findings.push(Finding { path: source.path.clone(), line: index + 1, what });
            }
        }
    }
    findings
}

/// The first sentence of a doc comment has a subject or, of a function, a verb in the third person.
pub fn first_sentence(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut within = false;
    for (index, line) in source.text.lines().enumerate().filter(|_| source.is_rust()) {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
        if let (Some(text), false) = (text, within) {
            let clause = CLAUSES.iter().find(|clause| {
                text.strip_prefix(**clause).is_some_and(|rest| rest.starts_with([' ', ',', ':']))
                    && !text.ends_with('?')
            });
            if let Some(clause) = clause {
                let what = format!("a doc begins with `{clause}`; say what the item is or does");
                findings.push(Finding { path: source.path.clone(), line: index + 1, what });
            }
        }
        within = text.is_some();
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    const FILE: &str = "crates/x/src/y.rs";

    #[test]
    fn phrases_are_found_in_comments_messages_and_documents() {
        let text = concat!("// no", "body reads it\nlet x = \"so ", "many bytes\";\nlet y = busybody;\n");
        check("plain-words", &[(FILE, text)], &["crates/x/src/y.rs:1", "crates/x/src/y.rs:2"]);
        check(
            "plain-words",
            &[("docs/a.md", concat!("It is ", "no number.\nThere is no number.\n"))],
            &["docs/a.md:1"],
        );
        check("plain-words", &[("docs/measured/a.md", concat!("no", "body\n"))], &[]);
    }

    #[test]
    fn docs_begin_with_a_sentence() {
        let text = "//! What a file holds.\n\n/// Number of rows.\n/// How many.\nfn f() {}\n    /// Whether it is.\n    x: bool,\n/// Whatever\n/// What is this?\n";
        check("doc-sentence", &[(FILE, text)], &["crates/x/src/y.rs:1", "crates/x/src/y.rs:6"]);
    }
}
