//! From tensor graphs to kernels, and from kernels to text.
