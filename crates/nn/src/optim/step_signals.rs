//! Signals of a step: the loss, and whether everything it would commit is finite.

use panoply_tensor::{DType, Result, Tensor};

use crate::readback::WaitMode;

/// Names of the tensors that a step checks for finite values, in the order of [`StepSignals::grad_finite`].
pub(super) struct Checked {
    /// Trained parameters, whose gradients are checked.
    pub params: Vec<String>,
    /// Float buffers that the pass updates, such as running statistics.
    pub states: Vec<String>,
}

/// Scalars that are computed with a step.
pub(super) struct StepSignals {
    /// `[2]`: the loss, and a number that is finite iff all checked tensors are. One transfer reads both.
    pub report: Tensor,
    /// True iff both are finite.
    pub step_ok: Tensor,
    /// One scalar for each checked tensor: finite iff the tensor is.
    pub grad_finite: Vec<Tensor>,
}

impl StepSignals {
    /// Computes the signals of a loss and of the tensors that must be finite.
    pub fn of(loss: &Tensor, finite_checks: &[Tensor]) -> Result<StepSignals> {
        let inputs: Vec<&Tensor> = finite_checks.iter().chain([loss]).collect();
        let signals = Tensor::call_dyn("report", &inputs, (), |inputs, ()| {
            let [finite_checks @ .., loss] = inputs else { unreachable!("the last input is the loss") };
            let loss = loss.cast(DType::F32).sum(..);
            // Zero, or NaN if an element is not finite.
            let signal = |tensor: &Tensor| (tensor * 0.0).sum(..).cast(DType::F32);
            let mut signals: Vec<Tensor> = finite_checks.iter().map(signal).collect();
            let finite = signals.iter().cloned().reduce(|a, b| a + b).unwrap_or_else(|| Tensor::scalar(0f32));
            let step_ok = (&loss * 0.0 + &finite).is_finite();
            signals.extend([Tensor::stack([loss, finite], 0), step_ok]);
            signals
        });
        let mut grad_finite = signals?;
        let [step_ok, report] = [grad_finite.pop(), grad_finite.pop()]
            .map(|signals| signals.expect("the report and the flag were computed"));
        Ok(StepSignals { report, step_ok, grad_finite })
    }
}

impl Checked {
    /// Collects the names of these parameters and buffers.
    pub fn of(trained: &[(String, Tensor)], states: &[(String, Tensor)]) -> Checked {
        let names = |named: &[(String, Tensor)]| named.iter().map(|(name, _)| name.clone()).collect();
        Checked { params: names(trained), states: names(states) }
    }

    /// Describes the first checked tensor that is not finite.
    pub async fn not_finite(&self, wait_mode: WaitMode, grad_finite: &[Tensor]) -> Result<String> {
        for (at, finite) in grad_finite.iter().enumerate() {
            if wait_mode.number(finite).await?.is_finite() {
                continue;
            }
            return Ok(match at.checked_sub(self.params.len()) {
                Some(state) => format!("the buffer {} would hold a value that is not finite", self.states[state]),
                None => format!("a gradient is not finite, first that of {}", self.params[at]),
            });
        }
        Ok("the gradient norm is not finite, although each gradient is".to_string())
    }
}
