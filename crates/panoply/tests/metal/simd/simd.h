// Apple's vector types; our kernels use only those of `metal_stdlib`.
