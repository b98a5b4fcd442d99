//! A model whose consecutive stages are on different devices.
//!
//! An expression runs on one device, so a training step is cut between the stages: activations are copied to the next device without their
//! history, and the gradient with respect to them is copied back and continues the backward pass of the stage before.

use panoply_tensor::{DType, Device, Error, Result, Rng, Tensor, eval};

use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, Param, ParamVisitor, ParamVisitorMut};
use crate::optim::{Optimizer, UpdateRule};

/// A sequence of stages, each with its parameters on a device of its own. The devices can be of different vendors.
#[doc(alias = "pipeline")]
#[derive(Clone, Debug)]
pub struct ModelParallel<M> {
    stages: Vec<Stage<M>>,
}

/// Consecutive layers on a device.
#[derive(Clone, Debug)]
pub struct Stage<M> {
    /// Device of the parameters and of the computation.
    pub device: Device,
    /// The layers.
    pub model: M,
}

impl<M: Module + Layer> ModelParallel<M> {
    /// Creates a model of at least one stage and copies the parameters of each stage to its device.
    ///
    /// # Errors
    /// If there are no stages, or a device is out of memory.
    pub fn new(stages: impl IntoIterator<Item = (Device, M)>) -> Result<ModelParallel<M>> {
        let mut stages: Vec<Stage<M>> = stages.into_iter().map(|(device, model)| Stage { device, model }).collect();
        if stages.is_empty() {
            return Err(Error::mistake("a model needs at least one stage"));
        }
        for Stage { device, model } in &mut stages {
            let mut carry = |_: &str, param: &mut Param| {
                let copy = param.tensor().to(device);
                copy.check()?;
                param.set(&copy)
            };
            model.visit_mut(&mut ParamVisitorMut::new(&mut carry))?;
        }
        Ok(ModelParallel { stages })
    }

    /// Returns the stages.
    pub fn stages(&self) -> &[Stage<M>] {
        &self.stages
    }

    /// Returns the evaluated outputs for a batch, on the device of the last stage.
    ///
    /// # Errors
    /// If the input does not fit the model, or a device fails.
    pub fn predict(&self, input: &Tensor) -> Result<Tensor> {
        self.stages.iter().try_fold(input.clone(), |input, Stage { device, model }| {
            device.scope(|| {
                let output = model.forward(&input.to(device), &mut ForwardContext::eval());
                output.eval().map(|()| output.detach())
            })
        })
    }

    /// Makes a training step and returns the loss before it. `loss` computes the loss of the outputs on the device of the last stage. Each
    /// stage has its own optimizer, with the same settings or others; gradients are clipped for each stage. A step is applied on all devices
    /// or on none, unless a device fails.
    ///
    /// # Errors
    /// If there are not as many optimizers as stages, the input does not fit the model, an optimizer has a gradient scaler, or
    /// the loss, a gradient or a running statistic is not finite.
    pub fn step<R: UpdateRule>(
        &mut self,
        optimizers: &mut [Optimizer<R>],
        input: &Tensor,
        loss: impl FnOnce(&Tensor) -> Tensor,
        rng: &mut Rng,
    ) -> Result<f64> {
        let count = self.stages.len();
        if optimizers.len() != count {
            return Err(Error::mistake(format!("{} optimizers for {count} stages", optimizers.len())));
        }
        if optimizers.iter().any(|optimizer| optimizer.grad_scaler.is_some()) {
            let error = Error::mistake("a gradient scaler of one stage cannot skip the step of the others");
            return Err(error.note("train the stages in f32 or bf16, without `grad_scaler`"));
        }
        let mut generators: Vec<Rng> = (0..count).map(|_| rng.fork()).collect();
        let mut forwards = Vec::with_capacity(count);
        let mut next = input.clone();
        for (Stage { device, model }, rng) in self.stages.iter().zip(&mut generators) {
            let input = next.to(device);
            let (output, pass) = device.scope(|| {
                let mut pass = ForwardContext::train(rng);
                let output = model.forward(&input, &mut pass);
                let roots: Vec<&Tensor> = [&output].into_iter().chain(pass.roots()).collect();
                eval(&roots).map_err(|error| pass.with_path(model, error))?;
                Ok::<_, Error>((output, pass))
            })?;
            next = output.detach();
            forwards.push((input, output, pass));
        }
        let device = &self.stages[count - 1].device;
        let loss = device.scope(|| loss(&forwards[count - 1].1));
        let value: f64 = device.scope(|| loss.cast(DType::F32).sum(..).item())?;

        let mut objective = loss;
        let mut steps = Vec::with_capacity(count);
        while let Some((input, output, pass)) = forwards.pop() {
            let at = forwards.len();
            let Stage { device, model } = &self.stages[at];
            let mut gradients = device.scope(|| {
                let inputs = if at > 0 { &[&input][..] } else { &[] };
                let gradients = optimizers[at].loss_gradients(model, &objective, &pass, inputs)?;
                eval(&gradients.iter().collect::<Vec<&Tensor>>())?;
                Ok::<_, Error>(gradients.iter().map(Tensor::detach).collect::<Vec<Tensor>>())
            })?;
            drop((input, output));
            if let Some((_, output, _)) = forwards.last() {
                let before = &self.stages[at - 1].device;
                let cotangent = gradients.pop().expect("the gradient of the input is the last").to(before);
                // The gradients of this number are the vector-Jacobian product.
                objective = before.scope(|| (output * cotangent).sum(..));
            }
            steps.push((gradients, pass));
        }
        steps.reverse();
        for ((Stage { device, model }, (gradients, pass)), optimizer) in
            self.stages.iter().zip(&steps).zip(&*optimizers)
        {
            if !device.scope(|| optimizer.is_step_finite(model, gradients, pass))? {
                let message = format!(
                    "a gradient or running statistic on {device} is not finite; the parameters from before the step are kept"
                );
                return Err(Error::diverged(message).note("use a smaller learning rate or gradient clipping"));
            }
        }
        for ((Stage { device, model }, (gradients, pass)), optimizer) in
            self.stages.iter_mut().zip(steps).zip(optimizers)
        {
            device.scope(|| {
                let loss = Tensor::from_slice_on(device, &[value as f32], [1]);
                optimizer.step_with_gradients(model, loss, gradients, pass)
            })?;
        }
        Ok(value)
    }
}

/// Parameters have the number of the stage in front of their names: `0.weight`.
impl<M: Module> Module for ModelParallel<M> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.stages.iter().enumerate().for_each(|(at, stage)| visitor.field(&at.to_string(), &stage.model));
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        let mut stages = self.stages.iter_mut().enumerate();
        stages.try_for_each(|(at, stage)| visitor.field(&at.to_string(), &mut stage.model))
    }
}
