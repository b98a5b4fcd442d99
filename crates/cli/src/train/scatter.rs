//! Right numbers and what was read instead as a picture in SVG: all on the diagonal is perfect.

use super::curves::{STYLE, ticks, tidy};

const SIDE: f64 = 420.0;
const MARGIN: f64 = 70.0;

/// More points than this are thinned out.
const MOST: usize = 2000;

/// A point for each example, the right number along, the one that was read up.
pub fn draw(right: &[f32], read: &[f32]) -> String {
    let pairs = right.iter().zip(read).map(|(right, read)| (f64::from(*right), f64::from(*read)));
    let pairs: Vec<(f64, f64)> = pairs.filter(|(right, read)| right.is_finite() && read.is_finite()).collect();
    let all = || pairs.iter().flat_map(|(right, read)| [*right, *read]);
    let (low, high) = all().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let ticks = if low <= high { ticks(low, high) } else { ticks(0.0, 1.0) };
    let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
    let at = |value: f64| (value - low) / (high - low) * SIDE;
    let size = SIDE + MARGIN + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {size} {size}\" role=\"img\" aria-label=\"right and predicted numbers\">\
         {STYLE}<style>.point{{fill:#0a84d6;fill-opacity:.5}}</style>\n<g transform=\"translate({MARGIN} 20)\">\n"
    );
    for tick in &ticks {
        let (x, y, label) = (at(*tick), SIDE - at(*tick), tidy(*tick));
        svg += &format!("<path class=\"grid\" d=\"M0 {y:.1}H{SIDE}M{x:.1} 0V{SIDE}\"/>");
        svg += &format!("<text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y + 4.0);
        svg += &format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n", SIDE + 18.0);
    }
    svg += &format!("<path class=\"best\" d=\"M0 {SIDE}L{SIDE} 0\"/>\n");
    for (right, read) in pairs.iter().step_by(pairs.len().div_ceil(MOST).max(1)) {
        svg += &format!("<circle class=\"point\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>\n", at(*right), SIDE - at(*read));
    }
    let middle = SIDE / 2.0;
    svg += &format!("<text class=\"title\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">right</text>\n", SIDE + 38.0);
    svg += &format!(
        "<text class=\"title\" transform=\"translate(-52 {middle}) rotate(-90)\" text-anchor=\"middle\">predicted</text>\n"
    );
    svg + "</g>\n</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_a_point_and_the_diagonal_is_right() {
        let svg = draw(&[0.0, 10.0, 5.0], &[0.0, 10.0, 10.0]);
        for point in ["cx=\"0.0\" cy=\"420.0\"", "cx=\"420.0\" cy=\"0.0\"", "cx=\"210.0\" cy=\"0.0\""] {
            assert!(svg.contains(point), "{point} in {svg}");
        }
        for (right, read) in [(&[][..], &[][..]), (&[1.0][..], &[f32::NAN][..]), (&[3.0][..], &[3.0][..])] {
            let svg = draw(right, read);
            assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{svg}");
        }
        assert_eq!(draw(&vec![1.0; 9000], &vec![2.0; 9000]).matches("<circle").count(), 1800);
    }
}
