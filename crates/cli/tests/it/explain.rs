//! `panoply explain`: the stages of kernels and expressions, and errors.

use std::process::Command;

use crate::support::temp_dir::TempDir;
use serde_json::Value;

fn titles(document: &Value) -> Vec<String> {
    document["stages"].as_array().unwrap().iter().map(|stage| stage["title"].as_str().unwrap().to_string()).collect()
}

#[test]
fn program_name_selects_all_its_kernels() {
    let dir = TempDir::new("explain");
    let rust = dir.json(&["explain", "prefix_scan", "--stage", "rust"]);
    assert!(titles(&rust).len() > 1, "{rust}");
    for stage in rust["stages"].as_array().unwrap() {
        let name = stage["title"].as_str().unwrap().trim_end_matches(": Rust");
        assert!(stage["text"].as_str().unwrap().contains(&format!("fn {name}")), "{stage}");
    }
}

#[test]
fn missing_stages_and_unknown_names_are_reported() {
    let dir = TempDir::new("explain-stage");
    let refusal = dir.refused(&["explain", "saxpy", "--stage", "graph"]);
    assert!(refusal.contains("saxpy has no stage graph; it has rust, ir, passes, optimized, source"), "{refusal}");
    let refusal = dir.refused(&["explain", "relu", "--stage", "rust"]);
    assert!(refusal.contains("relu has no stage rust; it has graph, schedule, plan"), "{refusal}");
    let refusal = dir.refused(&["explain", "prefixscan"]);
    assert!(refusal.contains("unknown name prefixscan; did you mean prefix_scan, "), "{refusal}");
}

fn text(document: &Value, stage: &str) -> String {
    let mut stages = document["stages"].as_array().unwrap().iter();
    stages.find(|found| found["stage"] == stage).unwrap()["text"].as_str().unwrap().to_string()
}

#[test]
fn python_and_rust_notation_are_equivalent() {
    let dir = TempDir::new("explain-expression");
    let of = |text: &str| dir.json(&["explain", text, "--shape", "x=64x784,w=784x128,b=128"]);
    let (python, rust) = (of("softmax(x @ w + b)"), of("(x.matmul(&w) + &b).softmax(-1)"));
    assert_eq!(python["stages"], rust["stages"]);
    // The built-in example builds the same graph with methods of the library.
    let (example, graph) = (dir.json(&["explain", "dense"]), text(&python, "graph"));
    let (names, steps) = graph.split_at(graph.find("%0").unwrap());
    assert_eq!(names, "leaf 0 is x, f32[64, 784]\nleaf 1 is w, f32[784, 128]\nleaf 2 is b, f32[128]\n");
    assert_eq!(steps, text(&example, "graph"));
    assert_eq!(text(&python, "source"), text(&example, "source"));

    let graph = |text_: &str| text(&dir.json(&["explain", text_, "--stage", "graph"]), "graph");
    assert_eq!(graph("2 * -x + 1 / y - 1e-3"), graph("((2.0) * (-(x))) + (1 / y) - 0.001"));
    assert_ne!(graph("x - (y - x)"), graph("x - y - x"));
    assert_eq!(graph("sum(x.exp(), 0) + mean(y, ..)"), graph("x.exp().sum(-2) + y.mean()"));
    assert!(graph("gradient(sum(tanh(x @ w)), w)").contains("matmul"));
}

/// Expressions and equivalent ones in another notation.
const SAME: &[(&str, &str)] = &[
    ("sum(x, axis=1)", "x.sum(1)"),
    ("softmax(axis=-2, x=x)", "x.softmax(0)"),
    ("sum(x, axis=[0, 1])", "x.sum((0, 1))"),
    ("sum(x, axis=..)", "x.sum()"),
    ("x.T @ y.t()", "matmul(transpose(x), y.transpose(a=0, b=1))"),
    ("x.reshape(8, 8, -1)", "reshape(x, [8, 8, 64])"),
    ("x.permute(1, 0)", "x.T"),
    ("x[1:3, ::2]", "x[1..3, ..:2]"),
    ("x[-3:]", "x[61:64, :]"),
    ("x[5]", "x.narrow(0, 5, 1).squeeze(0)"),
    ("where(x > 0, x, 0)", "x.where_self(x > 0, 0)"),
    ("x > y", "y < x"),
    ("x >= 2", "ge(x, 2)"),
    ("x == y", "eq(x, y)"),
    ("x != y", "x.ne(y)"),
    ("clamp(x, -1, max=2 ** 3)", "x.clamp(min=-1, max=8)"),
    ("2 * -x ** 2", "2 * -(x.square())"),
    ("x ** y ** 2", "x.pow(y.pow(2))"),
    ("x % 3", "(x) % (3)"),
    ("concat(x, y)", "concat([x, y], axis=0)"),
    ("concat((x, y), 1)", "concat([x, y], axis=-1)"),
    ("einsum('ij,jk->ik', x, w)", "einsum(\"ij,jk->ik\", operands=[x, w])"),
    ("cast(x, f16) + 1", "x.cast(\"f16\") + 1"),
    ("max_pool2d(x.reshape(1, 1, 64, 64), 2)", "max_pool2d(x.reshape(1, 1, 64, 64), [2, 2], stride=none)"),
    ("max_pool2d(x.reshape(1, 1, 64, 64), 2)", "max_pool2d(x.reshape(1, 1, 64, 64), [2, 2], stride=2)"),
    ("maximum(x.cast(i32), 2)", "x.cast(i32).maximum(x.cast(i32).scalar_like(2))"),
    (
        "scaled_dot_product_attention(q.reshape(1, 64, 64), k.reshape(1, 64, 64), v.reshape(1, 64, 64), attn_mask=None, scale=none)",
        "scaled_dot_product_attention(q.reshape(1, 64, 64), k.reshape(1, 64, 64), v.reshape(1, 64, 64))",
    ),
    (
        "scaled_dot_product_attention(q.reshape(1, 64, 64), k.reshape(1, 64, 64), v.reshape(1, 64, 64))",
        "q.reshape(1, 64, 64).scaled_dot_product_attention(k.reshape(1, 64, 64), v.reshape(1, 64, 64), is_causal=false)",
    ),
];

