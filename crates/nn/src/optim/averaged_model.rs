//! Exponential moving average (EMA) of a model's parameters. [Polyak and Juditsky 1992]

use panoply_tensor::{Result, Tensor, eval_donated};

use crate::module::{Module, Param, check_same, put};

/// A model whose parameters are a moving average of another model's; it often generalizes better than the trained model.
#[derive(Clone, Debug)]
pub struct AveragedModel<M> {
    /// The averaged model.
    pub model: M,
    /// Weight of the old average in each update.
    pub decay: f64,
}

impl<M: Module + Clone> AveragedModel<M> {
    /// Creates an average that starts at the model's parameters.
    pub fn new(model: &M, decay: f64) -> AveragedModel<M> {
        AveragedModel { model: model.clone(), decay }
    }

    /// Updates the average with the model's trained parameters; buffers and frozen parameters are copied. On error nothing has changed.
    ///
    /// # Errors
    /// If the parameters of the two models differ in shape or type, or the evaluation fails.
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
        // The average is removed from the model meanwhile, so that its memory can be donated and updated in place.
        put(&mut self.model, &names, &mut std::iter::repeat_n(Tensor::scalar(0f32), names.len()))?;
        let next = eval_donated(&mut old, next);
        let (values, done) = match next {
            Ok(values) => (values, Ok(())),
            Err(error) => (old, Err(error)),
        };
        put(&mut self.model, &names, &mut values.into_iter()).and(done)
    }
}
