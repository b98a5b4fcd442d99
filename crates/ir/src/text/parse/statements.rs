//! Parser of the lines of a body: definitions and statements.

use super::super::ATOMICS;
use super::super::lex::Token;
use super::super::names::unquote;
use super::{Parsed, Parser, Symbol, spelled};
use crate::dtype::{Scalar, Type};
use crate::kernel::*;
use crate::verify::MAX_DEPTH;

impl Parser<'_> {
    /// Parses the lines of a block and its closing brace.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        let mut block = Block::new();
        while !self.eat(Token::Sign("}"))? {
            match self.token {
                Token::Definition(number) => self.definition(number)?,
                _ => block.push(self.statement()?),
            }
        }
        self.depth -= 1;
        Ok(block)
    }

    fn definition(&mut self, number: u32) -> Parsed<()> {
        self.advance()?;
        self.sign(":=")?;
        let expr = self.expr()?;
        match self.definitions.insert(number, expr) {
            None => Ok(()),
            Some(_) => Err(format!("%{number} is defined twice")),
        }
    }

    fn place(&mut self) -> Parsed<Loc> {
        let Token::Place(text) = self.token else { return Ok(Loc::default()) };
        let (file, line) = text.rsplit_once(':').ok_or("a location is a file, a colon and a line")?;
        let line = line.parse().map_err(|_| format!("{line} is not a line number"))?;
        let file = match file.strip_prefix('"').and_then(|file| file.strip_suffix('"')) {
            Some(raw) => unquote(raw).ok_or("the string has a malformed escape")?,
            None => file.to_string(),
        };
        let next = self.kernel.files.len();
        let file = match self.files.get(&file) {
            Some(known) => *known,
            None => {
                let position = u16::try_from(next).map_err(|_| "more than 65536 files".to_string())?;
                self.files.insert(file.clone(), position);
                self.kernel.files.push(file);
                position
            }
        };
        self.advance()?;
        Ok(Loc { file, line })
    }

    fn statement(&mut self) -> Parsed<Stmt> {
        let op = match self.token {
            Token::Word("if") => return self.if_statement(),
            Token::Word("for") => return self.for_statement(),
            Token::Word("while") => return self.while_statement(),
            Token::Word("let") => self.let_statement()?,
            Token::Word("break") => self.plain(Op::Break)?,
            Token::Word("continue") => self.plain(Op::Continue)?,
            Token::Word("return") => self.plain(Op::Return)?,
            Token::Word("barrier") if self.is_call()? => {
                self.advance()?;
                self.sign("(")?;
                self.sign(")")?;
                Op::Barrier
            }
            Token::Word(word) if atomic_named(word).is_some() && self.is_call()? => self.atomic(None)?,
            Token::Word(_) | Token::Quoted(_) => self.assignment()?,
            _ => return Err(self.expected("a statement")),
        };
        Ok(Stmt { op, at: self.place()? })
    }

    fn plain(&mut self, op: Op) -> Parsed<Op> {
        self.advance()?;
        Ok(op)
    }

    fn assignment(&mut self) -> Parsed<Op> {
        let key = self.name()?;
        if self.token == Token::Sign("[") {
            let mem = self.mem_named(&key)?;
            let (index, lanes, guard) = self.subscript()?;
            if lanes != 1 {
                return Err("a store writes the lanes of its value; leave out their number".to_string());
            }
            self.sign("=")?;
            return Ok(Op::Store { mem, index, value: self.expr()?, guard });
        }
        match self.meaning(&key)? {
            Symbol::Local(local) => {
                self.sign("=")?;
                Ok(Op::Assign { local, value: self.expr()? })
            }
            Symbol::Param(_) | Symbol::Mem(_) => Err(format!("{} cannot be assigned", spelled(&key.0, key.1))),
        }
    }

    fn let_statement(&mut self) -> Parsed<Op> {
        self.advance()?;
        let mutable = self.word("mut")?;
        let key = self.name()?;
        self.sign(":")?;
        let ty = self.ty()?;
        self.sign("=")?;
        let local = LocalId(self.kernel.locals.len() as u32);
        let op = match self.token {
            Token::Word(word) if atomic_named(word).is_some() && self.is_call()? => self.atomic(Some(local))?,
            Token::Word(word) => match collective_named(word) {
                Some((scope, named)) if self.is_call()? || self.followed_by("<")? => {
                    self.collective(scope, named, local)?
                }
                Some(_) | None => Op::Let { local, value: self.expr()? },
            },
            _ => Op::Let { local, value: self.expr()? },
        };
        self.kernel.locals.push(Local { name: key.0.clone(), ty, mutable });
        self.define(key, Symbol::Local(local))?;
        Ok(op)
    }

    fn atomic(&mut self, old: Option<LocalId>) -> Parsed<Op> {
        let Token::Word(word) = self.token else { return Err(self.expected("an atomic")) };
        let op = atomic_named(word).ok_or_else(|| format!("{word} is not an atomic"))?;
        self.advance()?;
        self.sign("(")?;
        let key = self.name()?;
        let mem = self.mem_named(&key)?;
        let (index, lanes, guard) = self.subscript()?;
        if lanes != 1 {
            return Err("an atomic changes one element".to_string());
        }
        self.sign(",")?;
        let first = self.expr()?;
        let (expected, value) = match self.eat(Token::Sign(","))? {
            true => (Some(first), self.expr()?),
            false => (None, first),
        };
        self.sign(")")?;
        Ok(Op::Atomic { op, mem, index, value, expected, old, guard })
    }

    fn collective(&mut self, scope: Scope, named: NamedCollective, result: LocalId) -> Parsed<Op> {
        self.advance()?;
        let mut op = match named {
            NamedCollective::Op(op) => op,
            NamedCollective::Shuffle => CollectiveOp::Shuffle(ExprId(0)),
            NamedCollective::Broadcast => {
                self.sign("<")?;
                let item = self.number("a work-item")?;
                self.sign(">")?;
                CollectiveOp::Broadcast(item)
            }
            NamedCollective::Mma => {
                self.sign("<")?;
                let ty = self.ty()?;
                self.sign(">")?;
                let dtype = ty.dtype().ok_or("matrices have elements, not indices")?;
                CollectiveOp::Mma(Mma { dtype, a: [ExprId(0); 4], b: [ExprId(0); 2] })
            }
        };
        self.sign("(")?;
        let value = self.expr()?;
        for operand in op.operands_mut() {
            self.sign(",")?;
            *operand = self.expr()?;
        }
        self.sign(")")?;
        Ok(Op::Collective { op, scope, value, result })
    }

    fn if_statement(&mut self) -> Parsed<Stmt> {
        self.advance()?;
        let condition = self.expr()?;
        self.sign("{")?;
        let at = self.place()?;
        let then = self.block()?;
        let mut otherwise = Block::new();
        if self.word("else")? {
            self.sign("{")?;
            otherwise = self.block()?;
        }
        Ok(Stmt { op: Op::If { condition, then, otherwise }, at })
    }

    fn while_statement(&mut self) -> Parsed<Stmt> {
        self.advance()?;
        let condition = self.expr()?;
        self.sign("{")?;
        let at = self.place()?;
        Ok(Stmt { op: Op::While { condition, body: self.block()? }, at })
    }

    fn for_statement(&mut self) -> Parsed<Stmt> {
        self.advance()?;
        let key = self.name()?;
        self.sign(":")?;
        let ty = self.ty()?;
        if !self.word("in")? {
            return Err(self.expected("`in`"));
        }
        let start = self.expr()?;
        self.sign("..")?;
        let end = self.expr()?;
        let step = match self.word("step")? {
            true => self.expr()?,
            false => match ty {
                Type::Index => self.intern(Expr::Index(1))?,
                Type::Scalar(dtype) if dtype.is_int() => self.intern(Expr::Const(Scalar::from_i128(dtype, 1)))?,
                Type::Scalar(_) | Type::Vector(..) => return Err(format!("a loop cannot count in {ty}")),
            },
        };
        self.sign("{")?;
        let counter = LocalId(self.kernel.locals.len() as u32);
        self.kernel.locals.push(Local { name: key.0.clone(), ty, mutable: false });
        self.define(key, Symbol::Local(counter))?;
        let at = self.place()?;
        Ok(Stmt { op: Op::For { counter, start, end, step, body: self.block()? }, at })
    }
}

