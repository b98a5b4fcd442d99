//! Curves of loss and score over the epochs in SVG, readable on light and dark backgrounds.

use panoply::nn::{EpochReport, Metric};

/// Style sheet with colors that contrast with white and black; the text color follows the color scheme of the reader.
pub const STYLE: &str = "<style>text{font:13px system-ui,sans-serif;fill:#333}.title{font-weight:600}.axis{stroke:#777;fill:none}\
.grid{stroke:#777;stroke-opacity:.3;fill:none}.train{stroke:#0a84d6;fill:none;stroke-width:2}.held{stroke:#e0782a;fill:none;stroke-width:2}\
.best{stroke:#777;stroke-dasharray:3 4;fill:none}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>";

/// Width of a character in this font.
pub const LETTER: f64 = 7.5;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 42.0;

/// Draws two plots, the loss above the score.
pub fn draw(history: &[EpochReport]) -> String {
    let of = |value: fn(&EpochReport) -> f64| history.iter().map(value).collect::<Vec<f64>>();
    let epochs: Vec<usize> = history.iter().map(|report| report.epoch).collect();
    let best = EpochReport::best(history).map(|report| report.epoch);
    let (score, scale) = match history.first().map(|report| report.metric) {
        Some(Metric::R2) => ("R²", Scale::Plain),
        _ => ("accuracy", Scale::Percent),
    };
    let panels = [
        Panel { title: "loss", train: of(|r| r.train_loss), held: of(|r| r.val_loss), scale: Scale::FromZero },
        Panel { title: score, train: of(|r| r.train_score), held: of(|r| r.val_score), scale },
    ];
    let height = panels.len() as f64 * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"loss and {score} over the epochs\">{STYLE}\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        svg += &format!("<g transform=\"translate(0 {})\">\n{}</g>\n", at as f64 * HEIGHT, panel.draw(&epochs, best));
    }
    svg + "</svg>\n"
}

/// One metric on training and validation data.
struct Panel {
    title: &'static str,
    train: Vec<f64>,
    held: Vec<f64>,
    scale: Scale,
}

/// Axis of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Starts at 0.
    FromZero,
    /// Ends at 1.
    Plain,
    /// Ends at 1, labeled in percent.
    Percent,
}

impl Panel {
    fn draw(&self, epochs: &[usize], best: Option<usize>) -> String {
        let values = || self.train.iter().chain(&self.held).copied().filter(|value| value.is_finite());
        let (low, high) = values().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let ticks = match self.scale {
            Scale::FromZero => ticks(0.0, high),
            Scale::Plain | Scale::Percent => ticks(low, 1.0),
        };
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let percent = self.scale == Scale::Percent;
        let label = |tick: f64| if percent { format!("{} %", tidy(tick * 100.0)) } else { tidy(tick) };
        let longest = ticks.iter().map(|tick| label(*tick).chars().count()).max().unwrap_or(0);
        let left = LEFT.max(14.0 + longest as f64 * LETTER);
        let (first, last) = (epochs.first().copied().unwrap_or(0), epochs.last().copied().unwrap_or(1));
        let span = (last.saturating_sub(first)).max(1) as f64;
        let x = |epoch: usize| left + (epoch as f64 - first as f64) / span * (WIDTH - left - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!("<text class=\"title\" x=\"{left}\" y=\"20\">{}</text>\n", self.title);
        for tick in &ticks {
            let (at, end, label) = (y(*tick), WIDTH - RIGHT, label(*tick));
            svg += &format!("<path class=\"grid\" d=\"M{left} {at:.1}H{end}\"/>");
            svg += &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n", left - 8.0, at + 4.0);
        }
        let (bottom, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        svg += &format!("<path class=\"axis\" d=\"M{left} {TOP}V{bottom}H{end}\"/>\n");
        for epoch in epoch_ticks(first, last) {
            svg +=
                &format!("<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{epoch}</text>", x(epoch), bottom + 18.0);
        }
        svg += &format!("\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\">epoch</text>\n", end, HEIGHT - 6.0);
        if let Some(best) = best {
            svg += &format!(
                "<path class=\"best\" d=\"M{:.1} {TOP}V{bottom}\"><title>best: epoch {best}</title></path>\n",
                x(best)
            );
        }
        for (class, series) in [("train", &self.train), ("held", &self.held)] {
            svg += &line(
                class,
                epochs.iter().zip(series).filter(|(_, v)| v.is_finite()).map(|(e, v)| (x(*e), y(*v))).collect(),
            );
        }
        svg + &legend(best.is_some())
    }
}

/// Draws a line through points, or a dot for a single point.
fn line(class: &str, points: Vec<(f64, f64)>) -> String {
    if let [(x, y)] = points[..] {
        return format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n");
    }
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline class=\"{class}\" points=\"{}\"/>\n", points.join(" "))
}

fn legend(best: bool) -> String {
    let entry = |x: f64, class: &str, text: &str| {
        format!("<path class=\"{class}\" d=\"M{x} 16h24\"/><text x=\"{}\" y=\"20\">{text}</text>\n", x + 30.0)
    };
    let best = if best { entry(WIDTH - 350.0, "best", "best epoch") } else { String::new() };
    best + &entry(WIDTH - 240.0, "train", "training") + &entry(WIDTH - 130.0, "held", "validation")
}

/// Returns two to nine round numbers that enclose the range.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    // Almost equal values get a minimum range, so that ticks are distinct.
    let room = (high - low).max(1e-6 * high.abs().max(1.0));
    let power = 10f64.powf((room / 5.0).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| room / step <= 6.0).unwrap_or(power);
    let (first, last) = ((low / step + 1e-9).floor() as i64, (high / step - 1e-9).ceil() as i64);
    (first..=last.max(first + 1)).map(|at| at as f64 * step).collect()
}