#[test]
fn keyword_arguments_and_operators_are_equivalent_to_calls() {
    let dir = TempDir::new("explain-names");
    let graph = |text_: &str| text(&dir.json(&["explain", text_, "--stage", "graph"]), "graph");
    for (text, same) in SAME {
        assert_eq!(graph(text), graph(same), "{text} is not {same}");
    }
    // Different expressions give different graphs.
    for (text, other) in
        [("x[1:3]", "x[1:4]"), ("x > y", "x >= y"), ("sum(x, axis=0)", "sum(x, axis=1)"), ("x ** 3", "x ** 4")]
    {
        assert_ne!(graph(text), graph(other), "{text} is {other}");
    }
    let convolution = dir.json(&[
        "explain",
        "conv2d(x, w, stride=2, padding=[1, 1]).relu()",
        "--shape",
        "x=2x3x8x8,w=4x3x3x3",
        "--stage",
        "graph",
    ]);
    assert!(text(&convolution, "graph").contains("f32[2, 4, 4, 4]"), "{convolution}");
    // All results of an operation with several results, or one of them.
    let both = dir.json(&["explain", "topk(x, 3)", "--shape", "x=5x7", "--stage", "graph"]);
    assert!(text(&both, "graph").contains("f32[5, 3]") && text(&both, "graph").contains("i32[5, 3]"), "{both}");
    assert_ne!(graph("topk(x, 3)[0]"), graph("topk(x, 3)[1]"));
}

