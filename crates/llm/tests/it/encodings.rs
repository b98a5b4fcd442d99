//! Comparison of every encoding with the Python package `gguf`, bit for bit.

use panoply_ir::Encoding;
use panoply_llm::Packed;
use panoply_tensor::{Device, Tensor};

use crate::fixtures::{arrays, devices, f32s};

/// An encoding with the shape and bytes of its blocks, and the decoded values.
type Case = (Encoding, Vec<usize>, Vec<u8>, Vec<f32>);

fn cases() -> Vec<Case> {
    let arrays = arrays("encodings.safetensors");
    let blocks = Encoding::ALL.into_iter().filter(|encoding| encoding.block_elems() > 1);
    let case = |encoding: Encoding| {
        let (shape, bytes) = arrays[&format!("{}.bytes", encoding.name())].clone();
        (encoding, shape, bytes, f32s(&arrays[&format!("{}.values", encoding.name())].1))
    };
    blocks.map(case).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn scalar_decoders_equal_gguf() {
    for (encoding, _, bytes, expected) in cases() {
        let mut values = vec![0.0; expected.len()];
        encoding.decode(&bytes, &mut values);
        assert_eq!(bits(&values), bits(&expected), "{}", encoding.name());
    }
    let arrays = arrays("encodings.safetensors");
    let expected = f32s(&arrays["MXFP4.extremes.values"].1);
    let mut values = vec![0.0; expected.len()];
    Encoding::MXFP4.decode(&arrays["MXFP4.extremes.bytes"].1, &mut values);
    assert_eq!(bits(&values), bits(&expected));
}

#[test]
fn every_ggml_number_has_one_encoding() {
    let numbers: Vec<u32> = Encoding::ALL.iter().map(|encoding| encoding.ggml_type()).collect();
    assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 26);
    for encoding in Encoding::ALL {
        assert_eq!(Encoding::from_ggml_type(encoding.ggml_type()), Some(encoding));
    }
}

#[test]
fn float_encodings_equal_their_types() {
    let numbers = [1.5f32, -0.0, 3.0e-5, 65504.0, f32::INFINITY];
    for (encoding, bytes) in [
        (Encoding::F32, numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()),
        (Encoding::F16, numbers.iter().flat_map(|x| panoply_ir::f16::from_f32(*x).to_le_bytes()).collect()),
        (Encoding::BF16, numbers.iter().flat_map(|x| panoply_ir::bf16::from_f32(*x).to_le_bytes()).collect()),
    ] {
        let mut values = [0.0; 5];
        encoding.decode(&bytes, &mut values);
        let tensor = Packed::new(&bytes, encoding, 1, 5).unwrap().unpack().to_vec::<f32>().unwrap();
        assert_eq!(bits(&values), bits(&tensor), "{}", encoding.name());
        for (value, exact) in values.iter().zip(numbers) {
            assert!(
                (value - exact).abs() <= exact.abs() / 128.0 || *value == exact,
                "{}: {value} for {exact}",
                encoding.name()
            );
        }
    }
}

#[test]
fn unpacked_tensors_and_rows_equal_gguf_on_every_device() {
    for device in devices() {
        device.scope(|| {
            for (encoding, shape, bytes, expected) in cases() {
                let k = encoding.block_elems() * 2;
                let packed = Packed::new(&bytes, encoding, shape[0] / 2, k).unwrap();
                let what = format!("{} on {device}", encoding.name());
                let values = packed.unpack().to_vec::<f32>().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(bits(&values), bits(&expected), "{what}");
                let rows = packed.index_select(&Tensor::from_slice(&[1i32, 0], [2])).to_vec::<f32>().unwrap();
                let wanted = [&expected[k..2 * k], &expected[..k]].concat();
                assert_eq!(bits(&rows), bits(&wanted), "rows of {what}");
            }
        });
    }
}

