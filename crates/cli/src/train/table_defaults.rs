//! Defaults of training on tables, which depend on the numbers of rows and columns, and of training on short texts.
//!
//! Those of tables were chosen on the tables of `docs/measured/tables.md`, by the score on rows that were not used in training: an average of the
//! parameters and more epochs help on few rows, and strong dropout where there are many columns for each row. A weight decay of 0.3, a cosine
//! schedule, 150 epochs for small tables and a validation set of a tenth were not better. The sizes of the hidden layers, 128 and 64, do not
//! depend on the table: half and twice as many were as good within the noise (`docs/measured/tables.md`).

use panoply::nn::data::reader::{DataFormat, LabeledData};

use super::presets::{HIDDEN_SIZES, ModelArg};

/// Default number of examples in a batch.
const BATCH_SIZE: usize = 64;

/// Smallest default number of windows of a text in a batch.
const TEXT_BATCH_SIZE: usize = 4;

/// Smallest number of batches of all windows of a text, validation included, unless a batch would have fewer than [`TEXT_BATCH_SIZE`]: with
/// two or three steps per epoch, 30 epochs are too few.
const TEXT_BATCHES: usize = 20;

/// Default number of epochs.
const EPOCHS: usize = 30;

/// Default dropout probability.
const DROPOUT: f64 = 0.1;

/// Tables of fewer rows are tiny.
const TINY: usize = 100;

/// Tables of fewer rows are small.
const SMALL: usize = 10_000;

/// Features for each row of a wide table, at least.
const WIDE: f64 = 0.25;

/// Defaults of the options of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    pub batch_size: usize,
    pub epochs: usize,
    pub dropout: f64,
    pub ema_decay: Option<f64>,
}

impl Defaults {
    /// The defaults for data other than tables and short texts, and for tables with networks other than `mlp`.
    pub const GENERAL: Defaults =
        Defaults { batch_size: BATCH_SIZE, epochs: EPOCHS, dropout: DROPOUT, ema_decay: None };

    /// Returns the defaults for these data.
    pub fn of(labeled: &LabeledData, model: &ModelArg) -> Defaults {
        match (&labeled.format, model) {
            (DataFormat::Csv { sequence: None, .. }, ModelArg::Mlp) => {
                Defaults::of_table(labeled.dataset.len(), labeled.dataset.num_features)
            }
            (DataFormat::Text { .. }, _) => Defaults::of_text(labeled.dataset.len()),
            _ => Defaults::GENERAL,
        }
    }

    /// Returns a sentence about the defaults that are used for a table or a short text: those of options that were not `given`.
    pub fn note(
        &self,
        labeled: &LabeledData,
        [batch_size, hidden, epochs, dropout, ema_decay]: [bool; 5],
    ) -> Option<String> {
        if let DataFormat::Text { .. } = labeled.format {
            let (windows, size) = (labeled.dataset.len(), self.batch_size);
            let is_used = size != BATCH_SIZE && !batch_size;
            return is_used.then(|| format!("default for a text of {windows} windows: batch size {size}"));
        }
        let sizes = HIDDEN_SIZES.map(|size| size.to_string()).join(",");
        let parts = [
            (!hidden).then(|| format!("hidden sizes {sizes}")),
            (!epochs).then(|| format!("{} epochs", self.epochs)),
            (!dropout).then(|| format!("dropout {}", self.dropout)),
            self.ema_decay.filter(|_| !ema_decay).map(|decay| format!("EMA decay {decay}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let (rows, features) = (labeled.dataset.len(), labeled.dataset.num_features);
        let is_used = *self != Defaults::GENERAL && !parts.is_empty();
        is_used.then(|| format!("defaults for a table of {rows} rows and {features} features: {}", parts.join(", ")))
    }

    fn of_table(rows: usize, features: usize) -> Defaults {
        let epochs = match rows {
            ..TINY => 10 * EPOCHS,
            TINY..SMALL => 2 * EPOCHS,
            _ => EPOCHS,
        };
        let is_wide = rows >= TINY && features as f64 > WIDE * rows as f64;
        let dropout = if is_wide { 0.5 } else { DROPOUT };
        Defaults { epochs, dropout, ema_decay: Some(0.99), ..Defaults::GENERAL }
    }

    fn of_text(windows: usize) -> Defaults {
        let batch_size = (windows / TEXT_BATCHES).clamp(TEXT_BATCH_SIZE, BATCH_SIZE);
        Defaults { batch_size, ..Defaults::GENERAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_that_are_used_are_listed() {
        let labeled = panoply::nn::data::reader::digits().unwrap();
        let table = Defaults { epochs: 60, ema_decay: Some(0.99), ..Defaults::GENERAL };
        let note = |given| table.note(&labeled, given);
        let all = "defaults for a table of 1797 rows and 64 features: hidden sizes 128,64, 60 epochs, dropout 0.1, EMA decay 0.99";
        assert_eq!(note([false; 5]).as_deref(), Some(all));
        let wanted = "defaults for a table of 1797 rows and 64 features: 60 epochs, EMA decay 0.99";
        assert_eq!(note([false, true, false, true, false]).as_deref(), Some(wanted));
        assert_eq!((note([true; 5]), Defaults::GENERAL.note(&labeled, [false; 5])), (None, None));
    }

    #[test]
    fn defaults_depend_on_rows_and_columns() {
        let of = |rows, features| {
            let Defaults { batch_size, epochs, dropout, ema_decay } = Defaults::of_table(rows, features);
            assert_eq!((batch_size, ema_decay), (64, Some(0.99)));
            (epochs, dropout)
        };
        assert_eq!((of(16, 6), of(150, 4), of(9_999, 10)), ((300, 0.1), (60, 0.1), (60, 0.1)));
        assert_eq!((of(1_000_000, 10), of(2000, 2000), of(400, 100)), ((30, 0.1), (60, 0.5), (60, 0.1)));
    }

    #[test]
    fn short_texts_have_smaller_batches() {
        let of = |windows| Defaults::of_text(windows).batch_size;
        assert_eq!([2, 79, 80, 234, 1279, 1280, 1_000_000].map(of), [4, 4, 4, 11, 63, 64, 64]);
        assert_eq!(Defaults::of_text(1280), Defaults::GENERAL);
    }
}
