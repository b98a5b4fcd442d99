//! A running average of a model's parameters. [Polyak and Juditsky 1992]

use panoply_tensor::{Result, Tensor, eval};

use crate::module::{Module, Param, VisitorMut};

/// A model whose parameters follow another's slowly; often better in use than the one that is trained.
#[derive(Clone, Debug)]
pub struct Average<M> {
    /// The averaged model.
    pub model: M,
    /// Share of the average that is kept at each update.
    pub decay: f64,
}

impl<M: Module + Clone> Average<M> {
    /// Starts as the model is.
    pub fn new(model: &M, decay: f64) -> Average<M> {
        Average { model: model.clone(), decay }
    }

    /// Moves trained parameters a little towards the model's; states and frozen ones are taken over. On error nothing has
    /// changed.
    pub fn update(&mut self, model: &M) -> Result<()> {
        let (own, theirs) = (self.model.named_params(), model.named_params());
        let next: Vec<Tensor> = own
            .iter()
            .zip(&theirs)
            .map(|((_, own), (_, their))| match their.is_trained() {
                true => own.tensor() * self.decay + their.tensor() * (1.0 - self.decay),
                false => their.tensor().clone(),
            })
            .collect();
        eval(&next.iter().collect::<Vec<&Tensor>>())?;
        let mut values = next.iter();
        let mut put = |_: &str, param: &mut Param| match values.next() {
            Some(value) => param.set(value),
            None => Ok(()),
        };
        self.model.visit_mut(&mut VisitorMut::new(&mut put))
    }
}
