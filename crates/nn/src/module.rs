//! Parameters, and how a model shows them.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Shape, Tensor};

/// A tensor that training changes, or that a model keeps beside those.
#[derive(Debug)]
pub struct Param {
    value: Tensor,
    /// Whether training leaves it alone.
    pub frozen: bool,
    pub(crate) state: bool,
}

impl Param {
    /// A parameter that starts as this value.
    pub fn new(value: Tensor) -> Param {
        Param { value, frozen: false, state: false }
    }

    /// Something kept beside the parameters, such as a running mean: no gradient moves it, a training pass may
    /// ([`crate::ForwardContext::update`]). It is saved like a parameter.
    pub fn state(value: Tensor) -> Param {
        Param { value, frozen: false, state: true }
    }

    /// Whether gradients move it.
    pub fn requires_grad(&self) -> bool {
        !self.frozen && !self.state
    }

    /// The value now.
    pub fn tensor(&self) -> &Tensor {
        &self.value
    }

    /// Replaces the value; the new one keeps no history. Shape and element type must stay.
    pub fn set(&mut self, value: &Tensor) -> Result<()> {
        check_same(&self.value, value)?;
        self.value = value.detach();
        Ok(())
    }

    /// Takes a value without a look at it: what stands here while the value is elsewhere, or the value on its way back.
    fn place(&mut self, value: Tensor) {
        self.value = value;
    }
}

/// Puts values, one for each of these names, where the parameters of the names are.
pub(crate) fn put(model: &mut dyn Module, names: &[String], values: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
    let mut values: BTreeMap<&str, Tensor> = names.iter().map(String::as_str).zip(values).collect();
    let mut place = |name: &str, param: &mut Param| {
        values.remove(name).into_iter().for_each(|value| param.place(value));
        Ok(())
    };
    model.visit_mut(&mut ParamVisitorMut::new(&mut place))
}

/// That a parameter's value may become another: shape and element type stay.
pub(crate) fn check_same(old: &Tensor, new: &Tensor) -> Result<()> {
    let (before, after): (&Shape, &Shape) = (old.shape()?, new.shape()?);
    if before == after && old.dtype() == new.dtype() {
        return Ok(());
    }
    Err(Error::mistake(format!("a parameter {old:?} cannot become {new:?}")))
}

impl Clone for Param {
    /// A free snapshot. A state's clone is another cell: what a pass collects for one is not for the other.
    fn clone(&self) -> Param {
        let value = if self.state { self.value.detach() } else { self.value.clone() };
        Param { value, ..*self }
    }
}

/// Something with parameters. `#[derive(Module)]` writes it for a struct whose fields are modules and parameters.
pub trait Module {
    /// Shows every parameter with its dotted name.
    fn visit(&self, visitor: &mut ParamVisitor<'_>);

    /// Shows every parameter with its dotted name, to be changed.
    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()>;

    /// Every parameter with its dotted name, in the order of the fields.
    fn named_parameters(&self) -> Vec<(String, Param)> {
        let mut params = Vec::new();
        self.visit(&mut ParamVisitor::new(&mut |name, param| params.push((name.to_string(), param.clone()))));
        params
    }

    /// Whether training leaves all parameters alone from now on: of a model, or of a part of it, such as `model.body.freeze(true)`. What
    /// layers keep beside them, such as running means, still moves.
    fn freeze(&mut self, frozen: bool) -> Result<()> {
        self.visit_mut(&mut ParamVisitorMut::new(&mut |_, param| {
            param.frozen = frozen && !param.state;
            Ok(())
        }))
    }

    /// How many numbers gradients move.
    fn num_parameters(&self) -> usize {
        let trained = self.named_parameters().into_iter().filter(|(_, param)| param.requires_grad());
        trained.map(|(_, param)| elems(&param)).sum()
    }

    /// A line for each parameter with its name, type, shape and count, and their sum.
    fn summary(&self) -> String {
        let params = self.named_parameters();
        let width = params.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, param) in &params {
            let shape = param.tensor().shape().map_or_else(|error| error.to_string(), Shape::to_string);
            let kept = if param.requires_grad() { "" } else { "  not trained" };
            text += &format!("{name:width$}  {} {shape:<16} {:>10}{kept}\n", param.tensor().dtype(), elems(param));
        }
        text + &format!("{} parameters to train\n", self.num_parameters())
    }
}

fn elems(param: &Param) -> usize {
    param.tensor().shape().map_or(0, Shape::numel)
}

/// [`Module`] for a struct of this crate whose named fields are modules; other fields are settings.
macro_rules! module {
    ($name:ident { $($field:ident),* }) => {
        $crate::module::module!(@ [] $name { $($field),* });
    };
    ($name:ident<const $n:ident: usize> { $($field:ident),* }) => {
        $crate::module::module!(@ [const $n: usize] $name<$n> { $($field),* });
    };
    (@ [$($generics:tt)*] $type:ty { $($field:ident),* }) => {
        impl<$($generics)*> $crate::module::Module for $type {
            fn visit(&self, visitor: &mut $crate::module::ParamVisitor<'_>) {
                let _ = &visitor;
                $(visitor.field(stringify!($field), &self.$field);)*
            }

            fn visit_mut(&mut self, visitor: &mut $crate::module::ParamVisitorMut<'_>) -> panoply_tensor::Result<()> {
                let _ = &visitor;
                $(visitor.field(stringify!($field), &mut self.$field)?;)*
                Ok(())
            }
        }
    };
}
pub(crate) use module;

/// Walks the parameters and keeps the dotted name.
pub struct ParamVisitor<'a> {
    path: Vec<String>,
    see: &'a mut dyn FnMut(&str, &Param),
}

impl<'a> ParamVisitor<'a> {
    /// Calls `see` for each parameter.
    pub fn new(see: &'a mut dyn FnMut(&str, &Param)) -> ParamVisitor<'a> {
        ParamVisitor { path: Vec::new(), see }
    }

    /// A field: a module or a parameter.
    pub fn field(&mut self, name: &str, module: &dyn Module) {
        self.path.push(name.to_string());
        module.visit(self);
        self.path.pop();
    }
}

/// Walks the parameters to change them; the first failure ends the walk.
pub struct ParamVisitorMut<'a> {
    path: Vec<String>,
    change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>,
}

impl<'a> ParamVisitorMut<'a> {
    /// Calls `change` for each parameter.
    pub fn new(change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>) -> ParamVisitorMut<'a> {
        ParamVisitorMut { path: Vec::new(), change }
    }

    /// A field: a module or a parameter.
    pub fn field(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        self.path.push(name.to_string());
        let done = module.visit_mut(self);
        self.path.pop();
        done
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.iter().enumerate().for_each(|(i, module)| visitor.field(&i.to_string(), module));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(i, module)| visitor.field(&i.to_string(), module))
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.iter().for_each(|module| module.visit(visitor));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.iter_mut().try_for_each(|module| module.visit_mut(visitor))
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        (**self).visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        (**self).visit_mut(visitor)
    }
}

impl Module for Param {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        let name = visitor.path.join(".");
        (visitor.see)(&name, self);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        let name = visitor.path.join(".");
        (visitor.change)(&name, self)
    }
}

macro_rules! without_params {
    ($($plain:ty)*) => {$(
        /// A setting: no parameters.
        impl Module for $plain {
            fn visit(&self, _: &mut ParamVisitor<'_>) {}

            fn visit_mut(&mut self, _: &mut ParamVisitorMut<'_>) -> Result<()> {
                Ok(())
            }
        }
    )*};
}

without_params!(bool u32 u64 usize i32 i64 f32 f64 String);