/// Operations with a separate row, and the expected type and shape of the result.
#[rustfmt::skip]
const SHAPES: &[(&str, &str)] = &[
    // Element types and shapes computed by hand; tensors are f32[64, 64].
    ("cast(x, bool)", "bool[64, 64]"), ("bitcast(x, i32)", "i32[64, 64]"), ("concat(x, y, axis=1)", "f32[64, 128]"),
    ("stack([x, y, z], axis=1)", "f32[64, 3, 64]"), ("diagonal(x, 3)", "f32[61]"), ("broadcast_to(x[0], 5, 64)", "f32[5, 64]"),
    ("flatten(x)", "f32[4096]"), ("flatten(x.reshape(4, 16, 64), start_dim=1)", "f32[4, 1024]"), ("flatten(x.reshape(4, 16, 64), 0, end_dim=1)", "f32[64, 64]"),
    ("chunk(x, 3)[2]", "f32[20, 64]"), ("unbind(x, 0)[63]", "f32[64]"), ("squeeze(x.reshape(1, 64, 64, 1))", "f32[64, 64]"), ("flip(x, 0)", "f32[64, 64]"),
    ("sum(x, axis=0, keepdim=true)", "f32[1, 64]"), ("argmax(x)", "i32[]"), ("max_with_indices(x, 1)[1]", "i32[64]"), ("logsumexp(x)", "f32[]"), ("meshgrid(x[0], y[0, :5])[1]", "f32[64, 5]"),
    ("movedim(x.reshape(2, 32, 64), 0, 2)", "f32[32, 64, 2]"), ("narrow(x, 1, start=60, len=4)", "f32[64, 4]"),
    ("pad(x, [[1, 2], [0, 3]])", "f32[67, 67]"), ("permute(x.reshape(2, 32, 64), 2, 0, 1)", "f32[64, 2, 32]"),
    ("repeat_interleave(x, 3)", "f32[64, 192]"), ("roll(x, 5, axis=0)", "f32[64, 64]"), ("split(x, [10, 54])[1]", "f32[54, 64]"),
    ("tile(x, 2, 3)", "f32[128, 192]"), ("transpose(x.reshape(2, 32, 64), 0, 2)", "f32[64, 32, 2]"), ("tril(x, -1)", "f32[64, 64]"),
    ("triu(x, diagonal=2)", "f32[64, 64]"), ("unflatten(x, 0, [8, 8])", "f32[8, 8, 64]"), ("eye(7)@x[:7]", "f32[7, 64]"),
    ("full([2, 3], 4) + x[:2, :3]", "f32[2, 3]"), ("arange(9)", "i32[9]"), ("linspace(0, 1, 11)", "f32[11]"), ("arange_step(1, 9, 2)", "f32[4]"),
    ("ones([2, 3], f16)", "f16[2, 3]"), ("zeros([4])", "f32[4]"), ("complex(x, y)", "f32[64, 64, 2]"),
    ("leaky_relu(x, negative_slope=0.2)", "f32[64, 64]"), ("lerp(x, y, 0.5)", "f32[64, 64]"), ("masked_fill(x, x > 0, 1)", "f32[64, 64]"),
    ("rsub(x, 1)", "f32[64, 64]"), ("full_like(x, 2)", "f32[64, 64]"), ("clamp_min(x, 0)", "f32[64, 64]"), ("clamp_max(x, y)", "f32[64, 64]"),
    ("pow(x, 3)", "f32[64, 64]"), ("nan_to_num(x, posinf=9)", "f32[64, 64]"), ("floor_divide(x, 2)", "f32[64, 64]"), ("is_inf(x)", "bool[64, 64]"), ("scalar_like(cast(x, u8), 3)", "u8[]"), ("batch_norm(x.reshape(4, 8, 128), y[0, :8], z[0, :8])", "f32[4, 8, 128]"),
    ("group_norm(x.reshape(4, 8, 128), 2)", "f32[4, 8, 128]"), ("layer_norm(x, epsilon=1e-3)", "f32[64, 64]"), ("quantile(x, 0.3, axis=0)", "f32[64]"),
    ("rms_norm(x)", "f32[64, 64]"), ("std(x, axis=0)", "f32[64]"), ("var(x, correction=0)", "f32[]"), ("argsort(x, descending=true)", "i32[64, 64]"),
    ("bincount(arange(5), 8)", "i32[8]"), ("index(x, arange(5))", "f32[5, 64]"), ("index_put(x, arange(5), y[:5], add=true)", "f32[64, 64]"),
    ("index_select(x, 1, arange(5))", "f32[64, 5]"), ("one_hot(arange(5), 8)", "f32[5, 8]"), ("scatter(x, 0, argsort(y), z)", "f32[64, 64]"),
    ("scatter_add(x, 1, argsort(y), z)", "f32[64, 64]"), ("gather(x, 1, argsort(y))", "f32[64, 64]"),
    ("index_add(x, 0, arange(5), y[:5])", "f32[64, 64]"), ("searchsorted(sort(x[0]), y[0])", "i32[64]"), ("sort(x, axis=0)", "f32[64, 64]"),
    ("take_along_dim(x, argsort(x))", "f32[64, 64]"), ("slice_scatter(x, y[:2], 0, arange(1)[0])", "f32[64, 64]"),
    ("adaptive_avg_pool2d(x.reshape(1, 4, 32, 32), 3)", "f32[1, 4, 3, 3]"), ("adaptive_max_pool2d(x.reshape(1, 4, 32, 32), [2, 5])", "f32[1, 4, 2, 5]"),
    ("avg_pool2d(x.reshape(1, 4, 32, 32), 3, stride=1, padding=1)", "f32[1, 4, 32, 32]"), ("cdist(x, y[:5])", "f32[64, 5]"),
    ("conv1d(x.reshape(2, 32, 64), w.reshape(128, 32, 1))", "f32[2, 128, 64]"), ("conv1d(x.reshape(2, 32, 64), w.reshape(128, 16, 2), groups=2)", "f32[2, 128, 63]"),
    ("conv3d(x.reshape(1, 2, 8, 16, 16), w[:2].reshape(8, 2, 2, 2, 2))", "f32[1, 8, 7, 15, 15]"),
    ("conv_transpose2d(x.reshape(1, 4, 32, 32), w[0].reshape(4, 4, 2, 2), stride=2)", "f32[1, 4, 64, 64]"),
    ("conv_transpose1d(x.reshape(1, 32, 128), w[:, :6].reshape(32, 6, 2), dilation=3)", "f32[1, 6, 131]"),
    ("max_pool1d(x, 4)", "f32[64, 16]"), ("avg_pool1d(x, 4, dilation=2, stride=1)", "f32[64, 58]"),
    ("cross(x[:3], y[:3], axis=0)", "f32[3, 64]"),
    ("max_pool2d(x.reshape(1, 4, 32, 32), 2)", "f32[1, 4, 16, 16]"), ("interpolate2d(x.reshape(1, 4, 32, 32), [8, 64], \"bilinear\")", "f32[1, 4, 8, 64]"),
    ("interpolate2d(x.reshape(1, 4, 32, 32), 8)", "f32[1, 4, 8, 8]"), ("rope(x.reshape(2, 32, 64), arange(32))", "f32[2, 32, 64]"),
    ("solve_triangular(x, y)", "f32[64, 64]"), ("svd(x[:8])[2]", "f32[8, 64]"), ("pinv(x[:8])", "f32[64, 8]"), ("matrix_power(x, 3)", "f32[64, 64]"), ("unfold2d(x.reshape(1, 4, 32, 32), 3)", "f32[1, 4, 30, 30, 3, 3]"),
    ("fft_with_options(complex(x, y), axis=0, n=32)", "f32[32, 64, 2]"), ("ifft_with_options(complex(x, y), n=32)", "f32[64, 32, 2]"),
    ("rfft(x)", "f32[64, 33, 2]"), ("irfft(rfft(x), 64)", "f32[64, 64]"), ("irfft2(rfft2(x), 64)", "f32[64, 64]"),
    ("irfft_with_options(rfft(x), n=32)", "f32[64, 32]"), ("rfft_with_options(x, n=32)", "f32[64, 17, 2]"), ("cosine_embedding_loss(x, y, x[0])", "f32[]"),
    ("cosine_similarity(x, y)", "f32[64]"), ("cross_entropy_with_options(x, argmax(y, 1), label_smoothing=0.1)", "f32[]"), ("gradient(mean(x @ w), w)", "f32[64, 64]"),
    ("hessian(sum(x[0] ** 2), x)", "f32[64, 64, 64, 64]"), ("huber_loss(x, y, delta=2)", "f32[]"), ("mse_loss(x, y, \"none\")", "f32[64, 64]"),
    ("binary_cross_entropy_with_logits(x, y, pos_weight=z[0])", "f32[]"), ("jacobian(x[0] ** 2, x)", "f32[64, 64, 64]"),
    ("scaled_dot_product_attention(x.reshape(2, 32, 64), y.reshape(2, 32, 64), z.reshape(2, 32, 64), is_causal=True, scale=0.5)", "f32[2, 32, 64]"),
    ("ctc_loss(log_softmax(x.reshape(8, 8, 64)), arange(3).broadcast_to(8, 3), full([8], 8).cast(i32), full([8], 3).cast(i32))", "f32[]"),
];

