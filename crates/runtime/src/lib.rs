//! Finding devices, and running kernels on their buffers.
