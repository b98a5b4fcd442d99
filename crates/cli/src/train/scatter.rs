//! Right numbers and what was read instead as a picture in SVG: all on the diagonal is perfect.

use super::confusion::escaped;
use super::curves::{STYLE, ticks, tidy};

const SIDE: f64 = 420.0;
const MARGIN: f64 = 70.0;

/// More points than this are thinned out.
const MOST: usize = 2000;

/// Of more numbers than this the first are drawn.
const SQUARES: usize = 12;

/// A point for each example, the right number along, the one that was read up; of several numbers each has a square of its own.
pub fn draw(right: &[f64], read: &[f64], names: &[String]) -> String {
    let count = names.len();
    let (size, label) = (SIDE + MARGIN + 20.0, "right and predicted numbers");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {size}\" role=\"img\" aria-label=\"{label}\">\
         {STYLE}<style>.point{{fill:#0a84d6;fill-opacity:.5}}</style>\n",
        size * count.min(SQUARES) as f64
    );
    if count > SQUARES {
        let said = format!("the first {SQUARES} of {count} numbers; predictions.csv holds all");
        svg += &format!("<text class=\"title\" x=\"{MARGIN}\" y=\"14\">{said}</text>\n");
    }
    for (at, name) in names.iter().enumerate().take(SQUARES) {
        let pairs = right.iter().zip(read).skip(at).step_by(count);
        let pairs = pairs.map(|(right, read)| (*right, *read));
        let pairs: Vec<(f64, f64)> = pairs.filter(|(right, read)| right.is_finite() && read.is_finite()).collect();
        let title = if count > 1 { format!("{}, right", escaped(name)) } else { "right".to_string() };
        svg += &format!("<g transform=\"translate({} 20)\">\n", MARGIN + size * at as f64);
        svg += &(square(&pairs, &title) + "</g>\n");
    }
    svg + "</svg>\n"
}

fn square(pairs: &[(f64, f64)], title: &str) -> String {
    let all = || pairs.iter().flat_map(|(right, read)| [*right, *read]);
    let (low, high) = all().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let ticks = if low <= high { ticks(low, high) } else { ticks(0.0, 1.0) };
    let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
    let at = |value: f64| (value - low) / (high - low) * SIDE;
    let mut svg = String::new();
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
    svg +=
        &format!("<text class=\"title\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{title}</text>\n", SIDE + 38.0);
    svg += &format!(
        "<text class=\"title\" transform=\"translate(-52 {middle}) rotate(-90)\" text-anchor=\"middle\">predicted</text>\n"
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_a_point_and_the_diagonal_is_right() {
        let one = ["y".to_string()];
        let svg = draw(&[0.0, 10.0, 5.0], &[0.0, 10.0, 10.0], &one);
        for point in ["cx=\"0.0\" cy=\"420.0\"", "cx=\"420.0\" cy=\"0.0\"", "cx=\"210.0\" cy=\"0.0\""] {
            assert!(svg.contains(point), "{point} in {svg}");
        }
        for (right, read) in [(&[][..], &[][..]), (&[1.0][..], &[f64::NAN][..]), (&[3.0][..], &[3.0][..])] {
            let svg = draw(right, read, &one);
            assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{svg}");
        }
        assert_eq!(draw(&vec![1.0; 9000], &vec![2.0; 9000], &one).matches("<circle").count(), 1800);
    }

    /// Each has its own ticks, however small its unit is beside the other's.
    #[test]
    fn several_numbers_have_squares_of_their_own() {
        let names = ["a < b".to_string(), "grams".to_string()];
        let svg = draw(&[0.0, 0.0, 0.5, 1000.0], &[0.0, 500.0, 0.5, 1000.0], &names);
        for part in [">a &lt; b, right<", ">grams, right<", ">0.5<", ">1000<", "viewBox=\"0 0 1020 510\""] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // The corners of both, and 500 of 1000 where 0 is right.
        assert!(svg.matches("cx=\"420.0\" cy=\"0.0\"").count() == 2 && !svg.contains("the first "), "{svg}");
        let many: Vec<String> = (0..14).map(|at| at.to_string()).collect();
        assert!(
            draw(&[0.5; 28], &[0.5; 28], &many).contains(">the first 12 of 14 numbers; predictions.csv holds all<")
        );
        assert!(svg.contains("cx=\"0.0\" cy=\"210.0\""), "{svg}");
    }
}
