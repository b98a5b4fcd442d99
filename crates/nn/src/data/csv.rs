//! Tables of numbers as text: one example a line, columns divided by commas, semicolons or tabs.

use std::path::Path;

use panoply_tensor::{Error, Result};

use super::{Dataset, read};

/// A table of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns, if the first line has them.
    pub names: Option<Vec<String>>,
    /// How many columns there are.
    pub width: usize,
    /// One row after another.
    pub values: Vec<f32>,
}

/// Reads a table. The first line is taken as names if a cell of it is no number. Empty lines are passed over.
pub fn load(path: &Path) -> Result<Table> {
    let text = String::from_utf8(read(path)?);
    let text = text.map_err(|error| Error::corrupt(format!("{}: {error}", path.display())).caused_by(error))?;
    parse(&text).map_err(|(line, what)| Error::corrupt(format!("{}:{line}: {what}", path.display())))
}

fn parse(text: &str) -> Result<Table, (usize, String)> {
    let text = text.trim_start_matches('\u{feff}');
    let divider =
        [',', ';', '\t'].into_iter().find(|divider| text.lines().next().is_some_and(|line| line.contains(*divider)));
    let mut table = Table { names: None, width: 0, values: Vec::new() };
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(divider.unwrap_or(',')).map(|cell| cell.trim().trim_matches('"')).collect();
        let numbers: Result<Vec<f32>, String> =
            cells.iter().map(|cell| cell.parse().map_err(|_| format!("`{cell}` is no number"))).collect();
        match numbers {
            Err(_) if table.width == 0 => {
                table.names = Some(cells.iter().map(|cell| cell.to_string()).collect());
                table.width = cells.len();
            }
            Err(what) => return Err((number + 1, what)),
            Ok(numbers) => {
                if table.width == 0 {
                    table.width = numbers.len();
                }
                if numbers.len() != table.width {
                    return Err((number + 1, format!("{} cells, not {} as above", numbers.len(), table.width)));
                }
                table.values.extend(numbers);
            }
        }
    }
    Ok(table)
}

impl Table {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// Examples of which this column, counted from 0, is the class: a whole number below `classes`.
    pub fn classified(&self, column: usize, classes: usize) -> Result<Dataset> {
        if column >= self.width {
            return Err(Error::mistake(format!("there is no column {column} in a table of {}", self.width)));
        }
        let (mut features, mut labels) = (Vec::with_capacity(self.values.len()), Vec::with_capacity(self.rows()));
        for (row, cells) in self.values.chunks_exact(self.width).enumerate() {
            let class = cells[column];
            if class.fract() != 0.0 || !(0.0..classes as f32).contains(&class) {
                return Err(Error::mistake(format!("row {row} has class {class}, not one of 0 .. {classes}")));
            }
            labels.push(class as i32);
            features.extend(cells[..column].iter().chain(&cells[column + 1..]));
        }
        Dataset::new(features, self.width - 1, labels, classes)
    }
}
