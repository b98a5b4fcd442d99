//! Connectionist temporal classification: the loss of sequences with unaligned labels. [Graves et al. 2006]

use panoply_ir::{DType, Error};

use super::loss::Reduction;
use crate::tensor::Tensor;

/// Replaces ln(0), so that differences are not NaN.
const NEVER: f64 = -1e30;

impl Tensor {
    /// Returns -ln of the probability of the labels; infinite where the labels are impossible. Without reduction it is
    /// `[batch]`; the mean divides the loss of each example by the number of its labels, at least 1, as in PyTorch.
    ///
    /// `self` are log-probabilities `[time, batch, classes]`, with `blank` the index of the blank class. `targets`
    /// are labels `[batch, most]`, of which the first `target_lengths` are used. `input_lengths` are the lengths of the
    /// input sequences. Both lengths are `[batch]`; all three are i32.
    #[track_caller]
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &Tensor,
        target_lengths: &Tensor,
        blank: usize,
        reduction: Reduction,
    ) -> Tensor {
        let operands = [self, targets, input_lengths, target_lengths];
        if let Some(mistake) = operands.into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let fits = match (self.0.shape.dims(), targets.0.shape.dims()) {
            ([time, batch, classes], [rows, _]) => {
                let counts = [input_lengths, target_lengths].iter().all(|counts| counts.0.shape.dims() == [*batch]);
                *time > 0 && rows == batch && counts && blank < *classes
            }
            _ => false,
        };
        let whole = [targets, input_lengths, target_lengths].iter().all(|counts| counts.dtype() == DType::I32);
        if !fits || !whole {
            let message = "ctc_loss: needs log-probabilities [time, batch, classes], targets [batch, most], input_lengths and target_lengths [batch] as i32";
            return Tensor::mistake(Error::mistake(message).note(format!("operands {operands:?}, blank {blank}")));
        }
        self.in_f32(|logs| {
            let losses = logs.ctc_of(targets, input_lengths, target_lengths, blank);
            match reduction {
                Reduction::None => losses,
                Reduction::Mean => (&losses / target_lengths.clamp_min(1).cast(losses.dtype())).mean(..),
                Reduction::Sum => losses.sum(..),
            }
        })
    }

    /// Computes [`Tensor::ctc_loss`] of valid operands, in a precision above f16 and bf16.
    #[track_caller]
    fn ctc_of(&self, targets: &Tensor, times: &Tensor, lengths: &Tensor, blank: usize) -> Tensor {
        let (time, batch, most) = (self.0.shape.dims()[0], self.0.shape.dims()[1], targets.0.shape.dims()[1]);
        // A blank before, between and after the labels.
        let states = 2 * most + 1;
        let blanks = |count: usize| targets.literal(blank as f64).expanded(&[batch, count].into());
        let pairs = Tensor::stack([blanks(most), targets.clone()], 2).flatten(1, -1);
        let read = if most == 0 { blanks(1) } else { Tensor::concat([pairs, blanks(1)], 1) };
        if read.is_mistake() {
            return read;
        }
        let emitted =
            self.permute([1, 0, 2]).take_along_dim(&read.unsqueeze(1).expanded(&[batch, time, states].into()), 2);
        let never = |like: &Tensor| like.literal(NEVER);
        // The blank between two different labels can be skipped.
        let two_before = shifted(&read, 2, targets.literal(blank as f64));
        let skips = read.ne(&targets.literal(blank as f64)).bitwise_and(&read.ne(&two_before));
        let begin = Tensor::arange(states).lt(&Tensor::constant(2i32.into()));
        let first = emitted.narrow(1, 0, 1).squeeze(1);
        let mut paths = first.where_self(&begin, &never(&first));
        for at in 1..time {
            let now = emitted.narrow(1, at, 1).squeeze(1);
            let counts = times.gt(&Tensor::scalar(at as i32)).unsqueeze(1);
            paths = Tensor::call("ctc step", [&paths, &now, &skips, &counts], (), |[paths, now, skips, counts], ()| {
                let never = paths.literal(NEVER);
                let one = shifted(paths, 1, never.clone());
                let two = shifted(paths, 2, never.clone()).where_self(skips, &never);
                let next = paths.logaddexp(&one).logaddexp(&two) + now;
                next.where_self(counts, paths)
            });
        }
        let place = Tensor::arange(states);
        let last = (lengths * targets.literal(2.0)).unsqueeze(1);
        let ends = place.eq(&last).bitwise_or(&place.eq(&(&last - targets.literal(1.0))));
        let loss = -paths.where_self(&ends, &never(&paths)).logsumexp(-1);
        let impossible = loss.literal(f64::INFINITY);
        loss.where_self(&loss.lt(&loss.literal(-NEVER / 2.0)), &impossible)
    }
}

/// Shifts columns to the right and fills the first ones with `fill`.
fn shifted(rows: &Tensor, places: usize, fill: Tensor) -> Tensor {
    let [batch, columns] = [rows.0.shape.dims()[0], rows.0.shape.dims()[1]];
    let before = fill.expanded(&[batch, places.min(columns)].into());
    if columns <= places {
        return before;
    }
    Tensor::concat([before, rows.narrow(1, 0, columns - places)], 1)
}
