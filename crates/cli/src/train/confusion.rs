//! The confusion matrix as text and as an SVG image.

use panoply::nn::metrics::ConfusionMatrix;

use super::curves::{LETTER, STYLE};
use super::metrics::LabelMetrics;
use crate::console;

/// Above this number of classes the text lists cells instead of a table, and the image shows only this number of classes.
const SHOWN: usize = 50;

/// Formats a table with actual classes as rows, predicted classes as columns, and precision, recall and F1 of each class. With many
/// classes it lists the nonzero cells instead.
pub fn text(counts: &ConfusionMatrix, classes: &[String]) -> String {
    let classes: Vec<String> = classes.iter().map(|class| console::escaped(class).to_string()).collect();
    let table = if classes.len() > SHOWN { list(counts, &classes) } else { table(counts, &classes) };
    table + &format!("accuracy {:.2} %, macro F1 {:.2} %\n", counts.accuracy() * 100.0, counts.macro_f1() * 100.0)
}

fn table(counts: &ConfusionMatrix, classes: &[String]) -> String {
    let name = classes.iter().map(|class| class.chars().count()).max().unwrap_or(0).max("actual \\ predicted".len());
    let cell = counts.cells().map(|(_, _, count)| count.to_string().len()).max().unwrap_or(1);
    let cell = classes.iter().map(|class| class.chars().count()).max().unwrap_or(0).clamp(cell.max(3), 12);
    let short = |class: &str| class.chars().take(12).collect::<String>();
    let mut table = format!("{:name$}", "actual \\ predicted");
    classes.iter().for_each(|class| table += &format!(" {:>cell$}", short(class)));
    table += "  precision  recall     F1\n";
    for (right, class) in classes.iter().enumerate() {
        table += &format!("{class:name$}");
        (0..classes.len()).for_each(|read| table += &format!(" {:>cell$}", counts.count(right, read)));
        let measures = [counts.precision(right), counts.recall(right), counts.f1(right)].map(|share| share * 100.0);
        table += &format!("    {:5.1} % {:5.1} % {:5.1} %\n", measures[0], measures[1], measures[2]);
    }
    table
}

/// Formats one line per nonzero cell: the actual class, the predicted one and the count.
fn list(counts: &ConfusionMatrix, classes: &[String]) -> String {
    let lines = counts.cells().map(|(right, read, count)| format!("{}\t{}\t{count}\n", classes[right], classes[read]));
    format!("{} classes, nonzero cells\nactual\tpredicted\tcount\n{}", classes.len(), lines.collect::<String>())
}

/// Returns the classes of the image in their order: all, or those with the most errors.
fn shown(counts: &ConfusionMatrix) -> Vec<usize> {
    let mut classes: Vec<usize> = (0..counts.num_classes).collect();
    if classes.len() > SHOWN {
        classes.sort_by_key(|class| std::cmp::Reverse((counts.errors(*class), counts.support(*class))));
        classes.truncate(SHOWN);
        classes.sort_unstable();
    }
    classes
}

/// Formats a table of binary labels: true and false positives and negatives, accuracy, precision, recall, F1 and ROC AUC.
pub fn answers(each: &[LabelMetrics], counts: &[ConfusionMatrix]) -> String {
    let labels: Vec<_> = each.iter().map(|each| console::escaped(&each.label)).collect();
    let name = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max("label".len());
    let mut table = format!(
        "{:name$}             TP   FN            FP    TN accuracy  precision  recall      F1     AUC\n",
        "label"
    );
    for ((each, label), counts) in each.iter().zip(&labels).zip(counts) {
        let [yes, missed, found, no] = [(1, 1), (1, 0), (0, 1), (0, 0)].map(|(right, read)| counts.count(right, read));
        table += &format!("{label:name$}  {yes:>13} {missed:>4}  {found:>12} {no:>5}");
        let [right, precision, recall, f1] =
            [counts.accuracy(), counts.precision(1), counts.recall(1), counts.f1(1)].map(|share| share * 100.0);
        table += &format!("  {right:5.1} %    {precision:5.1} % {recall:5.1} % {f1:5.1} %");
        table += &each.roc_auc.map_or("       –\n".to_string(), |auc| format!("  {auc:.4}\n"));
    }
    table
}

/// Maximum number of classes for which the image shows counts.
const NUMBERED: usize = 24;

