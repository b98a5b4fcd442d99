//! Parser of expressions. Each is typed and interned as it is read.

use super::super::BUILTINS;
use super::super::lex::Token;
use super::{Parsed, Parser, Symbol};
use crate::alu::Alu;
use crate::dtype::{DType, Scalar, Type};
use crate::kernel::*;
use crate::verify::typing;

/// Maximum nesting depth of expressions on one line; the printer stays far below it.
const MAX_EXPR_DEPTH: usize = 64;

impl Parser<'_> {
    pub(super) fn intern(&mut self, expr: Expr) -> Parsed<ExprId> {
        let ty = typing::type_of(&self.kernel, expr)?;
        Ok(self.kernel.exprs.intern(expr, ty))
    }

    pub(super) fn expr(&mut self) -> Parsed<ExprId> {
        self.expr_depth += 1;
        if self.expr_depth > MAX_EXPR_DEPTH {
            return Err(format!("expressions nest deeper than {MAX_EXPR_DEPTH}; name a part as `%0 := …`"));
        }
        let expr = self.expr_inside()?;
        self.expr_depth -= 1;
        Ok(expr)
    }

    fn expr_inside(&mut self) -> Parsed<ExprId> {
        match self.token {
            Token::Number { digits, suffix } => {
                let expr = number(digits, suffix)?;
                self.advance()?;
                self.intern(expr)
            }
            Token::Definition(number) => {
                let expr = self.definitions.get(&number).copied();
                let expr = expr.ok_or_else(|| format!("%{number} is not defined yet"))?;
                self.advance()?;
                Ok(expr)
            }
            Token::Word(word @ ("true" | "false")) => {
                self.advance()?;
                self.intern(Expr::Const(Scalar::from(word == "true")))
            }
            Token::Word(word) if self.is_call()? => self.call(word),
            Token::Word(word) if self.followed_by("<")? => self.typed_call(word),
            Token::Word(word) if self.followed_by("::")? => self.float_constant(word),
            Token::Word(word) if self.followed_by(".")? => self.builtin(word),
            Token::Word(_) | Token::Quoted(_) => self.named(),
            _ => Err(self.expected("an expression")),
        }
    }

    fn named(&mut self) -> Parsed<ExprId> {
        let key = self.name()?;
        match self.meaning(&key)? {
            Symbol::Param(position) => self.intern(Expr::Param(position)),
            Symbol::Local(local) => self.intern(Expr::Local(local)),
            Symbol::Mem(mem) => {
                let (index, lanes, guard) = self.subscript()?;
                self.intern(Expr::Load { mem, index, lanes, guard })
            }
        }
    }

    pub(super) fn subscript(&mut self) -> Parsed<(ExprId, u8, Guard)> {
        self.sign("[")?;
        let guard = match self.token {
            Token::Word("proven") => Guard::Proven,
            Token::Word("unchecked") => Guard::Unchecked,
            _ => Guard::Checked,
        };
        if guard != Guard::Checked {
            self.advance()?;
        }
        let index = self.expr()?;
        let lanes = if self.eat(Token::Sign(";"))? { self.number("a number of lanes")? } else { 1 };
        self.sign("]")?;
        Ok((index, lanes, guard))
    }

    fn call(&mut self, word: &str) -> Parsed<ExprId> {
        let plain = match word {
            "subgroup_lane_id" => Some(Builtin::SubgroupLane),
            "subgroup_size" => Some(Builtin::SubgroupSize),
            _ => None,
        };
        let op = Alu::from_name(word);
        if plain.is_none() && op.is_none() && word != "len" {
            return Err(format!("{word} is not an operation"));
        }
        self.advance()?;
        self.sign("(")?;
        if let Some(builtin) = plain {
            self.sign(")")?;
            return self.intern(Expr::Builtin(builtin));
        }
        let Some(op) = op else {
            let key = self.name()?;
            let mem = self.mem_named(&key)?;
            self.sign(")")?;
            return self.intern(Expr::Len(mem));
        };
        let mut operands = vec![self.expr()?];
        while operands.len() < 3 && self.eat(Token::Sign(","))? {
            operands.push(self.expr()?);
        }
        self.sign(")")?;
        self.intern(Expr::Alu(op, Args::new(&operands)))
    }

    fn typed_call(&mut self, word: &str) -> Parsed<ExprId> {
        if !matches!(word, "cast" | "bitcast" | "splat" | "extract") {
            return Err(format!("{word} is not a conversion"));
        }
        self.advance()?;
        self.sign("<")?;
        let (mut ty, mut lanes) = (Type::Index, 0);
        if matches!(word, "cast" | "bitcast") {
            ty = self.ty()?;
        } else {
            lanes = self.number("a number of lanes")?;
        }
        self.sign(">")?;
        self.sign("(")?;
        let value = self.expr()?;
        self.sign(")")?;
        self.intern(match word {
            "cast" => Expr::Cast(ty, value),
            "bitcast" => Expr::Bitcast(ty, value),
            "splat" => Expr::Splat(value, lanes),
            _ => Expr::Extract(value, lanes),
        })
    }

    fn float_constant(&mut self, word: &str) -> Parsed<ExprId> {
        let dtype = DType::from_name(word).filter(|dtype| dtype.is_float());
        let dtype = dtype.ok_or_else(|| format!("{word} is not a float type"))?;
        self.advance()?;
        self.sign("::")?;
        let Token::Word(word) = self.token else { return Err(self.expected("a constant's name")) };
        self.advance()?;
        let value = match word {
            "INFINITY" => Scalar::from_f64(dtype, f64::INFINITY),
            "NEG_INFINITY" => Scalar::from_f64(dtype, f64::NEG_INFINITY),
            "NAN" => Scalar::from_f64(dtype, f64::NAN),
            "from_bits" => {
                self.sign("(")?;
                let Token::Hex(digits) = self.token else { return Err(self.expected("a number as 0x…")) };
                let bits = u64::from_str_radix(digits, 16).map_err(|_| format!("0x{digits} is too long"))?;
                self.advance()?;
                self.sign(")")?;
                Scalar { dtype, bits }
            }
            _ => return Err(format!("{dtype} has no constant {word}")),
        };
        self.intern(Expr::Const(value))
    }

    fn builtin(&mut self, word: &str) -> Parsed<ExprId> {
        let make = BUILTINS.iter().find(|(_, name)| *name == word).map(|(make, _)| make);
        let make = make.ok_or_else(|| format!("{word} has no axes"))?;
        self.advance()?;
        self.sign(".")?;
        let axis = match self.token {
            Token::Word("x") => 0,
            Token::Word("y") => 1,
            Token::Word("z") => 2,
            _ => return Err(self.expected("an axis")),
        };
        self.advance()?;
        self.intern(Expr::Builtin(make(axis)))
    }
}

