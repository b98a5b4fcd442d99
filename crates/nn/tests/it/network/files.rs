//! Layers in files: the output shape of each, or the line and field of its mistake.

use panoply_nn::Network;

/// A layer of each kind as written in a file, and messages of mistakes in it.
#[test]
fn layers_in_files_and_their_mistakes() {
    let table: &[(&str, &str, &str)] = &[
        (
            "[2, 5, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [2, 2]\nstride = [2, 2]",
            "[4, 10, 10]",
        ),
        (
            "[2, 5, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [2, 2]\npadding = [4, 0]",
            "6: layer 0 (conv_transpose): padding [4, 0] leaves no output: [5, 5] is upsampled to 6",
        ),
        (
            "[2, 5, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [2, 2]\ngroups = 3",
            "6: layer 0 (conv_transpose): groups 3 does not divide 2 input channels and 4 output channels",
        ),
        // PyTorch and onnxruntime reject an output padding that is not smaller than the stride.
        (
            "[2, 5, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [2, 2]\noutput_padding = [1, 1]",
            "6: layer 0 (conv_transpose): output_padding 1 is not smaller than the stride 1",
        ),
        (
            "[2, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [3]\nstride = [2]\noutput_padding = [5]",
            "7: layer 0 (conv_transpose): output_padding 5 is not smaller than the stride 2",
        ),
        (
            "[2, 3, 3, 3]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [2, 2, 2]\nstride = [3, 2, 1]\noutput_padding = [2, 1, 1]",
            "7: layer 0 (conv_transpose): output_padding 1 is not smaller than the stride 1",
        ),
        (
            "[2, 5]",
            "kind = \"conv_transpose\"\nout_channels = 4\nkernel_size = [3]\nstride = [2]\noutput_padding = [1]",
            "[4, 12]",
        ),
        ("[8, 4]", "kind = \"rnn\"\nhidden_size = 3\nnonlinearity = \"relu\"", "[8, 3]"),
        (
            "[8, 4]",
            "kind = \"rnn\"\nhidden_size = 3\nnonlinearity = \"elu\"",
            "5: layer 0 (rnn): `nonlinearity`: unknown variant",
        ),
        (
            "[8, 4]",
            "kind = \"lstm\"\nhidden_size = 3\nnonlinearity = \"relu\"",
            "5: layer 0 (lstm): nonlinearity: only rnn layers have this option",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_encoder_layer\"\nnum_heads = 2\ndim_feedforward = 6\nactivation = \"relu\"\nepsilon = 1e-6",
            "[8, 4]",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_encoder_layer\"\nnum_heads = 2\ndim_feedforward = 6\nactivation = \"tanh\"",
            "6: layer 0 (transformer_encoder_layer): `activation`: unknown variant `tanh`, expected `relu` or `gelu`",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_decoder\"\nnum_heads = 2\ndim_feedforward = 6\nactivation = \"relu\"\nepsilon = 0.0\nmemory = [{ kind = \"relu\" }]",
            "7: layer 0 (transformer_decoder): epsilon 0 is not a positive number",
        ),
        ("[2, 9]", "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]\ndilation = [4]", "[4, 1]"),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]\ndilation = [5]",
            "5: layer 0 (conv): kernel_size [3] does not fit into the axes [9] of the input",
        ),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]\ndilation = [0]",
            "6: layer 0 (conv): dilation 0 is not in",
        ),
        // The lengths that PyTorch's nn.Conv2d has with `padding="same"`.
        ("[2, 9, 8]", "kind = \"conv\"\nout_channels = 4\nkernel_size = [3, 5]\npadding = \"same\"", "[4, 9, 8]"),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [4]\npadding = \"same\"\ndilation = [2]",
            "[4, 9]",
        ),
        ("[2, 9]", "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]", "[4, 7]"),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [4]\npadding = \"same\"",
            "6: layer 0 (conv): padding \"same\" of kernel_size [4] is not equal on both sides; use odd sizes",
        ),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]\nstride = [2]\npadding = \"same\"",
            "7: layer 0 (conv): padding \"same\" needs stride 1, not [2]",
        ),
        (
            "[2, 9]",
            "kind = \"conv\"\nout_channels = 4\nkernel_size = [3]\npadding = \"full\"",
            "6: layer 0 (conv): `padding`: invalid value: string \"full\", expected a number for each axis, such as [1, 1], or \"same\"",
        ),
        ("[2, 9]", "kind = \"max_pool\"\nkernel_size = [3]\nstride = [2]\npadding = [1]", "[2, 5]"),
        (
            "[2, 9]",
            "kind = \"max_pool\"\nkernel_size = [3]\npadding = [2]",
            "5: layer 0 (max_pool): padding 2 is more than half of the kernel size 3",
        ),
        ("[2, 9]", "kind = \"adaptive_avg_pool\"\noutput_size = [4]", "[2, 4]"),
        (
            "[2, 9]",
            "kind = \"adaptive_max_pool\"\noutput_size = [0]",
            "4: layer 0 (adaptive_max_pool): output_size 0 is not in",
        ),
        ("[2, 9]", "kind = \"global_max_pool\"", "[2]"),
        (
            "[7]",
            "kind = \"global_max_pool\"",
            "2: layer 0 (global_max_pool): expected [channels, lengths], got [7] from the input",
        ),
        (
            "[6, 9]",
            "kind = \"group_norm\"\nnum_groups = 4",
            "4: layer 0 (group_norm): num_groups 4 does not divide 6 channels",
        ),
        ("[6]", "kind = \"rms_norm\"\nepsilon = 0.0", "4: layer 0 (rms_norm): epsilon 0 is not a positive number"),
        (
            "[1, 8, 8]",
            "kind = \"random_shift\"\nmax_shift = 8",
            "4: layer 0 (random_shift): max_shift 8 is not smaller than the axis length 8",
        ),
        (
            "[8]",
            "kind = \"random_shift\"\nmax_shift = 1",
            "2: layer 0 (random_shift): expected [channels, lengths], got [8] from the input",
        ),
        (
            "[8]",
            "kind = \"random_horizontal_flip\"\np = 1.5",
            "4: layer 0 (random_horizontal_flip): p 1.5 is not in [0, 1]",
        ),
        ("[8, 4]", "kind = \"narrow\"\nlength = 5", "[5, 4]"),
        (
            "[8, 4]",
            "kind = \"narrow\"\nlength = 5\nstart = 4",
            "4: layer 0 (narrow): length 5 at start 4 exceeds [8, 4] of the input",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_encoder_layer\"\nnum_heads = 2\ndim_feedforward = 6\nnorm_first = false",
            "[8, 4]",
        ),
        (
            "[8, 4]",
            "kind = \"multi_head_attention\"\nnum_heads = 2\nmemory = [{ kind = \"linear\", out_features = 6 }]",
            "5: layer 0 (multi_head_attention): memory outputs [8, 6], expected [time, 4] as in the queries",
        ),
        (
            "[8, 4]",
            "kind = \"multi_head_attention\"\nnum_heads = 2\nis_causal = true\nmemory = [{ kind = \"relu\" }]",
            "5: layer 0 (multi_head_attention): is_causal applies to self-attention, but this layer has a memory",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_decoder\"\nnum_heads = 2\ndim_feedforward = 6\nmemory = []",
            "6: layer 0 (transformer_decoder): memory: the list is empty",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_decoder\"\nnum_heads = 2\ndim_feedforward = 6\n[[layer.memory]]\nkind = \"narrow\"\nlength = 9",
            "8: layer 0 (transformer_decoder): memory: layer 0 (narrow): length 9 at start 0 exceeds",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_decoder\"\nnum_heads = 3\ndim_feedforward = 6\nmemory = [{ kind = \"relu\" }]",
            "4: layer 0 (transformer_decoder): num_heads 3 does not divide 4 features",
        ),
        (
            "[8, 8]",
            "kind = \"transformer_decoder\"\nnum_heads = 1\ndim_feedforward = 4\nnum_layers = 16777216\nmemory = [{ kind = \"relu\" }]",
            "6: layer 0 (transformer_decoder): num_layers 16777216 is not in 1 ..= 4096",
        ),
        (
            "[8]",
            "kind = \"gaussian_noise\"\nstddev = -1.0",
            "4: layer 0 (gaussian_noise): stddev -1 must be at least 0",
        ),
        ("[8]", "kind = \"leaky_relu\"", "[8]"),
        (
            "[8]",
            "kind = \"embedding\"\nnum_embeddings = 5\nembedding_dim = 0",
            "5: layer 0 (embedding): embedding_dim 0 is not in",
        ),
        ("[8]", "kind = \"embedding\"\nnum_embeddings = 5\nembedding_dim = 3", "[8, 3]"),
        (
            "[8, 4]",
            "kind = \"transformer_encoder_layer\"\nnum_heads = 2\ndim_feedforward = 8\nis_causal = true",
            "[8, 4]",
        ),
        (
            "[8, 4]",
            "kind = \"transformer_encoder_layer\"\nnum_heads = 2\ndim_feedforward = 8\nis_causal = 1",
            "6: layer 0 (transformer_encoder_layer): `is_causal`",
        ),
        ("[8, 4]", "kind = \"multi_head_attention\"\nnum_heads = 2\nnum_kv_heads = 1", "[8, 4]"),
        (
            "[8, 4]",
            "kind = \"multi_head_attention\"\nnum_heads = 3",
            "4: layer 0 (multi_head_attention): num_heads 3 does not divide 4 features",
        ),
        (
            "[8, 4]",
            "kind = \"multi_head_attention\"\nnum_heads = 4\nnum_kv_heads = 3",
            "5: layer 0 (multi_head_attention): num_kv_heads 3 does not divide num_heads 4",
        ),
        ("[8]", "kind = \"hardswish\"", "[8]"),
        ("[8]", "kind = \"residual\"\nlayers = [{ kind = \"linear\", out_features = 8 }, { kind = \"relu6\" }]", "[8]"),
        (
            "[8]",
            "kind = \"residual\"\nlayers = [{ kind = \"linear\", out_features = 5 }]",
            "4: layer 0 (residual): layers output [5], but the input is [8]; the shapes must be equal",
        ),
        (
            "[8]",
            "kind = \"residual\"\nlayers = [{ kind = \"linear\", out_features = 5 }]\nshortcut = [{ kind = \"linear\", out_features = 4 }]",
            "4: layer 0 (residual): layers output [5], but shortcut outputs [4]",
        ),
        (
            "[8]",
            "kind = \"residual\"\nlayers = [{ kind = \"rleu\" }]",
            "4: layer 0 (residual): layers: layer 0: unknown variant `rleu`",
        ),
        ("[8]", "kind = \"residual\"\nlayers = 3", "4: layer 0 (residual): `layers`: invalid type: integer `3`"),
        ("[8]", "kind = \"residual\"", "2: layer 0 (residual): missing field `layers`"),
        (
            "[8]",
            "kind = \"activation_checkpoint\"\nlayers = []",
            "4: layer 0 (activation_checkpoint): layers: the list is empty",
        ),
        (
            "[2, 5, 5]",
            "kind = \"residual\"\n[[layer.layers]]\nkind = \"conv\"\nout_channels = 2\nkernel_size = [3, 3]\npadding = [1, 1]",
            "[2, 5, 5]",
        ),
        (
            "[2, 5, 5]",
            "kind = \"residual\"\n[[layer.layers]]\nkind = \"conv\"\nout_channels = 0\nkernel_size = [3, 3]",
            "6: layer 0 (residual): layers: layer 0 (conv): out_channels 0 is not in",
        ),
        (
            "[2, 5, 5]",
            "kind = \"residual\"\n[[layer.layers]]\nkind = \"conv\"\nkernel_size = [3, 3]\noutptus = 2",
            "7: layer 0 (residual): layers: layer 0 (conv): unknown field `outptus`",
        ),
        (
            "[8]",
            "kind = \"residual\"\n[[layer.layers]]\nkind = \"relu\"\n[[layer.layers]]\nkind = \"activation_checkpoint\"\n\
             [[layer.layers.layers]]\nkind = \"linear\"\nout_features = 0",
            "10: layer 0 (residual): layers: layer 1 (activation_checkpoint): layers: layer 0 (linear): out_features 0",
        ),
        (
            "[8]",
            "kind = \"activation_checkpoint\"\nlayers = [{ kind = \"relu\" }, { kind = \"last_time_step\" }]",
            "4: layer 0 (activation_checkpoint): layers: layer 1 (last_time_step): expected [time, features], got [8] from layer 0 (relu)",
        ),
    ];
    for (input, layer, want) in table {
        let text = format!("input = {input}\n[[layer]]\n{layer}\n");
        let outcome = match Network::parse(&text) {
            Ok(network) => format!("{:?}", network.output_shape().unwrap()),
            Err((line, what)) => format!("{line}: {what}"),
        };
        assert!(outcome.starts_with(want), "{layer}\n{outcome}\n{want}");
    }
}
