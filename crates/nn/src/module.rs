//! Parameters, and how a model shows them.

use panoply_tensor::{Error, Result, Shape, Tensor};

/// A tensor that training changes.
#[derive(Clone, Debug)]
pub struct Param {
    value: Tensor,
    /// Whether training leaves it alone.
    pub frozen: bool,
}

impl Param {
    /// A parameter that starts as this value.
    pub fn new(value: Tensor) -> Param {
        Param { value, frozen: false }
    }

    /// The value now.
    pub fn tensor(&self) -> &Tensor {
        &self.value
    }

    /// Replaces the value; the new one keeps no history. Shape and element type must stay.
    pub fn set(&mut self, value: &Tensor) -> Result<()> {
        let (old, new): (&Shape, &Shape) = (self.value.shape()?, value.shape()?);
        if old != new || self.value.dtype() != value.dtype() {
            return Err(Error::mistake(format!("a parameter {:?} cannot become {value:?}", self.value)));
        }
        self.value = value.detach();
        Ok(())
    }
}

/// Something with parameters. `#[derive(Module)]` writes it for a struct whose fields are modules and parameters.
pub trait Module {
    /// Shows every parameter with its dotted name.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Shows every parameter with its dotted name, to be changed.
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()>;

    /// Every parameter with its dotted name, in the order of the fields.
    fn named_params(&self) -> Vec<(String, Param)> {
        let mut params = Vec::new();
        self.visit(&mut Visitor::new(&mut |name, param| params.push((name.to_string(), param.clone()))));
        params
    }

    /// How many numbers there are to train.
    fn param_count(&self) -> usize {
        let count = |param: &Param| param.tensor().shape().map_or(0, Shape::elems);
        self.named_params().iter().map(|(_, param)| count(param)).sum()
    }
}

/// Walks the parameters and keeps the dotted name.
pub struct Visitor<'a> {
    path: Vec<String>,
    see: &'a mut dyn FnMut(&str, &Param),
}

impl<'a> Visitor<'a> {
    /// Calls `see` for each parameter.
    pub fn new(see: &'a mut dyn FnMut(&str, &Param)) -> Visitor<'a> {
        Visitor { path: Vec::new(), see }
    }

    /// A field: a module or a parameter.
    pub fn field(&mut self, name: &str, module: &dyn Module) {
        self.path.push(name.to_string());
        module.visit(self);
        self.path.pop();
    }
}

/// Walks the parameters to change them; the first failure ends the walk.
pub struct VisitorMut<'a> {
    path: Vec<String>,
    change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>,
}

impl<'a> VisitorMut<'a> {
    /// Calls `change` for each parameter.
    pub fn new(change: &'a mut dyn FnMut(&str, &mut Param) -> Result<()>) -> VisitorMut<'a> {
        VisitorMut { path: Vec::new(), change }
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
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().enumerate().for_each(|(i, module)| visitor.field(&i.to_string(), module));
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(i, module)| visitor.field(&i.to_string(), module))
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|module| module.visit(visitor));
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        self.iter_mut().try_for_each(|module| module.visit_mut(visitor))
    }
}

impl Module for Param {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        let name = visitor.path.join(".");
        (visitor.see)(&name, self);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) -> Result<()> {
        let name = visitor.path.join(".");
        (visitor.change)(&name, self)
    }
}

macro_rules! without_params {
    ($($plain:ty)*) => {$(
        /// A setting: no parameters.
        impl Module for $plain {
            fn visit(&self, _: &mut Visitor<'_>) {}

            fn visit_mut(&mut self, _: &mut VisitorMut<'_>) -> Result<()> {
                Ok(())
            }
        }
    )*};
}

without_params!(bool u32 u64 usize i32 i64 f32 f64 String);
