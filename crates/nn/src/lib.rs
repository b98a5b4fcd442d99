//! Networks, data and training.
//!
//! A model is a plain struct of layers; [`module`] says how its parameters are visited by dotted name, [`layer`] how it is
//! run. A [`Pass`] carries what a forward pass needs besides its input (training or not, random numbers) and collects what
//! it leaves behind (running statistics). An [`optimiser::Optimiser`] turns a loss into the next parameters and commits
//! them, or changes nothing. Models are values: cloning one is a free snapshot.
//!
//! In reading order: [`module`], [`layer`], [`layers`], [`init`], [`optimiser`], [`network`], [`data`], [`evaluate`](mod@evaluate), [`fit`], `memory`, [`metrics`],
//! [`checkpoint`], `resume`, [`state_dict`], [`onnx`], [`generate`], [`ensure`](mod@ensure), [`compiled`], [`conformance`].

#![forbid(unsafe_code)]

mod arrival;
pub mod checkpoint;
pub mod compiled;
pub mod conformance;
pub mod data;
pub mod ensure;
pub mod evaluate;
pub mod fit;
pub mod generate;
pub mod init;
pub mod layer;
pub mod layers;
mod memory;
pub mod metrics;
pub mod module;
pub mod network;
pub mod onnx;
pub mod optimiser;
mod resume;
pub mod state_dict;

pub use compiled::{Compiled, compile};
pub use evaluate::{Evaluation, Measure, evaluate, predict};
pub use fit::{EpochReport, Run, Training, train};
pub use layer::{Layer, Pass};
pub use layers::*;
pub use module::{Module, Param, Visitor, VisitorMut};
pub use network::{ClassWeights, Extent, LayerSpec, Loss, LossKind, Model, Network, Scale};
pub use optimiser::{Adagrad, Adam, AdamW, Average, Lion, Optimiser, Plateau, RmsProp, Schedule, Sgd};
