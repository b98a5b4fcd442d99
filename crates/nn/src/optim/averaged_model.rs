//! A running average of a model's parameters. [Polyak and Juditsky 1992]

use panoply_tensor::{Result, Tensor, eval_donated};

use crate::module::{Module, Param, check_same, put};

/// A model whose parameters follow another's slowly; often better in use than the one that is trained.
#[derive(Clone, Debug)]
pub struct AveragedModel<M> {
    /// The averaged model.
    pub model: M,
    /// Share of the average that is kept at each update.
    pub decay: f64,
}

impl<M: Module + Clone> AveragedModel<M> {
    /// Starts as the model is.
    pub fn new(model: &M, decay: f64) -> AveragedModel<M> {
        AveragedModel { model: model.clone(), decay }
    }

    /// Moves trained parameters a little towards the model's; states and frozen ones are taken over. On error nothing has
    /// changed.
    pub fn update_parameters(&mut self, model: &M) -> Result<()> {
        let (names, own): (Vec<String>, Vec<Param>) = self.model.named_parameters().into_iter().unzip();
        let mut next = Vec::with_capacity(own.len());
        for (own, (_, their)) in own.iter().zip(&model.named_parameters()) {
            next.push(match their.requires_grad() {
                true => own.tensor() * self.decay + their.tensor() * (1.0 - self.decay),
                false => their.tensor().clone(),
            });
            check_same(own.tensor(), &next[next.len() - 1])?;
        }
        let mut old: Vec<Tensor> = own.iter().map(|own| own.tensor().clone()).collect();
        drop(own);
        // While it is computed the average is nowhere else, so that it may change where it is.
        put(&mut self.model, &names, &mut std::iter::repeat_n(Tensor::scalar(0f32), names.len()))?;
        let next = eval_donated(&mut old, next);
        let (values, done) = match next {
            Ok(values) => (values, Ok(())),
            Err(error) => (old, Err(error)),
        };
        put(&mut self.model, &names, &mut values.into_iter()).and(done)
    }
}
