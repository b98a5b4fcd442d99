//! Scatter plot of actual and predicted values in SVG; perfect predictions lie on the diagonal.

use super::confusion::{escaped, label};
use super::curves::{LETTER, STYLE, ticks, tidy};

const SIDE: f64 = 420.0;
const MARGIN: f64 = 70.0;

/// Maximum number of points per plot; more are thinned out.
const MAX_POINTS: usize = 2000;

/// Maximum number of plots; further targets are not drawn.
const SQUARES: usize = 12;

/// Maximum number of characters of a target's name below its plot.
const TITLE: usize = 48;

/// Draws one plot per target, with a point per example: the actual value on x, the predicted value on y.
pub fn draw(right: &[f64], read: &[f64], names: &[String]) -> String {
    let count = names.len();
    let (margin, description) = (margin(right.iter().chain(read)), "actual and predicted values");
    let size = SIDE + margin + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {size}\" role=\"img\" aria-label=\"{description}\">\
         {STYLE}<style>.point{{fill:#0a84d6;fill-opacity:.5}}</style>\n",
        size * count.min(SQUARES) as f64
    );
    if count > SQUARES {
        let caption = format!("the first {SQUARES} of {count} targets; predictions.csv has all");
        svg += &format!("<text class=\"title\" x=\"{margin}\" y=\"14\">{caption}</text>\n");
    }
    for (at, name) in names.iter().enumerate().take(SQUARES) {
        let pairs = right.iter().zip(read).skip(at).step_by(count);
        let pairs = pairs.map(|(right, read)| (*right, *read));
        let pairs: Vec<(f64, f64)> = pairs.filter(|(right, read)| right.is_finite() && read.is_finite()).collect();
        let title = if count > 1 { format!("{}, actual", escaped(&label(name, TITLE))) } else { "actual".to_string() };
        svg += &format!("<g transform=\"translate({} 20)\">\n", margin + size * at as f64);
        svg += &(square(&pairs, &title, margin) + "</g>\n");
    }
    svg + "</svg>\n"
}

/// Returns the space for the title and the labels left of a plot: at least [`MARGIN`], and more for long numbers.
fn margin<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let longest = ticks_of(values.copied()).iter().map(|tick| tidy(*tick).chars().count()).max().unwrap_or(0);
    MARGIN.max(36.0 + longest as f64 * LETTER)
}

/// Returns round numbers that enclose the finite values.
fn ticks_of(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { ticks(low, high) } else { ticks(0.0, 1.0) }
}

fn square(pairs: &[(f64, f64)], title: &str, margin: f64) -> String {
    let ticks = ticks_of(pairs.iter().flat_map(|(right, read)| [*right, *read]));
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
    for (right, read) in pairs.iter().step_by(pairs.len().div_ceil(MAX_POINTS).max(1)) {
        svg += &format!("<circle class=\"point\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>\n", at(*right), SIDE - at(*read));
    }
    let middle = SIDE / 2.0;
    svg +=
        &format!("<text class=\"title\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{title}</text>\n", SIDE + 38.0);
    svg += &format!(
        "<text class=\"title\" transform=\"translate({} {middle}) rotate(-90)\" text-anchor=\"middle\">predicted</text>\n",
        18.0 - margin
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_plot_draws_one_point_per_pair() {
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

    #[test]
    fn long_numbers_widen_the_margin() {
        let svg = draw(&[1e9, 2e9], &[1e9, 2e9], &["y".to_string()]);
        assert!(svg.contains(">1000000000<") && svg.contains("translate(111 20)"), "{svg}");
        assert!(
            draw(&[1.0], &[1.0], &["z".repeat(90), "y".to_string()])
                .contains(&format!(">{}…, actual<", "z".repeat(47)))
        );
    }

    /// Each plot has its own axis ticks, even if the targets have very different units.
    #[test]
    fn each_target_has_a_separate_plot() {
        let names = ["a < b".to_string(), "grams".to_string()];
        let svg = draw(&[0.0, 0.0, 0.5, 1000.0], &[0.0, 500.0, 0.5, 1000.0], &names);
        for part in [">a &lt; b, actual<", ">grams, actual<", ">0.5<", ">1000<", "viewBox=\"0 0 1020 510\""] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // The corners of both plots, and 500 of 1000 where the actual value is 0.
        assert!(svg.matches("cx=\"420.0\" cy=\"0.0\"").count() == 2 && !svg.contains("the first "), "{svg}");
        let many: Vec<String> = (0..14).map(|at| at.to_string()).collect();
        assert!(draw(&[0.5; 28], &[0.5; 28], &many).contains(">the first 12 of 14 targets; predictions.csv has all<"));
        assert!(svg.contains("cx=\"0.0\" cy=\"210.0\""), "{svg}");
    }
}
