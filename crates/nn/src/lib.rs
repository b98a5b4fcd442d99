//! Neural networks, data loading and training.
//!
//! A model is a plain struct of layers. [`module`] visits its parameters by dotted name, [`layer`] runs its forward pass. A
//! [`ForwardContext`] carries the mode (training or evaluation) and the random generator, and collects updated running statistics. An
//! [`optim::Optimizer`] computes the next parameters from a loss and commits all of them or, on error, none. Models are values: a clone is
//! a cheap snapshot.
//!
//! In reading order: [`module`], [`layer`], [`layers`], [`init`], [`optim`], [`network`], [`data`], [`evaluate`](mod@evaluate),
//! [`trainer`], [`process_group`], `trainer_memory`, [`metrics`], [`checkpoint`], `trainer_checkpoint`, [`state_dict`], `onnx_import`, [`onnx`],
//! [`generate`], [`property`](mod@property), [`compiled`], `compiled_onnx`, [`conformance`], [`nearest`].

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod compiled;
mod compiled_onnx;
pub mod conformance;
pub mod data;
pub mod evaluate;
pub mod generate;
pub mod init;
pub mod layer;
pub mod layers;
pub mod metrics;
pub mod model_parallel;
pub mod module;
pub mod nearest;
pub mod network;
pub mod onnx;
mod onnx_import;
pub mod optim;
pub mod process_group;
pub mod property;
mod readback;
mod shard;
mod shard_sum;
mod sharding;
pub mod state_dict;
mod step_total;
pub mod trainer;
mod trainer_checkpoint;
mod trainer_memory;
mod trainer_sharding;

pub use compiled::{CompiledModel, compile};
pub use compiled_onnx::CompiledOnnx;
pub use evaluate::{Evaluation, Metric, evaluate, predict};
pub use layer::{ForwardContext, Layer};
pub use layers::*;
pub use model_parallel::ModelParallel;
pub use module::{Module, Param, ParamVisitor, ParamVisitorMut};
pub use network::{ClassWeights, Extent, LayerSpec, Loss, LossKind, Model, Network, Padding, TargetScale};
pub use optim::{
    Adagrad, Adam, AdamW, AveragedModel, Lion, LrSchedule, LrScheduler, Optimizer, ParamGroup, ReduceLrOnPlateau,
    RmsProp, Sgd,
};
pub use process_group::ProcessGroup;
pub use trainer::{EpochReport, Monitor, TrainConfig, Trainer, train};
