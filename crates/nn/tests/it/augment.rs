//! Augmentation layers: possible results, uniform sampling, and no effect in evaluation.

use panoply_nn::{ForwardContext, GaussianNoise, Layer, Network, RandomHorizontalFlip, RandomShift};
use panoply_tensor::{Device, Rng, Tensor};

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// Shifts an image with loops.
fn moved(image: &[f32], rows: isize, columns: isize, down: isize, right: isize) -> Vec<f32> {
    let at = |row: isize, column: isize| match (0..rows).contains(&row) && (0..columns).contains(&column) {
        true => image[(row * columns + column) as usize],
        false => 0.0,
    };
    (0..rows * columns).map(|i| at(i / columns - down, i % columns - right)).collect()
}

#[test]
fn random_shift_draws_all_shifts_uniformly() {
    on_cpu(|| {
        let (batch, rows, columns) = (400, 4, 5);
        let image: Vec<f32> = (1..=20).map(|i| i as f32).collect();
        let images: Vec<f32> = (0..batch).flat_map(|_| image.clone()).collect();
        let x = Tensor::from_slice(&images, [batch, 1, rows, columns]);
        let shift = RandomShift { max_shift: 1 };
        assert_eq!(shift.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap(), images);
        let mut rng = Rng::seed_from_u64(4);
        let shifted = shift.forward(&x, &mut ForwardContext::train(&mut rng)).to_vec::<f32>().unwrap();
        let ways: Vec<Vec<f32>> = (-1..=1)
            .flat_map(|down| (-1..=1).map(move |right| (down, right)))
            .map(|(down, right)| moved(&image, 4, 5, down, right))
            .collect();
        let mut counts = [0usize; 9];
        for one in shifted.chunks_exact(20) {
            counts[ways
                .iter()
                .position(|way| way == one)
                .unwrap_or_else(|| panic!("{one:?} is not a shift of the image"))] += 1;
        }
        // 400 / 9 are expected of each; five standard deviations of that binomial distribution are 31.
        assert!(counts.iter().all(|count| (13..=76).contains(count)), "{counts:?}");
        let again = shift.forward(&x, &mut ForwardContext::train(&mut Rng::seed_from_u64(4))).to_vec::<f32>().unwrap();
        assert_eq!(again, shifted, "the same seed gives the same shifts");
    });
}

#[test]
fn flips_and_noise_have_the_expected_statistics() {
    on_cpu(|| {
        let row = [1.0f32, 2.0, 3.0];
        let x = Tensor::from_slice(&row.repeat(1000), [1000, 3]);
        let flip = RandomHorizontalFlip { p: 0.25 };
        let turned = flip.forward(&x, &mut ForwardContext::train(&mut Rng::seed_from_u64(1))).to_vec::<f32>().unwrap();
        let count = turned.chunks_exact(3).filter(|one| one == &[3.0, 2.0, 1.0]).count();
        assert!(turned.chunks_exact(3).all(|one| one == row || one == [3.0, 2.0, 1.0]));
        assert!((180..=320).contains(&count), "{count} of 1000");
        // As in torchvision, a probability of 1 flips every example.
        let always = Network::parse("input = [1, 3]\n[[layer]]\nkind = \"random_horizontal_flip\"\np = 1.0\n").unwrap();
        let model = always.build(&mut Rng::seed_from_u64(0)).unwrap();
        let all = model.forward(&x.reshape([1000, 1, 3]), &mut ForwardContext::train(&mut Rng::seed_from_u64(1)));
        assert_eq!(all.to_vec::<f32>().unwrap(), [3.0, 2.0, 1.0].repeat(1000));
        let noise = GaussianNoise { stddev: 0.5 };
        let added =
            (noise.forward(&x, &mut ForwardContext::train(&mut Rng::seed_from_u64(2))) - &x).to_vec::<f32>().unwrap();
        let mean: f64 = added.iter().map(|x| f64::from(*x)).sum::<f64>() / 3000.0;
        let variance = added.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 3000.0;
        assert!(mean.abs() < 0.05 && (variance - 0.25).abs() < 0.04, "{mean} {variance}");
        for layer in [&flip as &dyn Layer, &noise] {
            assert_eq!(layer.forward(&x, &mut ForwardContext::eval()).to_vec::<f32>().unwrap(), row.repeat(1000));
        }
    });
}