#[test]
fn operations_have_the_documented_parameters() {
    let dir = TempDir::new("explain-shapes");
    for (expression, shape) in SHAPES {
        let graph = text(&dir.json(&["explain", expression, "--stage", "graph"]), "graph");
        let node = graph.lines().last().unwrap().strip_prefix("give ").unwrap();
        let line = graph.lines().find(|line| line.starts_with(&format!("{node} = "))).unwrap();
        assert!(line.ends_with(&format!("  {shape}")), "{expression}: {line}, not {shape}");
    }
}

/// Operations with options, and a value of each option that differs from the default. `axis` and `keepdim` are tried without a row.
#[rustfmt::skip]
const OPTIONS: &[(&str, &[&str])] = &[
    ("concat(x, y)", &["axis=1"]), ("stack(x, y)", &["axis=1"]), ("flatten(x.reshape(4, 16, 64))", &["start_dim=1", "end_dim=1"]), ("chunk(x, 3)", &["axis=1"]), ("repeat_interleave(x, 3)", &["axis=0"]),
    ("roll(x, 5)", &["axis=0"]), ("split(x, [10, 54])", &["axis=1"]), ("eye(7)", &["dtype=f16"]),
    ("transpose(x.reshape(2, 32, 64))", &["a=0", "b=0"]), ("diagonal(x)", &["offset=1"]), ("tril(x)", &["diagonal=1"]), ("triu(x)", &["diagonal=1"]),
    ("linspace(0, 1, 5)", &["dtype=f64"]), ("arange_step(0, 8)", &["step=2"]), ("ones([2])", &["dtype=i32"]), ("zeros([2])", &["dtype=i32"]), ("leaky_relu(x)", &["negative_slope=0.2"]), ("nan_to_num(x)", &["nan=1", "posinf=2", "neginf=3"]),
    ("batch_norm(x.reshape(4, 8, 128), y[0, :8], z[0, :8])", &["epsilon=0.1"]), ("group_norm(x.reshape(4, 8, 128), 2)", &["epsilon=0.1"]),
    ("layer_norm(x)", &["epsilon=0.1"]), ("rms_norm(x)", &["epsilon=0.1"]), ("quantile(x, 0.3)", &["axis=0", "keepdim=true"]),
    ("std(x)", &["axis=0", "correction=0", "keepdim=true"]), ("var(x)", &["axis=0", "correction=0", "keepdim=true"]), ("argsort(x)", &["axis=0", "descending=true"]),
    ("sort(x)", &["axis=0", "descending=true"]), ("index_put(x, arange(5), y[:5])", &["add=true"]), ("one_hot(arange(5), 8)", &["dtype=i32"]),
    ("scatter(x, 0, argsort(y), z)", &["add=true"]), ("searchsorted(sort(x[0]), y[0])", &["right=true"]),
    ("take_along_dim(x, argsort(x))", &["axis=0"]), ("topk(x, 3)", &["axis=0"]), ("cdist(x, y[:5])", &["p=3"]), ("cross(x[:3, :3], y[:3, :3])", &["axis=0"]),
    ("scaled_dot_product_attention(x.reshape(1, 64, 64), y.reshape(1, 64, 64), z.reshape(1, 64, 64))", &["is_causal=true", "attn_mask=x > 0", "scale=0.5"]),
    ("scaled_dot_product_attention(x[:9].unsqueeze(0), y.unsqueeze(0), z.unsqueeze(0), is_causal=true)", &["past_len=55"]),
    ("avg_pool1d(x, 4)", &["stride=1", "padding=1", "dilation=2"]), ("max_pool1d(x, 4)", &["stride=1", "padding=1", "dilation=2"]),
    ("avg_pool2d(x, 4)", &["stride=1", "padding=1", "dilation=2"]), ("max_pool2d(x, 4)", &["stride=[4, 1]", "padding=[0, 1]", "dilation=[1, 2]"]),
    ("conv1d(x.reshape(2, 32, 64), w.reshape(64, 32, 2))", &["stride=2", "padding=1", "dilation=3"]),
    ("conv1d(x.reshape(2, 32, 64), w.reshape(64, 16, 4))", &["groups=2"]),
    ("conv2d(x.reshape(1, 4, 32, 32), w.reshape(64, 4, 4, 4))", &["stride=2", "padding=[0, 1]", "dilation=[2, 1]"]),
    ("conv2d(x.reshape(1, 4, 32, 32), w.reshape(128, 2, 4, 4))", &["groups=2"]),
    ("conv3d(x.reshape(1, 2, 8, 16, 16), w[:2].reshape(8, 2, 2, 2, 2))", &["stride=2", "padding=1", "dilation=[1, 2, 1]"]),
    ("conv3d(x.reshape(1, 2, 8, 16, 16), w[0].reshape(8, 1, 2, 2, 2))", &["groups=2"]),
    ("conv_transpose1d(x.reshape(2, 32, 64), w.reshape(32, 64, 2), stride=2)", &["padding=1", "output_padding=1", "groups=2", "dilation=3"]),
    ("conv_transpose1d(x.reshape(2, 32, 64), w.reshape(32, 64, 2))", &["stride=2"]),
    ("conv_transpose2d(x.reshape(1, 4, 32, 32), w.reshape(4, 64, 4, 4), stride=2)", &["padding=1", "output_padding=1", "groups=2", "dilation=[1, 2]"]),
    ("conv_transpose2d(x.reshape(1, 4, 32, 32), w.reshape(4, 64, 4, 4))", &["stride=2"]),
    ("interpolate2d(x, 9)", &["mode=\"bilinear\""]), ("interpolate2d(x, 9, \"bilinear\")", &["align_corners=true"]), ("rope(x.reshape(2, 32, 64), arange(32))", &["base=500", "interleaved=true"]),
    ("solve_triangular(x, y)", &["upper=true"]), ("pinv(x)", &["rtol=0.1"]), ("unfold2d(x, 3)", &["stride=2", "padding=1", "dilation=2"]),
    ("fft_with_options(complex(x, y))", &["axis=0", "n=32", "norm=\"forward\""]), ("ifft_with_options(complex(x, y))", &["axis=0", "n=32", "norm=\"ortho\""]),
    ("rfft_with_options(x)", &["axis=0", "n=32", "norm=\"ortho\""]), ("irfft_with_options(complex(x, y))", &["axis=0", "n=32", "norm=\"forward\""]),
    ("irfft(complex(x[:33, :33], y[:33, :33]), 64)", &["axis=0"]), ("cosine_embedding_loss(x, y, x[0])", &["margin=0.5", "reduction=\"none\""]), ("cosine_similarity(x, y)", &["axis=0", "epsilon=0.1"]),
    ("cross_entropy_with_options(x, argmax(y, 1))", &["label_smoothing=0.1", "weight=y[0]", "ignore_index=0", "reduction=\"sum\""]),
    ("ctc_loss(log_softmax(x.reshape(8, 8, 64)), arange(3).broadcast_to(8, 3), full([8], 8).cast(i32), full([8], 3).cast(i32))", &["blank=1", "reduction=\"none\""]),
    ("huber_loss(x, y)", &["delta=2", "reduction=\"sum\""]), ("mse_loss(x, y)", &["reduction=\"none\""]), ("l1_loss(x, y)", &["reduction=\"none\""]),
    ("hinge_loss(x, y)", &["reduction=\"sum\""]), ("kl_div(x, y)", &["reduction=\"none\""]), ("nll_loss(x, argmax(y, 1))", &["reduction=\"none\""]),
    ("binary_cross_entropy(x, y)", &["reduction=\"none\""]), ("binary_cross_entropy_with_logits(x, y)", &["weight=z", "pos_weight=z[0]", "reduction=\"none\""]), ("fft(complex(x, y))", &["axis=0"]), ("ifft(complex(x, y))", &["axis=0"]), ("squeeze(x.reshape(1, 64, 64, 1))", &["axis=0"]), ("unbind(x[:2, :3])", &["axis=1"]),
];

