//! How what is learned from is read, said on the command line or in the section `[data]` of a FILE.toml.

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use panoply::nn::data::source::{Reading, Task};

/// What the data leave open; a run that goes on keeps to it.
#[derive(Args, Clone, Debug, Default)]
pub struct View {
    /// What is learned: classes, numbers, answers of yes or no, or a text; what DATA looks like if nothing is said.
    #[arg(long, value_enum)]
    pub task: Option<TaskName>,
    /// The column of a table that is learned, by name or counted from 1. Several, with commas between or said several times, are
    /// learned together: as answers if they hold 0 and 1 alone, as numbers otherwise.
    #[arg(long, visible_alias = "target", value_name = "COLUMN")]
    pub label: Vec<String>,
    /// Columns of a table that are not read, said as those that are learned.
    #[arg(long, value_name = "COLUMN")]
    pub without: Vec<String>,
    /// Columns of a table whose cells are categories, such as zip codes or months, said as those that are learned.
    #[arg(long, value_name = "COLUMN")]
    pub categorical: Vec<String>,
    /// Read columns of a table that index its rows as well: those without a name, and those that pandas wrote as an index.
    #[arg(long)]
    pub keep_columns: bool,
    /// The column of a table that says which rows are one example, a sequence: those with the same in it.
    #[arg(long, value_name = "COLUMN")]
    pub sequence: Option<String>,
    /// Whether the first line of a table names its columns; what it looks like if nothing is said.
    #[arg(long, value_name = "YES|NO", value_parser = BoolishValueParser::new())]
    pub header: Option<bool>,
    /// Rows and columns to which images are scaled, such as 32x32.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = image_size)]
    pub image_size: Option<(usize, usize)>,
    /// Characters that a network of text reads at a time; 64 if nothing is said.
    #[arg(long, value_name = "CHARACTERS")]
    pub context: Option<usize>,
}

/// What is learned, as it is spelled on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TaskName {
    /// A class for each example.
    Classes,
    /// Numbers for each example.
    Numbers,
    /// Answers of yes or no for each example.
    Answers,
    /// Each character of a text.
    Text,
}

impl View {
    /// What is said here, and what another says where nothing is.
    #[must_use]
    pub fn over(self, other: View) -> View {
        let several = |here: Vec<String>, there: Vec<String>| if here.is_empty() { there } else { here };
        View {
            task: self.task.or(other.task),
            label: several(self.label, other.label),
            without: several(self.without, other.without),
            categorical: several(self.categorical, other.categorical),
            keep_columns: self.keep_columns || other.keep_columns,
            sequence: self.sequence.or(other.sequence),
            header: self.header.or(other.header),
            image_size: self.image_size.or(other.image_size),
            context: self.context.or(other.context),
        }
    }

    /// The same for whoever reads.
    pub fn reading(self) -> Reading {
        let task = self.task.map(|task| match task {
            TaskName::Classes => Task::Classes,
            TaskName::Numbers => Task::Numbers,
            TaskName::Answers => Task::Answers,
            TaskName::Text => Task::Text,
        });
        let View { label: labels, without, categorical, keep_columns, sequence, header, image_size, context, .. } =
            self;
        Reading { labels, sequence, without, categorical, keep_columns, header, image_size, task, context }
    }
}

fn image_size(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once(['x', '×']).unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..=65536), Ok(columns @ 1..=65536)) => Ok((rows, columns)),
        _ => Err("take two numbers such as 32x32".to_string()),
    }
}
