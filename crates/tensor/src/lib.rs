//! Lazy, fused, differentiable tensors.