#[test]
fn every_option_changes_the_result() {
    let dir = TempDir::new("explain-options");
    let stderr = dir.refused(&["explain", "no_such(x)", "--verbose"]);
    let (_, operations) = stderr.split_once("one of ").unwrap();
    let stages = |expression: &str| -> Result<Value, String> {
        let arguments = ["explain", expression, "--target", "cuda", "--json"];
        let output = Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).output().unwrap();
        let document = || serde_json::from_slice::<Value>(&output.stdout).unwrap();
        output
            .status
            .success()
            .then(|| document()["stages"].clone())
            .ok_or_else(|| crate::support::temp_dir::text(&output.stderr))
    };
    for operation in operations.split(',').map(str::trim) {
        let stderr = dir.refused(&["explain", &format!("{operation}(no_such=1)")]);
        let (_, signature) = stderr.trim().rsplit_once("it takes (").unwrap();
        let parts = signature.trim_end_matches(')').split(", ").filter_map(|part| part.split_once(" = "));
        let plain = format!("{operation}(x)");
        for option in parts.map(|(option, _)| option) {
            let (begins, sets) = (format!("{operation}("), format!("{option}="));
            let rows = OPTIONS.iter().filter(|(expression, _)| expression.starts_with(&begins));
            let mut cases =
                rows.flat_map(|(expression, settings)| settings.iter().map(|setting| (*expression, *setting)));
            let (expression, setting) = match cases.find(|(_, setting)| setting.starts_with(&sets)) {
                Some(case) => case,
                None if option == "axis" => (plain.as_str(), "axis=0"),
                None if option == "keepdim" => (plain.as_str(), "keepdim=true"),
                None => panic!("{operation}: no row of OPTIONS sets {option}"),
            };
            let with = format!("{}, {setting})", expression.strip_suffix(')').unwrap());
            // The graph does not show constants of a call; the kernels do, unless a library routine replaces them.
            let with = stages(&with).unwrap();
            // Weights for several groups do not fit one group.
            let Ok(without) = stages(expression) else {
                assert_eq!(option, "groups", "{expression} is refused");
                continue;
            };
            assert_ne!(with, without, "{expression} ignores {setting}");
        }
    }
}

/// Library operations without a row, and the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("slice", "it is the index notation"),
    ("numel", "it is a number, not a tensor"),
    ("max_pool_with_options", "max_pool covers it in expressions"),
    ("avg_pool_with_options", "avg_pool covers it in expressions"),
];

