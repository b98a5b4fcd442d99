//! `predictions.csv` of a run: the validation examples with their actual and predicted values.
//!
//! The column `row` is the line of the file in which an example begins, or for other data its position, so that the table can be joined with
//! the data.

use panoply::nn::data::Dataset;

use super::metrics::argmax;
use crate::csv_cell::quoted;

/// Returns a table of the class of each example, the predicted class and its probability.
pub fn of_classes(held: &Dataset, probabilities: &[f32], classes: &[String]) -> String {
    let mut table = "row,actual,predicted,probability\n".to_string();
    let rows = held.labels().iter().zip(probabilities.chunks_exact(classes.len()));
    for (example, (actual, row)) in rows.enumerate() {
        let predicted = argmax(row);
        let [actual, name] = [*actual as usize, predicted].map(|class| quoted(&classes[class]));
        table += &format!("{},{actual},{name},{}\n", held.row_number(example), row[predicted]);
    }
    table
}

/// Returns a table of the values of each example and the predicted ones. Each example has one value per name; the offset of the name is
/// added to it.
pub fn of_numbers(held: &Dataset, values: &[f32], predictions: &[f32], offsets: &[f64], names: &[String]) -> String {
    let heads: Vec<String> = match names {
        [_] => vec!["actual".to_string(), "predicted".to_string()],
        several => several.iter().flat_map(|name| [format!("{name} actual"), format!("{name} predicted")]).collect(),
    };
    let heads: Vec<_> = heads.iter().map(|head| quoted(head)).collect();
    // An f32 has fewer digits than the f64 that is equal to it.
    let shown = |at: usize, value: f32| match offsets.get(at).copied().unwrap_or(0.0) {
        0.0 => value.to_string(),
        offset => (f64::from(value) + offset).to_string(),
    };
    let mut table = format!("row,{}\n", heads.join(","));
    let width = names.len().max(1);
    for (example, (actual, predicted)) in values.chunks_exact(width).zip(predictions.chunks_exact(width)).enumerate() {
        table += &held.row_number(example).to_string();
        for (at, (actual, predicted)) in actual.iter().zip(predicted).enumerate() {
            table += &format!(",{},{}", shown(at, *actual), shown(at, *predicted));
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(numbers: &[usize]) -> Dataset {
        let data = Dataset::classification(vec![0.0; numbers.len()], vec![1, 0]).num_classes(2).build().unwrap();
        Dataset { row_numbers: Some(numbers.to_vec()), ..data }
    }

    #[test]
    fn rows_and_classes_are_named() {
        let classes = ["a,b".to_string(), "c".to_string()];
        let table = of_classes(&held(&[12, 7]), &[0.75, 0.25, 0.5, 0.5], &classes);
        assert_eq!(table, "row,actual,predicted,probability\n12,c,\"a,b\",0.75\n7,\"a,b\",c,0.5\n");
    }

    #[test]
    fn each_target_has_two_columns() {
        let names = ["x".to_string(), "y, z".to_string()];
        let (values, read) = ([1.0, 0.5, 2.0, 0.25], [1.5, 0.0, -2.0, 0.75]);
        let table = of_numbers(&held(&[3, 4]), &values, &read, &[0.0, 1e9], &names);
        let expected = "row,x actual,x predicted,\"y, z actual\",\"y, z predicted\"\n3,1,1.5,1000000000.5,1000000000\n\
                        4,2,-2,1000000000.25,1000000000.75\n";
        assert_eq!(table, expected);
        let one = of_numbers(&held(&[3, 4]), &values[..2], &read[..2], &[], &names[..1]);
        assert_eq!(one, "row,actual,predicted\n3,1,1.5\n4,0.5,0\n");
    }
}
