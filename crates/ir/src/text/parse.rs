//! Parser of the text form. The text is untrusted: it cannot cause panics, deep recursion or allocations beyond its own length.

mod exprs;
mod statements;

use std::collections::HashMap;

use super::lex::{Lexer, Token};
use super::names::unquote;
use crate::dtype::{DType, Type};
use crate::error::{Error, Result};
use crate::kernel::*;

/// Maximum length of a text.
const MAX_BYTES: usize = 16 << 20;

/// Parses the text of a kernel. Expressions have types, but the kernel is not verified.
///
/// # Errors
/// The first syntax error, with line and column.
pub fn parse(text: &str) -> Result<Kernel> {
    if text.len() > MAX_BYTES {
        return Err(Error::corrupt(format!(
            "a kernel text of {} bytes; at most {MAX_BYTES} are supported",
            text.len()
        )));
    }
    let mut parser = Parser::new(text);
    match parser.kernel() {
        Ok(()) => Ok(parser.kernel),
        Err(message) => {
            let (line, column) = parser.lexer.line_and_column(parser.at);
            Err(Error::corrupt(format!("kernel text, line {line}, column {column}: {message}")))
        }
    }
}

/// Result of a parser step; the error is a message for the current token.
type Parsed<T> = Result<T, String>;

/// A name and its number if it is repeated.
type Key = (String, Option<u32>);