/// Parses a number of the type that its suffix names, or an index if there is no suffix.
fn number(digits: &str, suffix: &str) -> Parsed<Expr> {
    if suffix.is_empty() {
        return digits.parse().map(Expr::Index).map_err(|_| format!("{digits} is not an index"));
    }
    let dtype = DType::from_name(suffix).ok_or_else(|| format!("{suffix} is not an element type"))?;
    let wrong = || format!("{digits} is not a valid {dtype}");
    let value = match dtype {
        DType::Bool => return Err("a bool is `true` or `false`".to_string()),
        DType::F64 => Scalar::from(digits.parse::<f64>().map_err(|_| wrong())?),
        DType::F32 => Scalar::from(digits.parse::<f32>().map_err(|_| wrong())?),
        DType::F16 | DType::BF16 => Scalar::from_f64(dtype, digits.parse::<f32>().map_err(|_| wrong())? as f64),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            let value: i128 = digits.parse().map_err(|_| wrong())?;
            let wrapped = Scalar::from_i128(dtype, value);
            if wrapped.to_i128() != value {
                return Err(wrong());
            }
            wrapped
        }
    };
    if dtype.is_float() && !value.to_f64().is_finite() {
        return Err(format!("{digits} is too large for {dtype}"));
    }
    Ok(Expr::Const(value))
}
