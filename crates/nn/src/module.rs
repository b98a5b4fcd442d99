//! Parameters, and the trait that visits a model's parameters by name.

use std::collections::BTreeMap;

use panoply_tensor::{Error, Result, Shape, Tensor};

/// A trainable parameter or a buffer (state that is not trained) of a model.
///
/// [`Param::new`] makes the former, [`Param::state`] the latter.
#[doc(alias = "Parameter")]
#[derive(Debug)]
pub struct Param {
    value: Tensor,
    /// True if the optimizer skips it.
    pub frozen: bool,
    pub(crate) state: bool,
}

impl Param {
    /// Creates a trainable parameter with this initial value.
    pub fn new(value: Tensor) -> Param {
        Param { value, frozen: false, state: false }
    }

    /// Creates a buffer, such as a running mean: it gets no gradient, but a training pass can replace it
    /// ([`crate::ForwardContext::update`]). It is saved like a parameter.
    #[doc(alias = "register_buffer")]
    pub fn state(value: Tensor) -> Param {
        Param { value, frozen: false, state: true }
    }

    /// Returns true if it is trained: neither frozen nor a buffer.
    pub fn requires_grad(&self) -> bool {
        !self.frozen && !self.state
    }

    /// Returns the current value.
    pub fn tensor(&self) -> &Tensor {
        &self.value
    }

    /// Replaces the value; the new value is detached from its graph.
    ///
    /// # Errors
    /// If shape or element type differ.
    pub fn set(&mut self, value: &Tensor) -> Result<()> {
        check_same(&self.value, value)?;
        self.value = value.detach();
        Ok(())
    }

    /// Replaces the value without a check: by a placeholder while the value is donated, or by the result.
    fn place(&mut self, value: Tensor) {
        self.value = value;
    }
}

/// Replaces the values of the parameters with these names.
pub(crate) fn put(model: &mut dyn Module, names: &[String], values: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
    let mut values: BTreeMap<&str, Tensor> = names.iter().map(String::as_str).zip(values).collect();
    let mut place = |name: &str, param: &mut Param| {
        values.remove(name).into_iter().for_each(|value| param.place(value));
        Ok(())
    };
    model.visit_mut(&mut ParamVisitorMut::new(&mut place))
}

/// Fails unless shape and element type are equal.
pub(crate) fn check_same(old: &Tensor, new: &Tensor) -> Result<()> {
    let (before, after): (&Shape, &Shape) = (old.shape()?, new.shape()?);
    if before == after && old.dtype() == new.dtype() {
        return Ok(());
    }
    Err(Error::mistake(format!("cannot replace the parameter {old:?} by {new:?}; shape and dtype must be equal")))
}

impl Clone for Param {
    /// Returns a cheap snapshot. The clone of a buffer is a separate cell: updates that a pass collects for one do not apply to the other.
    fn clone(&self) -> Param {
        let value = if self.state { self.value.detach() } else { self.value.clone() };
        Param { value, ..*self }
    }
}