#[derive(Clone, Copy)]
enum Symbol {
    Param(u32),
    Mem(MemId),
    Local(LocalId),
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token<'t>,
    /// Position of the token's first byte.
    at: usize,
    kernel: Kernel,
    names: HashMap<Key, Symbol>,
    definitions: HashMap<u32, ExprId>,
    files: HashMap<String, u16>,
    depth: usize,
    expr_depth: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Parser<'t> {
        Parser {
            lexer: Lexer::new(text),
            token: Token::End,
            at: 0,
            kernel: Kernel {
                name: String::new(),
                group_size: None,
                unchecked: false,
                params: Vec::new(),
                mems: Vec::new(),
                locals: Vec::new(),
                exprs: Exprs::default(),
                body: Block::new(),
                files: Vec::new(),
            },
            names: HashMap::new(),
            definitions: HashMap::new(),
            files: HashMap::new(),
            depth: 0,
            expr_depth: 0,
        }
    }

    // Tokens.

    pub(super) fn advance(&mut self) -> Parsed<()> {
        match self.lexer.next() {
            Ok((token, at)) => {
                (self.token, self.at) = (token, at);
                Ok(())
            }
            Err(at) => {
                self.at = at;
                Err("invalid token".to_string())
            }
        }
    }

    pub(super) fn eat(&mut self, token: Token<'_>) -> Parsed<bool> {
        let found = self.token == token;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn sign(&mut self, sign: &'static str) -> Parsed<()> {
        if self.eat(Token::Sign(sign))? { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    pub(super) fn word(&mut self, word: &'static str) -> Parsed<bool> {
        self.eat(Token::Word(word))
    }

    pub(super) fn expected(&self, what: &str) -> String {
        match self.token {
            Token::End => format!("expected {what}, but the text ends"),
            _ => format!("expected {what}"),
        }
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        match self.token {
            Token::Number { digits, suffix: "" } => {
                let number = digits.parse().map_err(|_| format!("{digits} is not {what}"))?;
                self.advance()?;
                Ok(number)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Parses a name with its number.
    pub(super) fn name(&mut self) -> Parsed<Key> {
        let name = match self.token {
            Token::Word(word) => word.to_string(),
            Token::Quoted(raw) => unquote(raw).ok_or("the string has a malformed escape")?,
            _ => return Err(self.expected("a name")),
        };
        self.advance()?;
        let which = match self.token {
            Token::Which(which) => {
                self.advance()?;
                Some(which)
            }
            _ => None,
        };
        Ok((name, which))
    }

    pub(super) fn define(&mut self, key: Key, meaning: Symbol) -> Parsed<()> {
        let (name, which) = (key.0.clone(), key.1);
        match self.names.insert(key, meaning) {
            None => Ok(()),
            Some(_) => Err(format!(
                "{} is already defined; number repeated names as in {name}.0, {name}.1",
                spelled(&name, which)
            )),
        }
    }

    pub(super) fn meaning(&self, key: &Key) -> Parsed<Symbol> {
        self.names.get(key).copied().ok_or_else(|| format!("{} is not defined here", spelled(&key.0, key.1)))
    }

    pub(super) fn mem_named(&self, key: &Key) -> Parsed<MemId> {
        match self.meaning(key)? {
            Symbol::Mem(mem) => Ok(mem),
            Symbol::Param(_) | Symbol::Local(_) => Err(format!("{} is not a memory", spelled(&key.0, key.1))),
        }
    }

    /// Returns true if the word is followed by an opening parenthesis.
    pub(super) fn is_call(&self) -> Parsed<bool> {
        self.followed_by("(")
    }

    pub(super) fn followed_by(&self, sign: &'static str) -> Parsed<bool> {
        let mut ahead = self.lexer;
        Ok(matches!(ahead.next(), Ok((token, _)) if token == Token::Sign(sign)))
    }

    // The head.

    fn kernel(&mut self) -> Parsed<()> {
        self.advance()?;
        self.kernel.unchecked = self.word("unchecked")?;
        if !self.word("kernel")? {
            return Err(self.expected("`kernel`"));
        }
        self.kernel.name = self.name()?.0;
        self.sign("(")?;
        while !self.eat(Token::Sign(")"))? {
            self.param()?;
            if self.token != Token::Sign(")") {
                self.sign(",")?;
            }
        }
        if self.word("group")? {
            self.sign("(")?;
            let x = self.number("a size")?;
            self.sign(",")?;
            let y = self.number("a size")?;
            self.sign(",")?;
            self.kernel.group_size = Some([x, y, self.number("a size")?]);
            self.sign(")")?;
        }
        self.sign("{")?;
        while self.token == Token::Word("shared") || self.token == Token::Word("private") {
            self.array()?;
        }
        self.kernel.body = self.block()?;
        if self.token == Token::End { Ok(()) } else { Err(self.expected("the end")) }
    }

    fn param(&mut self) -> Parsed<()> {
        let key = self.name()?;
        let name = key.0.clone();
        self.sign(":")?;
        if !self.eat(Token::Sign("&"))? {
            let ty = self.ty()?;
            self.define(key, Symbol::Param(self.kernel.params.len() as u32))?;
            self.kernel.params.push(Param::Scalar { name, ty });
            return Ok(());
        }
        let access = match self.token {
            Token::Word("mut") => Access::InOut,
            Token::Word("out") => Access::Out,
            _ => Access::In,
        };
        if access != Access::In {
            self.advance()?;
        }
        self.sign("[")?;
        let dtype = self.dtype()?;
        self.sign("]")?;
        let mem = self.memory(key, dtype, Space::Buffer(access))?;
        self.kernel.params.push(Param::Buffer(mem));
        Ok(())
    }

    fn array(&mut self) -> Parsed<()> {
        let shared = self.token == Token::Word("shared");
        self.advance()?;
        let key = self.name()?;
        self.sign(":")?;
        self.sign("[")?;
        let dtype = self.dtype()?;
        self.sign(";")?;
        let len = self.number("a length")?;
        self.sign("]")?;
        self.memory(key, dtype, if shared { Space::Shared(len) } else { Space::Private(len) })?;
        Ok(())
    }

    fn memory(&mut self, key: Key, dtype: DType, space: Space) -> Parsed<MemId> {
        let mem = MemId(self.kernel.mems.len() as u32);
        self.kernel.mems.push(Memory { name: key.0.clone(), dtype, space });
        self.define(key, Symbol::Mem(mem))?;
        Ok(mem)
    }

    pub(super) fn dtype(&mut self) -> Parsed<DType> {
        let Token::Word(word) = self.token else { return Err(self.expected("an element type")) };
        let dtype = DType::from_name(word).ok_or_else(|| format!("{word} is not an element type"))?;
        self.advance()?;
        Ok(dtype)
    }

    pub(super) fn ty(&mut self) -> Parsed<Type> {
        let Token::Word(word) = self.token else { return Err(self.expected("a type")) };
        let vector = || {
            let (dtype, lanes) = word.split_once('x')?;
            Some(Type::Vector(DType::from_name(dtype)?, lanes.parse().ok()?))
        };
        let ty = match word {
            "index" => Some(Type::Index),
            _ => DType::from_name(word).map(Type::Scalar).or_else(vector),
        };
        let ty = ty.ok_or_else(|| format!("{word} is not a type"))?;
        self.advance()?;
        Ok(ty)
    }
}

fn spelled(name: &str, which: Option<u32>) -> String {
    which.map_or(name.to_string(), |which| format!("{name}.{which}"))
}