fn atomic_named(word: &str) -> Option<AtomicOp> {
    ATOMICS.iter().find(|(_, name)| *name == word).map(|(op, _)| *op)
}

enum NamedCollective {
    Op(CollectiveOp),
    Broadcast,
    Shuffle,
    Mma,
}

fn collective_named(word: &str) -> Option<(Scope, NamedCollective)> {
    let (scope, rest) = match word.strip_prefix("group_") {
        Some(rest) => (Scope::Group, rest),
        None => (Scope::Subgroup, word.strip_prefix("subgroup_")?),
    };
    let reduce = |name: &str| ReduceOp::ALL.into_iter().find(|op| op.name() == name);
    let named = if rest == "broadcast" {
        NamedCollective::Broadcast
    } else if rest == "shuffle" {
        NamedCollective::Shuffle
    } else if rest == "mma" {
        NamedCollective::Mma
    } else if let Some(name) = rest.strip_prefix("inclusive_") {
        NamedCollective::Op(CollectiveOp::InclusiveScan(reduce(name)?))
    } else if let Some(name) = rest.strip_prefix("exclusive_") {
        NamedCollective::Op(CollectiveOp::ExclusiveScan(reduce(name)?))
    } else {
        NamedCollective::Op(CollectiveOp::Reduce(reduce(rest)?))
    };
    Some((scope, named))
}
