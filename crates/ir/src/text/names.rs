//! Names of parameters, memories and locals in the text, where they must be unique.

use std::collections::HashMap;
use std::fmt::Write;

use crate::kernel::*;

/// Keywords at positions where a name can occur.
const RESERVED: [&str; 18] = [
    "let",
    "mut",
    "if",
    "else",
    "for",
    "in",
    "step",
    "while",
    "break",
    "continue",
    "return",
    "shared",
    "private",
    "true",
    "false",
    "proven",
    "unchecked",
    "kernel",
];

/// Unique names of all parameters, memories and locals.
pub(super) struct Names {
    pub(super) params: Vec<String>,
    pub(super) mems: Vec<String>,
    pub(super) locals: Vec<String>,
}

impl Names {
    pub(super) fn of(kernel: &Kernel) -> Names {
        let mut introduced = Vec::new();
        kernel.walk(&mut |stmt| introduced.extend(stmt.op.introduces()));
        introduced.retain(|local| local.index() < kernel.locals.len());

        let scalars = kernel.params.iter().filter_map(|param| match param {
            Param::Scalar { name, .. } => Some(name),
            Param::Buffer(_) => None,
        });
        let mems = kernel.mems.iter().map(|memory| &memory.name);
        let locals = introduced.iter().map(|local| &kernel.local(*local).name);
        let mut spelling = Spelling::default();
        for name in scalars.chain(mems).chain(locals) {
            spelling.uses.entry(name).or_insert(Use { times: 0, given: 0 }).times += 1;
        }

        let params = kernel.params.iter().map(|param| match param {
            Param::Scalar { name, .. } => spelling.next(name),
            Param::Buffer(_) => String::new(),
        });
        let params = params.collect();
        let mems = kernel.mems.iter().map(|memory| spelling.next(&memory.name)).collect();
        let mut locals: Vec<String> = kernel.locals.iter().map(|local| word(&local.name) + ".?").collect();
        for local in introduced {
            locals[local.index()] = spelling.next(&kernel.local(local).name);
        }
        Names { params, mems, locals }
    }

    pub(super) fn mem(&self, mem: MemId) -> &str {
        self.mems.get(mem.index()).map_or("?", String::as_str)
    }

    pub(super) fn local(&self, local: LocalId) -> &str {
        self.locals.get(local.index()).map_or("?", String::as_str)
    }

    pub(super) fn param(&self, position: u32) -> &str {
        self.params.get(position as usize).map_or("?", String::as_str)
    }
}

#[derive(Default)]
struct Spelling<'k> {
    uses: HashMap<&'k str, Use>,
}

struct Use {
    times: u32,
    given: u32,
}

impl Spelling<'_> {
    fn next(&mut self, name: &str) -> String {
        let mut text = word(name);
        if let Some(known) = self.uses.get_mut(name)
            && known.times > 1
        {
            write!(text, ".{}", known.given).expect("writing to a string");
            known.given += 1;
        }
        text
    }
}

/// Returns the name as written: bare if it is an identifier, else quoted.
pub(super) fn word(name: &str) -> String {
    let bare =
        name.chars().enumerate().all(|(i, c)| c == '_' || c.is_ascii_alphabetic() || i > 0 && c.is_ascii_digit());
    if bare && !name.is_empty() && !RESERVED.contains(&name) { name.to_string() } else { quote(name) }
}

/// Quotes a string in printable ASCII.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", text.escape_default().to_string().replace("\\'", "'"))
}

/// Returns the unquoted string; `None` if an escape is malformed. `raw` does not include the quotes.
pub(super) fn unquote(raw: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match chars.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '\\' => '\\',
            '"' => '"',
            'u' => {
                let digits = chars.as_str().strip_prefix('{')?.split_once('}')?.0;
                chars.by_ref().take(digits.chars().count() + 2).for_each(drop);
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
    }
    Some(text)
}