/// Returns the public methods of tensors in the library's folder of operations, including those that its macros generate.
fn of_the_library() -> Vec<String> {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tensor/src/ops");
    let mut folders = vec![folder];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let mut block = "";
            for line in source.lines() {
                block = if line.starts_with(' ') || line.is_empty() { block } else { line };
                let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
                let rest = match block {
                    "impl Tensor {" => line.strip_prefix("    pub fn "),
                    "unary! {" | "binary! {" => {
                        line.strip_prefix("    ").filter(|line| !line.starts_with("//") && !line.starts_with("#["))
                    }
                    _ => None,
                };
                names.extend(rest.map(|rest| rest.chars().take_while(|letter| is_name(*letter)).collect::<String>()));
            }
        }
    }
    names
}

#[test]
fn every_library_operation_has_a_row() {
    let dir = TempDir::new("explain-rows");
    let stderr = dir.refused(&["explain", "no_such(x)", "--verbose"]);
    let (_, list) = stderr.split_once("one of ").unwrap();
    let rows: Vec<&str> = list.split(',').map(str::trim).collect();
    // Some names have the number of axes as a suffix, which is a const generic parameter in the library.
    let is_row = |name: &str| rows.iter().any(|row| *row == name || row.strip_suffix("2d") == Some(name));
    let library = of_the_library();
    assert!(library.len() > 190, "{library:?}");
    for name in &library {
        let left_out = LEFT_OUT.iter().any(|(left_out, _)| left_out == name);
        assert!(is_row(name) != left_out, "{name}: a row in OPERATIONS or in LEFT_OUT, and not in both");
    }
    LEFT_OUT.iter().for_each(|(name, _)| assert!(library.iter().any(|known| known == name), "{name} no longer exists"));
    assert!(rows.is_sorted(), "{rows:?}");
}

#[test]
fn expression_errors_name_the_column() {
    let dir = TempDir::new("explain-mistakes");
    let brackets = "(".repeat(1000);
    for (text, part) in [
        ("softmax(x @ )", "column 13 of `softmax(x @ )`: expected a tensor or a number, found `)`"),
        ("x +", "column 4 of `x +`: expected a tensor or a number"),
        ("(x + y", "column 1 of `(x + y`: unclosed bracket"),
        ("relu(x", "column 5 of `relu(x`: unclosed bracket"),
        ("é + softmx(x)", "column 5 of `é + softmx(x)`: unknown operation `softmx`; did you mean softmax, "),
        ("softmax(x, 0.5)", "column 1 of `softmax(x, 0.5)`: softmax: axis must be an integer, not 0.5"),
        ("relu(x, y)", "column 1 of `relu(x, y)`: relu: it takes (x), but 2 values were given"),
        ("matmul(x, [2])", "matmul: y must be a tensor, not [2]"),
        ("x.relu + y", "column 3 of `x.relu + y`: expected a method call after the dot"),
        ("x ^ y", "column 3 of `x ^ y`: unexpected `^`"),
        ("1 + 2", "the expression has no tensor"),
        ("1 @ x", "column 3 of `1 @ x`: invalid operands for `@`"),
        ("1..2 + x", "column 1 of `1..2 + x`: invalid number `1..2`"),
        ("1.2.3 + x", "column 1 of `1.2.3 + x`: invalid number `1.2.3`"),
        ("x.sum(7)", "column 3 of `x.sum(7)`: sum: axis 7 is out of range for [64, 64] with 2 axes"),
        ("gradient(x, x)", "is not a single number"),
        ("x @ w.sum(0).sum(0)", "column 3 of "),
        // Keyword arguments, lists, indexing and strings.
        ("sum(axis=1)", "column 1 of `sum(axis=1)`: sum: x is missing; it takes (x, axis = .., keepdim = false)"),
        ("softmax(x, dim=1)", "softmax: unknown argument dim; it takes (x, axis = -1)"),
        ("softmax(x, 1, axis=1)", "softmax: axis is given twice"),
        ("softmax(axis=1, x)", "column 17 of `softmax(axis=1, x)`: positional argument follows keyword argument"),
        (
            "scaled_dot_product_attention(x, y, z, is_causal=1)",
            "scaled_dot_product_attention: is_causal must be true or false, not 1",
        ),
        (
            "conv2d(x, w, padding=[1, 2, 3])",
            "conv2d: padding must be a number or one per axis, such as [2, 3], not [1, 2, 3]",
        ),
        ("cast(x, f17)", "cast: dtype must be an element type, such as f16, not a tensor"),
        ("x.reshape(3, -1)", "column 3 of `x.reshape(3, -1)`: reshape: "),
        ("x[70]", "column 2 of `x[70]`: "),
        ("x[::0]", "column 5 of `x[::0]`: a step must be at least 1"),
        ("x[::-1]", "a step must be at least 1; use flip to reverse an axis"),
        ("x[]", "empty index"),
        ("x[1", "column 2 of `x[1`: unclosed bracket"),
        ("x[y]", "column 3 of `x[y]`: an index must be an integer or a range, such as 1:3 or ::2"),
        ("qr(x)[2]", "index 2 out of range 0..2"),
        ("einsum(\"ij,jk->ik, x)", "column 8 of `einsum(\"ij,jk->ik, x)`: unterminated string"),
        ("einsum(x, x)", "einsum: equation must be a string in quotes, not a tensor"),
        ("1 < 2", "invalid operands for `<`"),
        // Numbers combined with integer tensors must fit the element type, as in the library's operators.
        ("x.cast(i32) * 0.5", "column 13 of `x.cast(i32) * 0.5`: 0.5 is not a valid i32: cast "),
        ("x.cast(u8) - 300", "column 12 of `x.cast(u8) - 300`: 300 is not a valid u8"),
        ("x.cast(i32) * 1e20", "100000000000000000000 is not a valid i32"),
        ("x.cast(u32) - -1", "-1 is not a valid u32"),
        ("arange(5) / 2.7", "column 11 of `arange(5) / 2.7`: 2.7 is not a valid i32"),
        ("2.5 > x.cast(i32)", "column 5 of `2.5 > x.cast(i32)`: 2.5 is not a valid i32"),
        ("maximum(x.cast(i32), 0.5)", "column 1 of `maximum(x.cast(i32), 0.5)`: 0.5 is not a valid i32"),
        ("where(x > 0, x.cast(i8), 200)", "200 is not a valid i8"),
        // `none` is valid for optional arguments only.
        ("relu(none)", "relu: x must be a tensor, not none"),
        ("softmax(x, axis=None)", "softmax: axis must be an integer, not none"),
        ("none + x", "column 6 of `none + x`: invalid operands for `+`"),
        ("-none", "column 1 of `-none`: cannot negate none"),
        ("none[0]", "column 5 of `none[0]`: none cannot be indexed like this"),
        (
            "fft_with_options(complex(x, y), norm=\"both\")",
            "norm must be \"backward\", \"forward\" or \"ortho\", not \"both\"",
        ),
        ("interpolate2d(x, 9, \"cubic\")", "mode must be \"nearest\" or \"bilinear\", not \"cubic\""),
        ("interpolate2d(x, 9, align_corners=true)", "interpolate2d: align_corners applies to mode=\"bilinear\" only"),
        ("x = y", "column 3 of `x = y`: unexpected `=`"),
        ("()", "empty brackets"),
        (" ", "missing expression; pass an expression such as `relu(x)`, or the name of a kernel"),
        ("", "missing expression"),
        (brackets.as_str(), "more than 64 nested brackets and signs"),
    ] {
        let refusal = dir.refused(&["explain", text]);
        assert!(refusal.contains(part), "{text}: {refusal}");
        assert!(!refusal.contains(".rs:") && !refusal.contains(", is "), "{text}: {refusal}");
    }
    let refusal = dir.refused(&["explain", "x @ w", "--shape", "x=64x3,w=4x5"]);
    assert!(refusal.contains("column 3 of `x @ w`: matmul: inner dimensions 3 and 4 differ"), "{refusal}");
    let refusal = dir.refused(&["explain", "x + y", "--shape", "z=3"]);
    assert!(refusal.contains("--shape: `x + y` has no tensor named z"), "{refusal}");
    for shape in ["x", "x=3y4", "x=-1", "x=2x", "x=x2"] {
        let refusal = dir.refused(&["explain", "x + y", "--shape", shape]);
        assert!(refusal.contains("expected a name and a shape, such as x=64x128"), "{refusal}");
    }
    let refusal = dir.refused(&["explain", "relu", "--shape", "x=3"]);
    assert!(refusal.contains("relu has fixed shapes"), "{refusal}");
}

