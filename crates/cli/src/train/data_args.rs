//! Options for reading training data, from the command line or the section `[data]` of a FILE.toml.

use clap::{Args, ValueEnum};
use panoply::nn::data::TextEncoding;
use panoply::nn::data::reader::{DecimalMark, MissingValues, ReadOptions, Task};

/// Options for reading data; a resumed run keeps them.
#[derive(Args, Clone, Debug, Default)]
pub struct DataArgs {
    /// Task [default: detected from the data]
    #[arg(long, value_enum)]
    pub task: Option<TaskArg>,
    /// Target column of a table, by name or number (from 1). Several columns, separated by commas or by repeating the option, are a
    /// multilabel task if they hold only 0 and 1, otherwise a regression of several outputs
    /// [default: a column named label, labels, class, target, y, species, category or outcome, otherwise the last one]
    #[arg(long, visible_alias = "target", value_name = "COLUMN")]
    pub label: Vec<String>,
    /// Columns of a table to leave out, by name or number
    #[arg(long, visible_alias = "without", value_name = "COLUMN")]
    pub drop_columns: Vec<String>,
    /// Numeric columns of a table to treat as categories, such as zip codes or months
    #[arg(long, value_name = "COLUMN")]
    pub categorical: Vec<String>,
    /// Also read index columns: columns without a name and indexes that pandas wrote
    #[arg(long)]
    pub keep_columns: bool,
    /// Column whose value groups rows into sequences: rows with the same value are one example
    #[arg(long, visible_alias = "sequence", value_name = "COLUMN")]
    pub sequence_column: Option<String>,
    /// The first line of a table contains column names [default: detected]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub header: Option<bool>,
    /// The first line of a table is an example
    #[arg(long, conflicts_with = "header")]
    pub no_header: bool,
    /// Treatment of missing values in a table [default: the median of numbers and the most frequent category; a feature marks them if
    /// more than 5 % are missing]
    #[arg(long, value_enum)]
    pub missing: Option<MissingArg>,
    /// Decimal mark of the numbers in a table of text [default: detected]
    #[arg(long, value_enum)]
    pub decimal: Option<DecimalArg>,
    /// Encoding of a text or of a table of text, such as latin1, windows-1252 or shift_jis [default: UTF-8 or UTF-16, detected]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    pub encoding: Option<TextEncoding>,
    /// Resize images to this height and width, such as 32x32 [default: their own size, which must be the same for all]
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = image_size)]
    pub image_size: Option<(usize, usize)>,
    /// Characters of context of a text model [default: 64]
    #[arg(long, visible_alias = "context", value_name = "N")]
    pub context_length: Option<usize>,
}

/// Task.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TaskArg {
    /// One class per example
    Classification,
    /// One or several numbers per example
    Regression,
    /// Several yes/no labels per example
    #[value(name = "multilabel")]
    MultiLabel,
    /// The next character of a text
    Text,
}

/// Treatments of missing values as the command line spells them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MissingArg {
    /// Refuse the file
    Error,
    /// Leave their rows out
    Drop,
    /// Replace them by the mean of the column
    Mean,
    /// Replace them by the median of the column
    Median,
    /// Replace them by the most frequent value of the column
    MostFrequent,
}

/// Decimal marks as the command line spells them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DecimalArg {
    /// 1,234.5
    Point,
    /// 1.234,5
    Comma,
}

impl DataArgs {
    /// Returns these options, with those of `other` where an option is not set.
    #[must_use]
    pub fn merged_over(self, other: DataArgs) -> DataArgs {
        let several = |here: Vec<String>, there: Vec<String>| if here.is_empty() { there } else { here };
        let header = self.header().or(other.header());
        DataArgs {
            task: self.task.or(other.task),
            label: several(self.label, other.label),
            drop_columns: several(self.drop_columns, other.drop_columns),
            categorical: several(self.categorical, other.categorical),
            keep_columns: self.keep_columns || other.keep_columns,
            sequence_column: self.sequence_column.or(other.sequence_column),
            header,
            no_header: false,
            missing: self.missing.or(other.missing),
            decimal: self.decimal.or(other.decimal),
            encoding: self.encoding.or(other.encoding),
            image_size: self.image_size.or(other.image_size),
            context_length: self.context_length.or(other.context_length),
        }
    }

    /// Returns true if the first line is a header, if that is set.
    fn header(&self) -> Option<bool> {
        self.header.or(self.no_header.then_some(false))
    }

    /// Returns the options for the reader.
    pub fn read_options(self) -> ReadOptions {
        let task = self.task.map(|task| match task {
            TaskArg::Classification => Task::Classification,
            TaskArg::Regression => Task::Regression,
            TaskArg::MultiLabel => Task::MultiLabel,
            TaskArg::Text => Task::Text,
        });
        let header = self.header();
        let DataArgs {
            label: labels,
            drop_columns: without,
            categorical,
            keep_columns,
            sequence_column: sequence,
            missing,
            decimal,
            encoding,
            image_size,
            context_length: context,
            ..
        } = self;
        let missing = missing.map(|missing| match missing {
            MissingArg::Error => MissingValues::Error,
            MissingArg::Drop => MissingValues::Drop,
            MissingArg::Mean => MissingValues::Mean,
            MissingArg::Median => MissingValues::Median,
            MissingArg::MostFrequent => MissingValues::MostFrequent,
        });
        let decimal = decimal.map(|decimal| match decimal {
            DecimalArg::Point => DecimalMark::Point,
            DecimalArg::Comma => DecimalMark::Comma,
        });
        ReadOptions {
            label_columns: labels,
            sequence_column: sequence,
            drop_columns: without,
            categorical,
            keep_columns,
            // Part of `--val-split`.
            group_column: None,
            header,
            missing,
            decimal,
            encoding,
            image_size,
            task,
            context_length: context,
            ..ReadOptions::default()
        }
    }
}

fn encoding(text: &str) -> Result<TextEncoding, String> {
    TextEncoding::from_name(text)
        .ok_or_else(|| "take a name such as utf-8, latin1, windows-1252 or utf-16le".to_string())
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("expected true or false".to_string()),
    }
}

fn image_size(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once(['x', '×']).unwrap_or((text, text));
    match (rows.parse(), columns.parse()) {
        (Ok(rows @ 1..=65536), Ok(columns @ 1..=65536)) => Ok((rows, columns)),
        _ => Err("expected two numbers such as 32x32".to_string()),
    }
}
