//! A step in two parts: gradients, and the update with gradients that the caller has summed or moved.

use panoply_tensor::{Result, Tensor};

use super::{Optimizer, UpdateRule, ensure_evaluated, trainable_params};
use crate::layer::ForwardContext;
use crate::module::Module;
use crate::readback::{WaitMode, finished};

impl<R: UpdateRule> Optimizer<R> {
    /// Returns the gradients of a loss with respect to the trained parameters, without the accumulated ones, and then to `inputs`.
    ///
    /// # Errors
    /// As for [`Optimizer::step`].
    pub(crate) fn loss_gradients(
        &self,
        model: &dyn Module,
        loss: &Tensor,
        pass: &ForwardContext<'_>,
        inputs: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        self.check_settings()?;
        let mut wanted = trainable_params(model, pass)?;
        loss.check().map_err(|error| pass.with_path(model, error))?;
        ensure_evaluated(&wanted, loss)?;
        wanted.extend(inputs.iter().map(|input| (String::new(), (*input).clone())));
        self.gradients_of_loss(&wanted, loss)
    }

    /// Returns true if everything is finite that [`Optimizer::step_with_gradients`] requires to be: gradients, their norm if they are clipped,
    /// and float buffers.
    ///
    /// # Errors
    /// If they cannot be computed.
    pub(crate) fn is_step_finite(
        &self,
        model: &dyn Module,
        gradients: &[Tensor],
        pass: &ForwardContext<'_>,
    ) -> Result<bool> {
        let mut checked = self.clipped(gradients.to_vec()).finite_checks;
        checked.extend(pass.float_states(model).into_iter().map(|(_, next)| next));
        checked.iter().try_fold(true, |all, tensor| Ok(all && tensor.is_finite().all(..).item::<bool>()?))
    }

    /// Makes a step with gradients in the order of [`Optimizer::loss_gradients`], plus the accumulated ones.
    ///
    /// # Errors
    /// As for [`Optimizer::step`].
    pub(crate) fn step_with_gradients(
        &mut self,
        model: &mut dyn Module,
        loss: Tensor,
        gradients: Vec<Tensor>,
        pass: ForwardContext<'_>,
    ) -> Result<f64> {
        self.check_settings()?;
        let trained = trainable_params(model, &pass)?;
        let gradients = self.add_accumulated(&trained, gradients);
        finished(self.apply(WaitMode::Blocking, model, trained, (loss, gradients), pass))
    }
}
