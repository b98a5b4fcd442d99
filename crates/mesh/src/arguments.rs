//! Regions that a task reads and writes, and the tensors that its closure receives.

use panoply_tensor::{Result, Tensor};

use crate::data::{Data, Future, View};

/// A region that a task reads: `Data` or a [`View`]. The closure receives a `&Tensor`.
#[derive(Clone, Debug)]
pub struct In<V>(pub V);

/// A region that a task reads and writes. The closure receives a `&mut Tensor` with the values; its final value is written back.
#[derive(Clone, Debug)]
pub struct InOut<V>(pub V);

/// A region that a task overwrites completely. The closure receives a `&mut Tensor` of zeros; its final value is written.
#[derive(Clone, Debug)]
pub struct Out<V>(pub V);

/// Type of access to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read.
    In,
    /// Read and write.
    InOut,
    /// Write.
    Out,
}

/// A region and the type of access.
#[derive(Clone, Debug)]
pub struct Access {
    /// The region.
    pub view: View,
    /// Type of access.
    pub mode: Mode,
}

impl Access {
    /// Returns true if the task reads the region.
    pub fn reads(&self) -> bool {
        matches!(self.mode, Mode::In | Mode::InOut)
    }

    /// Returns true if the task writes the region.
    pub fn writes(&self) -> bool {
        matches!(self.mode, Mode::InOut | Mode::Out)
    }
}

/// An argument of a task.
pub trait Argument {
    /// Type that the closure receives.
    type Value<'a>;

    /// Returns the region and its type of access.
    fn access(self) -> Access;

    /// Returns the value for the closure.
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

/// The arguments of a task: none (`()`), one, a tuple of up to eight, or a vector.
pub trait Arguments {
    /// Type that the closure receives.
    type Values<'a>;

    /// Returns the regions with their types of access, in order.
    fn accesses(self) -> Vec<Access>;

    /// Returns the values for the closure; the number of tensors equals that of regions.
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

/// Calls a macro with the names of the elements of each tuple of two to eight arguments.
macro_rules! for_tuples {
    ($macro:ident) => {
        $macro!(A B);
        $macro!(A B C);
        $macro!(A B C D);
        $macro!(A B C D E);
        $macro!(A B C D E F);
        $macro!(A B C D E F G);
        $macro!(A B C D E F G H);
    };
}
pub(crate) use for_tuples;

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
                ($($name::value(tensors.next().expect("there is a tensor for each region")),)+)
            }
        }
    };
}

/// Any number of arguments of one type.
impl<A: Argument> Arguments for Vec<A> {
    type Values<'a> = Vec<A::Value<'a>>;

    fn accesses(self) -> Vec<Access> {
        self.into_iter().map(Argument::access).collect()
    }

    fn values(tensors: &mut [Tensor]) -> Self::Values<'_> {
        tensors.iter_mut().map(A::value).collect()
    }
}

impl Arguments for () {
    type Values<'a> = ();

    fn accesses(self) -> Vec<Access> {
        Vec::new()
    }

    fn values(_: &mut [Tensor]) -> Self::Values<'_> {}
}

for_tuples!(arguments);

/// Return type of a task's closure: `()`, a tensor, or a `Result` of one of them.
pub trait Outcome {
    /// Return type of [`Mesh::spawn`](crate::Mesh::spawn): `()`, or a [`Future`] for a tensor.
    type Handle;

    /// Returns the data that receives the result, if there is one, and the handle.
    fn handle(owner: Option<u64>) -> (Option<Data>, Self::Handle);

    /// Returns the result.
    fn outcome(self) -> Result<Option<Tensor>>;
}

impl Outcome for () {
    type Handle = ();

    fn handle(_: Option<u64>) -> (Option<Data>, ()) {
        (None, ())
    }

    fn outcome(self) -> Result<Option<Tensor>> {
        Ok(None)
    }
}

impl Outcome for Tensor {
    type Handle = Future;

    fn handle(owner: Option<u64>) -> (Option<Data>, Future) {
        let data = Data::unknown(owner);
        (Some(data.clone()), Future(data))
    }

    fn outcome(self) -> Result<Option<Tensor>> {
        self.check()?;
        Ok(Some(self))
    }
}

impl<O: Outcome> Outcome for Result<O> {
    type Handle = O::Handle;

    fn handle(owner: Option<u64>) -> (Option<Data>, O::Handle) {
        O::handle(owner)
    }

    fn outcome(self) -> Result<Option<Tensor>> {
        self?.outcome()
    }
}