/// A type with parameters. `#[derive(Module)]` implements it for a struct whose fields are modules and parameters.
pub trait Module {
    /// Visits every parameter with its dotted name.
    fn visit(&self, visitor: &mut ParamVisitor<'_>);

    /// Visits every parameter with its dotted name, for changes.
    ///
    /// # Errors
    /// Those of the visitor.
    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()>;

    /// Returns every parameter with its dotted name, in the order of the fields.
    fn named_parameters(&self) -> Vec<(String, Param)> {
        collected(&|visitor| self.visit(visitor))
    }

    /// Freezes all parameters of a model or a submodule, such as `model.body.freeze()?`: optimizers skip them. Buffers, such as running
    /// means, are still updated in training.
    ///
    /// # Errors
    /// Those of [`Module::visit_mut`].
    #[doc(alias = "requires_grad_")]
    fn freeze(&mut self) -> Result<()> {
        self.visit_mut(&mut ParamVisitorMut::new(&mut freeze_param))
    }

    /// Unfreezes all parameters of a model or a submodule.
    ///
    /// # Errors
    /// Those of [`Module::visit_mut`].
    #[doc(alias = "requires_grad_")]
    fn unfreeze(&mut self) -> Result<()> {
        self.visit_mut(&mut ParamVisitorMut::new(&mut unfreeze_param))
    }

    /// Returns the number of trainable elements.
    fn num_parameters(&self) -> usize {
        trainable_elems(&self.named_parameters())
    }

    /// Returns a table of the parameters with name, type, shape and number of elements, and the total of trainable elements.
    fn summary(&self) -> String {
        table(&self.named_parameters())
    }
}

/// Returns every parameter of a visit. Like the other bodies of default methods it is a function of its own, because a default method is
/// compiled again for each module.
fn collected(visit: &dyn Fn(&mut ParamVisitor<'_>)) -> Vec<(String, Param)> {
    let mut params = Vec::new();
    visit(&mut ParamVisitor::new(&mut |name, param| params.push((name.to_string(), param.clone()))));
    params
}

fn freeze_param(_: &str, param: &mut Param) -> Result<()> {
    param.frozen = !param.state;
    Ok(())
}

fn unfreeze_param(_: &str, param: &mut Param) -> Result<()> {
    param.frozen = false;
    Ok(())
}

fn trainable_elems(params: &[(String, Param)]) -> usize {
    params.iter().filter(|(_, param)| param.requires_grad()).map(|(_, param)| elems(param)).sum()
}

/// Returns the table of [`Module::summary`].
fn table(params: &[(String, Param)]) -> String {
    let width = params.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, param) in params {
        let shape = param.tensor().shape().map_or_else(|error| error.to_string(), Shape::to_string);
        let kept = if param.requires_grad() { "" } else { "  frozen or buffer" };
        text += &format!("{name:width$}  {} {shape:<16} {:>10}{kept}\n", param.tensor().dtype(), elems(param));
    }
    text + &format!("{} trainable parameters\n", trainable_elems(params))
}

fn elems(param: &Param) -> usize {
    param.tensor().shape().map_or(0, Shape::numel)
}

/// Implements [`Module`] for a struct of this crate. The listed fields are modules; the others are settings.
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

/// Visitor of parameters that tracks the dotted name.
pub struct ParamVisitor<'a> {
    path: Vec<String>,
    see: &'a mut dyn FnMut(&str, &Param),
}

impl<'a> ParamVisitor<'a> {
    /// Creates a visitor that calls `see` for each parameter.
    pub fn new(see: &'a mut dyn FnMut(&str, &Param)) -> ParamVisitor<'a> {
        ParamVisitor { path: Vec::new(), see }
    }

    /// Visits a field, which is a module or a parameter.
    pub fn field(&mut self, name: &str, module: &dyn Module) {
        self.path.push(name.to_string());
        module.visit(self);
        self.path.pop();
    }
}

/// Visitor that changes parameters and tracks the dotted name. The first error ends the visit.
pub struct ParamVisitorMut<'a> {
    path: Vec<String>,
    change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>,
}

impl<'a> ParamVisitorMut<'a> {
    /// Creates a visitor that calls `change` for each parameter.
    pub fn new(change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>) -> ParamVisitorMut<'a> {
        ParamVisitorMut { path: Vec::new(), change }
    }

    /// Visits a field, which is a module or a parameter.
    ///
    /// # Errors
    /// Those of `change`.
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
        /// A setting without parameters.
        impl Module for $plain {
            fn visit(&self, _: &mut ParamVisitor<'_>) {}

            fn visit_mut(&mut self, _: &mut ParamVisitorMut<'_>) -> Result<()> {
                Ok(())
            }
        }
    )*};
}

without_params!(bool u32 u64 usize i32 i64 f32 f64 String);
