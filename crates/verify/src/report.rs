//! Results of a verification.

use panoply_tensor::{Error, Result};

/// Number of elements of an input or output in an error message.
const SHOWN: usize = 8;

/// Progress of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Proven fraction of the set, 0 to 1.
    pub proven: f64,
    /// Number of boxes bounded so far.
    pub boxes: u64,
    /// Time since the start in seconds.
    pub seconds: f64,
}

/// An input that violates the property.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterexample {
    /// Elements of the input.
    pub input: Vec<f32>,
    /// Output computed on the device.
    pub output: Vec<f32>,
}

/// Result of a verification.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The property holds for every input of the set, in the requested arithmetic.
    Proven,
    /// The property does not hold.
    Counterexample(Counterexample),
    /// Neither a proof nor a counterexample was found, for this reason.
    Undecided(String),
}

/// Result and statistics of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Progress at the end.
    pub progress: Progress,
}

impl Report {
    /// Returns an error that names the claim, unless it is proven.
    ///
    /// # Errors
    /// If there is a counterexample, which the notes contain, or the claim is undecided.
    pub fn ensure_proven(&self, claim: &str) -> Result<()> {
        match &self.verdict {
            Verdict::Proven => Ok(()),
            Verdict::Counterexample(found) => {
                Err(Error::mistake(format!("{claim}: does not hold: a counterexample was found"))
                    .note(format!("the input is {}", shown(&found.input)))
                    .note(format!("the output is {}", shown(&found.output))))
            }
            Verdict::Undecided(reason) => {
                let proven = 100.0 * self.progress.proven;
                Err(Error::mistake(format!("{claim}: undecided: {reason}; {proven:.1} % of the set is proven")))
            }
        }
    }
}

/// Returns the first elements of a list as text.
pub fn shown(elements: &[f32]) -> String {
    let first: Vec<String> = elements.iter().take(SHOWN).map(|x| format!("{x:?}")).collect();
    let more = if elements.len() > SHOWN { format!(", … {} elements", elements.len()) } else { String::new() };
    format!("[{}{more}]", first.join(", "))
}