#[test]
fn interleaved_rows_decode_and_multiply_as_stored_ones() {
    let mut encodings = 0;
    for (encoding, _, bytes, _) in cases().into_iter().filter(|(encoding, ..)| encoding.can_interleave(16)) {
        encodings += 1;
        let (rows, k) = (16, encoding.block_elems() * 2);
        let row_bytes = encoding.row_bytes(k).unwrap();
        let bytes: Vec<u8> = bytes.into_iter().cycle().take(rows * row_bytes).collect();
        let mut interleaved = vec![0; bytes.len()];
        encoding.interleave(&bytes, row_bytes, &mut interleaved);
        for device in devices() {
            device.scope(|| {
                let stored = Packed::new(&bytes, encoding, rows, k).unwrap();
                let storage = device.upload(&interleaved).unwrap();
                let packed = Packed::from_storage(storage, encoding, [rows, k], true).unwrap();
                let what = format!("{} on {device}", encoding.name());
                let values = |tensor: Tensor| bits(&tensor.to_vec::<f32>().unwrap());
                assert_eq!(values(packed.unpack()), values(stored.unpack()), "{what}");
                let ids = Tensor::from_slice(&[15i32, 0, 7], [3]);
                assert_eq!(values(packed.index_select(&ids)), values(stored.index_select(&ids)), "{what}");
                let x: Vec<f32> = (0..3 * k).map(|n| ((n * 37 % 101) as f32 - 50.0) / 50.0).collect();
                let x = Tensor::from_slice(&x, [3, k]);
                assert_eq!(values(packed.matmul(&x)), values(stored.matmul(&x)), "{what}");
            });
        }
    }
    assert_eq!(encodings, 10);
    let storage = Device::get("cpu").unwrap().upload(&[0; 18]).unwrap();
    let error = Packed::from_storage(storage, Encoding::Q4_0, [1, 32], true).unwrap_err();
    assert_eq!(error.message(), "1 rows in Q4_0 cannot be interleaved");
}

#[test]
fn products_equal_sums_in_f64() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
        let mut is_rounded = false;
        for (encoding, shape, bytes, expected) in cases() {
            let k = encoding.block_elems() * 2;
            let rows = shape[0] / 2;
            let packed = Packed::new(&bytes, encoding, rows, k).unwrap();
            let x: Vec<f32> = (0..3 * k).map(|n| ((n * 37 % 101) as f32 - 50.0) / 50.0).collect();
            let product = packed.matmul(&Tensor::from_slice(&x, [3, k])).to_vec::<f32>().unwrap();
            for (n, value) in product.iter().enumerate() {
                let (x, w) = (&x[n / rows * k..][..k], &expected[n % rows * k..][..k]);
                let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                let off = (f64::from(*value) - sum).abs();
                // Activations become bytes: half a scale of each block of 32 times its weights.
                let rounding: f64 = x
                    .chunks(32)
                    .zip(w.chunks(32))
                    .map(|(x, w)| {
                        let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                        f64::from(largest) / 254.0 * w.iter().map(|w| f64::from(w.abs())).sum::<f64>()
                    })
                    .sum();
                assert!(off <= rounding + size * 1e-5, "{} at {n}: {value} for {sum}", encoding.name());
                is_rounded |= off > size * 1e-5;
            }
        }
        assert!(is_rounded, "the CPU's routine did none of the products");
    });
}

#[test]
fn wrong_sizes_are_rejected() {
    let error = Packed::new(&[0; 18], Encoding::Q4_0, 2, 32).unwrap_err();
    assert_eq!(error.message(), "18 bytes are not 2 rows of 32 elements in Q4_0");
    assert!(Packed::new(&[0; 18], Encoding::Q4_0, 1, 33).is_err());
    assert!(Packed::new(&[], Encoding::Q4K, usize::MAX, 256).is_err());
}

#[test]
fn encoded_values_equal_ggml() {
    let arrays = arrays("quantized.safetensors");
    let values = f32s(&arrays["values"].1);
    for name in ["Q4_0", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"] {
        let encoding = Encoding::ALL.into_iter().find(|encoding| encoding.name() == name).unwrap();
        let expected = &arrays[name].1;
        // Whatever was there before is overwritten.
        let mut bytes = vec![0xa5; expected.len()];
        encoding.encode(&values, &mut bytes);
        let block = encoding.block_bytes();
        for (n, (have, want)) in bytes.chunks(block).zip(expected.chunks(block)).enumerate() {
            assert_eq!(have, want, "block {n} of {name}");
        }
    }
    for encoding in [Encoding::F32, Encoding::F16, Encoding::BF16] {
        let mut bytes = vec![0; values.len() * encoding.block_bytes()];
        encoding.encode(&values, &mut bytes);
        let mut decoded = vec![0.0; values.len()];
        encoding.decode(&bytes, &mut decoded);
        // Half of the last of 11 or 8 significant bits.
        let step = match encoding {
            Encoding::F16 => 2f32.powi(-11),
            Encoding::BF16 => 2f32.powi(-8),
            _ => 0.0,
        };
        let close = |(x, y): (&f32, &f32)| (x - y).abs() <= x.abs() * step + 6e-8 * step.min(1.0).ceil();
        assert!(values.iter().zip(&decoded).all(close), "{}", encoding.name());
    }
}