#[test]
fn empty_leaves_are_named() {
    let dir = TempDir::new("explain-leaves");
    let lines = |shapes: &str| {
        let graph = dir.json(&["explain", "relu(x) + y", "--shape", shapes, "--stage", "graph"]);
        text(&graph, "graph").lines().filter(|line| line.starts_with("leaf")).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(lines("x=2x64,y=64"), ["leaf 0 is x, f32[2, 64]", "leaf 1 is y, f32[64]"]);
    assert_eq!(lines("x=0x64,y=64"), ["leaf 0 is x, f32[0, 64]", "leaf 1 is y, f32[64]"]);
    // An expression that starts with a sign is not parsed as an option.
    let graph = |text_: &str| text(&dir.json(&["explain", text_, "--stage", "graph"]), "graph");
    assert_eq!(graph("-x ** 2"), graph("-(x.square())"));
}

/// Every target, its language, and fragments of the code for it.
const TARGETS: &[(&str, &str, &[&str])] = &[
    ("cpu", "vector program", &["exp"]),
    ("cuda", "PTX", &[".version 7.0", ".target sm_80", ".visible .entry", "ld.global.nc", "st.global"]),
    ("cuda:sm_61", "PTX", &[".version 5.0", ".target sm_61"]),
    ("cuda:sm_90", "PTX", &[".target sm_90"]),
    ("rocm", "HIP C++", &["extern \"C\" __attribute__((global))"]),
    ("rocm:gfx90a", "HIP C++", &["extern \"C\" __attribute__((global))"]),
    ("opencl", "OpenCL C", &["kernel __attribute__((reqd_work_group_size(", "global const float *restrict"]),
    ("oneapi", "SPIR-V", &["OpEntryPoint Kernel", "OpFunctionEnd"]),
    ("vulkan", "WGSL", &["@compute", "var<storage"]),
    ("webgpu", "WGSL", &["@compute", "var<storage"]),
    ("metal", "MSL", &["#include <metal_stdlib>", "kernel void", "[[buffer("]),
    ("dx12", "HLSL", &["[numthreads(", "ByteAddressBuffer"]),
];

fn explained(arguments: &[&str]) -> Value {
    let output =
        Command::new(env!("CARGO_BIN_EXE_panoply")).arg("explain").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", crate::support::temp_dir::text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn expression_is_compiled_for_every_target() {
    let expression = ["softmax(x @ w + b)", "--shape", "x=64x784,w=784x128,b=128"];
    let here = explained(&[&expression[..], &["--device", "cpu"]].concat());
    assert_eq!(here["note"], Value::Null);
    for (target, language, words) in TARGETS {
        let document = explained(&[&expression[..], &["--target", target]].concat());
        // The graph is the same for every target.
        assert_eq!(text(&document, "graph"), text(&here, "graph"), "{target}");
        assert!(text(&document, "graph").contains("f32[64, 128]"), "{document}");
        let stages = ["graph", "schedule", "plan", "ir", "passes", "optimized", "source"];
        assert!(stages.iter().all(|stage| !text(&document, stage).is_empty()), "{target}");
        assert!(document["device"].as_str().unwrap().starts_with(target), "{document}");
        let note = document["note"].as_str().unwrap();
        assert!(note.starts_with("no device was queried"), "{note}");
        // The note names the model, and vendor libraries only for backends that have them.
        let model = target.split_once(':').map_or("", |(_, model)| model);
        let has_products = ["cuda", "rocm"].iter().any(|kind| target.starts_with(kind));
        assert!(
            note.contains(model) && note.contains("its vendor's matrix products") == has_products,
            "{target}: {note}"
        );
        // Every kernel of the plan has its device code.
        let texts = |title: &str| {
            let sections = document["stages"].as_array().unwrap().iter();
            let sections = sections.filter(|section| section["title"].as_str().unwrap().ends_with(title));
            sections.map(|section| section["text"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        let (kernels, texts) = (texts(": kernel IR").len(), texts(&format!(": {language}")));
        assert!(kernels > 0 && texts.len() == kernels, "{target}: {:?}", titles(&document));
        for text in texts {
            words.iter().for_each(|word| assert!(text.contains(word), "{target}: no {word} in {text}"));
        }
    }
    // An operation that the target does not support is an error that names the target.
    let output = Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["explain", "cast(x, f64) + 1", "--target", "metal"])
        .output()
        .unwrap();
    let stderr = crate::support::temp_dir::text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("needs f64, which metal:minimum does not have"), "{stderr}");
    // Built-in kernels pass through the same stages, starting from Rust.
    let builtin = explained(&["saxpy", "--target", "metal"]);
    assert_eq!(titles(&builtin)[0], "saxpy: Rust");
    assert!(titles(&builtin).contains(&"saxpy: MSL".to_string()), "{builtin}");
    // Constants that the launch or the device determines are listed.
    let last = |arguments: &[&str]| {
        let document = explained(&[arguments, &["--stage", "source"]].concat());
        document["stages"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_string()
    };
    for (arguments, group) in [
        (&["saxpy"][..], [256, 1, 1]),
        (&["relu(x)", "--shape", "x=1000"], [256, 1, 1]),
        (&["relu(x)", "--shape", "x=5"], [8, 1, 1]),
    ] {
        let text = last(&[arguments, &["--target", "dx12"]].concat());
        let [x, y, z] = group;
        assert!(text.contains(&format!("[numthreads({x}, {y}, {z})]")), "{arguments:?}: {text}");
        assert!(text.starts_with(&format!("// items0 = {x}: set by the launch\n")), "{arguments:?}: {text}");
    }
    let text = last(&["x @ w", "--target", "metal"]);
    assert!(text.starts_with("// fused_f32 = false: set by a test"), "{text}");
}

#[test]
fn invalid_targets_are_rejected_with_the_valid_ones() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_panoply")).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        crate::support::temp_dir::text(&output.stderr)
    };
    let all = "unknown backend; expected one of cuda, rocm, metal, oneapi, opencl, vulkan, dx12, webgpu, cpu";
    for (target, part) in [
        ("nvidia", all),
        ("", all),
        ("cuda:90", "a cuda model is the compute capability of an NVIDIA GPU from 5.0 to 12.1, such as cuda:sm_90"),
        ("cuda:sm_999", "as cuda:sm_90"),
        ("cuda:sm_", "as cuda:sm_90"),
        ("cuda:sm_30", "as cuda:sm_90"),
        ("cuda:sm_99999999999999", "as cuda:sm_90"),
        ("cuda:sm_+90", "as cuda:sm_90"),
        ("cuda:sm_090", "as cuda:sm_90"),
        ("rocm:gfx", "as rocm:gfx90a"),
        ("rocm:gfx000", "as rocm:gfx90a"),
        ("rocm:gfxabc", "as rocm:gfx90a"),
        ("rocm:gfx90A", "as rocm:gfx90a"),
        ("rocm:mi300", "a rocm model is an architecture, such as rocm:gfx90a"),
        ("metal:m4", "only cuda and rocm have models"),
    ] {
        let stderr = refused(&["explain", "relu(x)", "--target", target]);
        assert!(stderr.contains(&format!("--target {target}")) && stderr.contains(part), "{target}: {stderr}");
    }
    let absent = refused(&["explain", "relu(x)", "--device", "rocm:7"]);
    assert!(absent.contains("--target, as in --target cuda, compiles for a device that is not present"), "{absent}");
    let both = refused(&["explain", "relu(x)", "--target", "cuda", "--device", "cpu"]);
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn checked_device_has_no_device_code() {
    let stages = |device: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_panoply"))
            .args(["explain", "saxpy", "--json", "--device", device])
            .output()
            .unwrap();
        titles(&serde_json::from_slice(&output.stdout).unwrap())
    };
    assert_eq!(stages("cpu:checked"), ["saxpy: Rust", "saxpy: kernel IR", "saxpy: no device code"]);
    assert!(stages("cpu").iter().any(|title| title.contains("vector program")));
}