/// Draws cells shaded by the fraction of the actual class, with counts; with many classes only those with the most errors.
pub fn draw(counts: &ConfusionMatrix, classes: &[String]) -> String {
    let shown = shown(counts);
    let side = if shown.len() <= NUMBERED { 40.0 } else { 12.0 };
    let labels: Vec<String> = shown.iter().map(|class| label(&classes[*class], LABEL)).collect();
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(1) as f64;
    let margin = 34.0 + longest * LETTER;
    let size = shown.len() as f64 * side;
    let (width, height) = (margin + size + 16.0, margin + size + 16.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"confusion matrix\">{STYLE}\
         <style>.cell{{fill:#0a84d6}}.deep{{fill:#fff}}</style>\n"
    );
    let middle = margin + size / 2.0;
    let part = if shown.len() < classes.len() {
        format!(" ({} classes of {} with the most errors)", shown.len(), classes.len())
    } else {
        String::new()
    };
    svg += &format!("<text class=\"title\" x=\"{middle}\" y=\"18\" text-anchor=\"middle\">predicted{part}</text>\n");
    svg += &format!(
        "<text class=\"title\" transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">actual</text>\n"
    );
    for (row, right) in shown.iter().enumerate() {
        let at = margin + (row as f64 + 0.5) * side;
        let class = format!("<title>{}</title>{}", escaped(&classes[*right]), escaped(&labels[row]));
        svg += &format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{class}</text>", margin - 6.0, at + 4.0);
        svg += &format!("<text transform=\"translate({} {}) rotate(-90)\">{class}</text>\n", at + 4.0, margin - 6.0);
        svg += &squares(counts, (row, *right), &shown, (margin, side));
        svg.push('\n');
    }
    svg + &format!("<path class=\"axis\" d=\"M{margin} {margin}h{size}v{size}h-{size}z\"/>\n</svg>\n")
}

/// Draws the cells of an actual class in its row.
fn squares(
    counts: &ConfusionMatrix,
    (row, right): (usize, usize),
    shown: &[usize],
    (margin, side): (f64, f64),
) -> String {
    let mut svg = String::new();
    for (column, read) in shown.iter().enumerate() {
        let count = counts.count(right, *read);
        let share = count as f64 / counts.support(right).max(1) as f64;
        let (x, y) = (margin + column as f64 * side, margin + row as f64 * side);
        svg += &format!(
            "<rect class=\"cell\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill-opacity=\"{share:.3}\"/>"
        );
        if count > 0 && shown.len() <= NUMBERED {
            let deep = if share > 0.5 { " class=\"deep\"" } else { "" };
            let (x, y) = (x + side / 2.0, y + side / 2.0 + 4.5);
            svg += &format!("<text{deep} x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{count}</text>");
        }
    }
    svg
}

/// Maximum number of characters of a class name in the image.
const LABEL: usize = 24;

/// Returns a name with at most `most` characters, the last of which is … if some are missing.
pub fn label(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        None => name.to_string(),
        Some(_) => name.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Escapes text for SVG; control characters, which XML mostly cannot represent, are escaped as in the terminal.
pub fn escaped(text: &str) -> String {
    console::escaped(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_image_show_every_count() {
        let (right, read): (Vec<i32>, Vec<i32>) =
            [(0, 0, 31), (0, 1, 4), (1, 1, 59)].iter().flat_map(|(a, b, n)| vec![(*a, *b); *n]).unzip();
        let counts = ConfusionMatrix::of(&right, &read, 2).unwrap();
        let classes = ["cat".to_string(), "<dog>".to_string()];
        let want = "actual \\ predicted   cat <dog>  precision  recall     F1\n\
                    cat                   31     4    100.0 %  88.6 %  93.9 %\n\
                    <dog>                  0    59     93.7 % 100.0 %  96.7 %\n\
                    accuracy 95.74 %, macro F1 95.33 %\n";
        assert_eq!(text(&counts, &classes), want);
        let svg = draw(&counts, &classes);
        for part in [">31<", ">4<", ">59<", "&lt;dog&gt;", "fill-opacity=\"1.000\""] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains(">0<") && svg.matches("<rect").count() == 4);
    }

    #[test]
    fn long_names_are_shortened_to_the_margin() {
        let counts = ConfusionMatrix::of(&[0, 1], &[0, 1], 2).unwrap();
        let svg = draw(&counts, &["x".repeat(80), "y".to_string()]);
        let short = format!("</title>{}…</text>", "x".repeat(23));
        assert_eq!(svg.matches(&short).count(), 2, "{svg}");
        assert!(svg.contains(&format!("<title>{}</title>", "x".repeat(80))));
        let width: f64 = svg.split("viewBox=\"0 0 ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(width, 34.0 + 24.0 * LETTER + 2.0 * 40.0 + 16.0);
    }

    /// The output size depends on the number of examples, not on the square of the number of classes.
    #[test]
    fn output_for_many_classes_is_small() {
        let classes: Vec<String> = (0..10_000).map(|class| format!("user{class:05}")).collect();
        let right: Vec<i32> = (0..2000).map(|at| at * 5).collect();
        let read: Vec<i32> = right.iter().map(|class| if *class < 100 { 9_999 } else { *class }).collect();
        let counts = ConfusionMatrix::of(&right, &read, classes.len()).unwrap();
        let (list, picture) = (text(&counts, &classes), draw(&counts, &classes));
        assert_eq!(list.lines().count(), 2 + 2000 + 1);
        assert!(
            list.contains("user00095\tuser09999\t1\n") && list.ends_with("accuracy 99.00 %, macro F1 98.95 %\n"),
            "{}",
            list.len()
        );
        assert!(picture.len() < 400_000 && picture.matches("<rect").count() == SHOWN * SHOWN, "{}", picture.len());
        assert!(picture.contains("50 classes of 10000 with the most errors") && picture.contains("user09999"));
    }
}
