//! The regions that a task reads and writes, and how its closure gets their values.

use panoply_tensor::{Result, Tensor};

use crate::data::View;

/// A region that a task reads: [`Data`](crate::Data) or a [`View`]. The closure gets a `&Tensor`.
#[derive(Clone, Debug)]
pub struct In<V>(pub V);

/// A region that a task reads and writes. The closure gets a `&mut Tensor` with the values; what it leaves there is written.
#[derive(Clone, Debug)]
pub struct InOut<V>(pub V);

/// A region that a task overwrites wholly. The closure gets a `&mut Tensor` of zeros; what it leaves there is written.
#[derive(Clone, Debug)]
pub struct Out<V>(pub V);

/// How a task uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads it.
    In,
    /// Reads and writes it.
    InOut,
    /// Writes it.
    Out,
}

/// A region with its use.
#[derive(Clone, Debug)]
pub struct Access {
    /// The region.
    pub view: View,
    /// Its use.
    pub mode: Mode,
}

impl Access {
    /// Whether the task reads the region.
    pub fn reads(&self) -> bool {
        matches!(self.mode, Mode::In | Mode::InOut)
    }

    /// Whether the task writes the region.
    pub fn writes(&self) -> bool {
        matches!(self.mode, Mode::InOut | Mode::Out)
    }
}

/// One argument of a task.
pub trait Argument {
    /// The type that the closure gets.
    type Value<'a>;

    /// The region and its use.
    fn access(self) -> Access;

    /// The value for the closure.
    fn value(tensor: &mut Tensor) -> Self::Value<'_>;
}

macro_rules! argument {
    ($name:ident, $($mutable:tt)?) => {
        impl<V: Into<View>> Argument for $name<V> {
            type Value<'a> = &'a $($mutable)? Tensor;

            fn access(self) -> Access {
                Access { view: self.0.into(), mode: Mode::$name }
            }

            fn value(tensor: &mut Tensor) -> Self::Value<'_> {
                tensor
            }
        }
    };
}

argument!(In,);
argument!(InOut, mut);
argument!(Out, mut);

/// The arguments of a task: one, or a tuple of up to four.
pub trait Arguments {
    /// The type that the closure gets.
    type Values<'a>;

    /// The regions and their uses, in order.
    fn accesses(self) -> Vec<Access>;

    /// The values for the closure; there are as many tensors as regions.
    fn values(tensors: &mut [Tensor]) -> Self::Values<'_>;
}

impl<A: Argument> Arguments for A {
    type Values<'a> = A::Value<'a>;

    fn accesses(self) -> Vec<Access> {
        vec![self.access()]
    }

    fn values(tensors: &mut [Tensor]) -> A::Value<'_> {
        A::value(&mut tensors[0])
    }
}

macro_rules! arguments {
    ($($name:ident)+) => {
        impl<$($name: Argument),+> Arguments for ($($name,)+) {
            type Values<'a> = ($($name::Value<'a>,)+);

            #[allow(non_snake_case)]
            fn accesses(self) -> Vec<Access> {
                let ($($name,)+) = self;
                vec![$($name.access()),+]
            }

            fn values(tensors: &mut [Tensor]) -> Self::Values<'_> {
                let mut tensors = tensors.iter_mut();
                ($($name::value(tensors.next().expect("a tensor for each region")),)+)
            }
        }
    };
}

arguments!(A B);
arguments!(A B C);
arguments!(A B C D);

/// What the closure of a task returns: nothing, or a result.
pub trait Outcome {
    /// The same as a result.
    fn outcome(self) -> Result<()>;
}

impl Outcome for () {
    fn outcome(self) -> Result<()> {
        Ok(())
    }
}

impl Outcome for Result<()> {
    fn outcome(self) -> Result<()> {
        self
    }
}
