// Apple's vector types, of which kernels of ours use those of `metal_stdlib`.
