//! The largest radius of a claim about a ball, for functions whose radius is known.

use panoply_tensor::{Device, Result, Tensor};
use panoply_verify::radius::{self, Radius};
use panoply_verify::{Options, Verdict, claim};

use super::report;

fn search(run: &dyn Fn(&Tensor) -> Result<Tensor>, ball: f64, more: &str, seconds: f64) -> Radius {
    let text = format!("[[claim]]\npoint = [0.25, 0.5]\nball = {ball}\n{more}\nholds = \"y[0] <= 1\"\n");
    let claim = claim::parse(&text).unwrap().swap_remove(0);
    let (first, whole) = claim.radius().unwrap();
    let center = [0.25f32, 0.5];
    let mut verify = |radius: f64, seconds: f64| {
        let property = claim.with_radius(radius).property(2, Some(&center), &[0.0])?;
        Ok(report(run, &property, &Options { seconds, ..Options::default() }))
    };
    let distance =
        |point: &[f32]| point.iter().zip(center).map(|(x, y)| (f64::from(*x) - f64::from(y)).abs()).fold(0.0, f64::max);
    radius::search(&mut verify, &distance, first, whole, seconds).unwrap()
}

#[test]
fn radius_of_a_known_function() {
    Device::get("cpu").unwrap().scope(|| {
        // |x₀| + |x₁| is at most 0.75 + 2r, so that the radius is 0.125.
        let norm = |x: &Tensor| Ok((x.relu() + (-x).relu()).sum(0).unsqueeze(0));
        for ball in [0.01, 0.1, 0.125, 3.0] {
            let found = search(&norm, ball, "", 20.0);
            let (proven, (violated, point)) = (found.proven.unwrap(), found.violated.clone().unwrap());
            assert!(found.is_exact && (0.12..=0.125).contains(&proven), "{found:?}");
            assert!((0.125..0.1275).contains(&violated) && proven <= violated, "{found:?}");
            assert!(point.input.iter().sum::<f32>() > 1.0 && point.output[0] > 1.0, "{found:?}");
        }
    });
}

#[test]
fn radius_of_the_whole_range_and_of_unprovable_claims() {
    Device::get("cpu").unwrap().scope(|| {
        // In the range 0..1 the claim always holds.
        let half = |x: &Tensor| Ok((x.relu() * 0.4).sum(0).unsqueeze(0));
        let found = search(&half, 0.3, "clip = [0.0, 1.0]", 20.0);
        assert!(found.is_exact && found.proven == Some(1.0) && found.violated.is_none(), "{found:?}");
        // The center itself violates the claim.
        let found = search(&|x: &Tensor| Ok((x.sum(0) * 10.0).unsqueeze(0)), 0.3, "", 20.0);
        assert!(!found.is_exact && found.proven.is_none() && found.violated.unwrap().0 < 1e-3);
        // Without bounds nothing is proven, and the search ends.
        let found = search(&|x: &Tensor| Ok(x.cumsum(0).sum(0).unsqueeze(0) * 0.0), 0.3, "", 1.0);
        assert!(!found.is_exact && found.proven.is_none() && found.violated.is_none(), "{found:?}");
        let verdict = Verdict::Undecided(String::new());
        let stuck = &mut |_: f64, _: f64| {
            let progress = panoply_verify::Progress { proven: 0.0, boxes: 0, seconds: 0.0 };
            Ok(panoply_verify::Report { verdict: verdict.clone(), progress })
        };
        let found = radius::search(stuck, &|_| 0.0, 0.0, f64::INFINITY, 1e9).unwrap();
        assert!(found.queries < 100 && found.proven.is_none(), "{found:?}");
    });
}