/// Returns at most ten epochs that are multiples of 1, 2 or 5 times a power of ten.
fn epoch_ticks(first: usize, last: usize) -> impl Iterator<Item = usize> {
    let powers = std::iter::successors(Some(1usize), |power| power.checked_mul(10));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)));
    let count = |step: usize| last / step - first.saturating_sub(1) / step;
    let step = steps.find(|step| count(*step) <= 10).unwrap_or(usize::MAX);
    (first.div_ceil(step)..=last / step).map(move |at| at * step)
}

/// Formats a number without trailing zeros.
pub fn tidy(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-4 {
        return format!("{number:.2e}");
    }
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(ticks(0.0, 2.3), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(
            ticks(0.61, 1.0).iter().map(|tick| tidy(*tick)).collect::<Vec<String>>(),
            ["0.6", "0.7", "0.8", "0.9", "1"]
        );
        for (low, high) in [(0.0, 0.0), (0.5, 0.5), (0.0, 1e-9), (0.0, 1234.5), (-3.0, 4.0)] {
            let ticks = ticks(low, high);
            assert!(
                ticks.len() >= 2 && ticks.len() <= 9 && ticks[0] <= low && ticks[ticks.len() - 1] >= high,
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn epochs_on_the_axis_are_round() {
        assert_eq!(epoch_ticks(1, 3).collect::<Vec<usize>>(), [1, 2, 3]);
        assert_eq!(epoch_ticks(1, 10).count(), 10);
        assert_eq!(epoch_ticks(1, 20).collect::<Vec<usize>>(), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        assert_eq!(epoch_ticks(1, 30).collect::<Vec<usize>>(), [5, 10, 15, 20, 25, 30]);
        assert_eq!(epoch_ticks(95, 130).collect::<Vec<usize>>(), [95, 100, 105, 110, 115, 120, 125, 130]);
        assert_eq!(epoch_ticks(1, 12345).collect::<Vec<usize>>(), [2000, 4000, 6000, 8000, 10000, 12000]);
        assert_eq!(epoch_ticks(0, 0).collect::<Vec<usize>>(), [0]);
    }

    #[test]
    fn every_epoch_is_a_point_within_the_image() {
        let report = |epoch: usize, loss: f64| EpochReport {
            epoch,
            train_loss: loss,
            val_loss: loss * 1.1,
            metric: Metric::Accuracy,
            train_score: 0.9,
            val_score: 0.8,
            val_macro_f1: None,
            monitor: Default::default(),
            seconds: 1.0,
        };
        for history in [vec![], vec![report(1, 2.0)], (1..=40).map(|epoch| report(epoch, 2.0 / epoch as f64)).collect()]
        {
            let svg = draw(&history);
            let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
            for line in &lines {
                let points = line.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
                let points: Vec<&str> = points.split(' ').filter(|point| !point.is_empty()).collect();
                assert_eq!(points.len(), history.len());
                for point in points {
                    let (x, y) = point.split_once(',').unwrap();
                    let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                    assert!((LEFT..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{point}");
                }
            }
            assert!(lines.len() == 4 || history.len() == 1);
            assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
        }
        // A loss of NaN leaves a gap.
        assert!(!draw(&[report(1, f64::NAN), report(2, 1.0)]).contains("NaN"));
    }
}
