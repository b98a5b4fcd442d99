//! Every encoding against the values of the Python package `gguf`, bit for bit.

use panoply_ir::Encoding;
use panoply_llm::Packed;
use panoply_tensor::{Device, Tensor};

use crate::fixtures::{arrays, devices, f32s};

/// An encoding with the shape and the bytes of its blocks, and their values.
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
                let rows = packed.index_select(&Tensor::from_slice(&[2i32, 0], [2])).to_vec::<f32>().unwrap();
                let wanted = [&expected[2 * k..3 * k], &expected[..k]].concat();
                assert_eq!(bits(&rows), bits(&wanted), "rows of {what}");
            }
        });
    }
}

#[test]
fn products_equal_sums_in_f64() {
    let device = Device::get("cpu").unwrap();
    device.scope(|| {
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
                assert!(off <= size * 1e-5, "{} at {n}: {value} for {sum}", encoding.name());
            }
        }
    });
}

#[test]
fn wrong_sizes_are_refused() {
    let error = Packed::new(&[0; 18], Encoding::Q4_0, 2, 32).unwrap_err();
    assert_eq!(error.message(), "18 bytes are not 2 rows of 32 elements in Q4_0");
    assert!(Packed::new(&[0; 18], Encoding::Q4_0, 1, 33).is_err());
    assert!(Packed::new(&[], Encoding::Q4K, usize::MAX, 256).is_err());
}
