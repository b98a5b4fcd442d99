//! Dates in orders other than year, month, day. A cell alone does not tell the order of day and month, so that the cells of a whole column
//! decide.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use serde::{Deserialize, Serialize};

use super::numbers::seconds;

/// Order in which the cells of a column write a date. Days and months have one or two digits, years four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DateOrder {
    /// `31.12.2024`
    DayMonthYearPoints,
    /// `31/12/2024`
    DayMonthYearSlashes,
    /// `12/31/2024`
    MonthDayYearSlashes,
    /// `31-12-2024`
    DayMonthYearDashes,
    /// `Dec 31 2024` or `December 31, 2024`
    MonthNameDayYear,
    /// `31 Dec 2024` or `31 December 2024`
    DayMonthNameYear,
}

/// The order of the dates of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnDates {
    /// Every cell is a date in this order, and in no other.
    Order(DateOrder),
    /// Every cell is a date in several orders.
    Ambiguous,
}

impl DateOrder {
    const ALL: [DateOrder; 6] = [
        DateOrder::DayMonthYearPoints,
        DateOrder::DayMonthYearSlashes,
        DateOrder::MonthDayYearSlashes,
        DateOrder::DayMonthYearDashes,
        DateOrder::MonthNameDayYear,
        DateOrder::DayMonthNameYear,
    ];

    /// Returns the seconds since 1970 of a date in this order, with or without a time of day in UTC (`31.12.2024 12:30`).
    pub(super) fn seconds(self, cell: &str) -> Option<f64> {
        let (first, second, year, time) = match self {
            DateOrder::MonthNameDayYear | DateOrder::DayMonthNameYear => {
                let mut words = cell.split_ascii_whitespace();
                let (first, second, year) = (words.next()?, words.next()?, words.next()?);
                let time = words.next();
                if words.next().is_some() {
                    return None;
                }
                (first, second.strip_suffix(',').unwrap_or(second), year, time)
            }
            DateOrder::DayMonthYearPoints
            | DateOrder::DayMonthYearSlashes
            | DateOrder::MonthDayYearSlashes
            | DateOrder::DayMonthYearDashes => {
                let (date, time) = cell.split_once(' ').map_or((cell, None), |(date, time)| (date, Some(time)));
                let mut numbers = date.splitn(3, self.separator());
                (numbers.next()?, numbers.next()?, numbers.next()?, time)
            }
        };
        let (day, month) = match self {
            DateOrder::MonthDayYearSlashes => (second, number(first, 1..=2)?),
            DateOrder::MonthNameDayYear => (second, month_of(first)?),
            DateOrder::DayMonthNameYear => (first, month_of(second)?),
            DateOrder::DayMonthYearPoints | DateOrder::DayMonthYearSlashes | DateOrder::DayMonthYearDashes => {
                (first, number(second, 1..=2)?)
            }
        };
        let date = NaiveDate::from_ymd_opt(number(year, 4..=4)? as i32, month, number(day, 1..=2)?)?;
        let time = match time {
            Some(time) => {
                let format = if time.matches(':').count() == 1 { "%H:%M" } else { "%H:%M:%S%.f" };
                NaiveTime::parse_from_str(time, format).ok()?
            }
            None => NaiveTime::MIN,
        };
        Some(seconds(NaiveDateTime::new(date, time)))
    }

    /// Returns a date in this order.
    pub(super) fn example(self) -> &'static str {
        match self {
            DateOrder::DayMonthYearPoints => "31.12.2024",
            DateOrder::DayMonthYearSlashes => "31/12/2024",
            DateOrder::MonthDayYearSlashes => "12/31/2024",
            DateOrder::DayMonthYearDashes => "31-12-2024",
            DateOrder::MonthNameDayYear => "Dec 31 2024",
            DateOrder::DayMonthNameYear => "31 Dec 2024",
        }
    }

    fn separator(self) -> char {
        match self {
            DateOrder::DayMonthYearPoints => '.',
            DateOrder::DayMonthYearSlashes | DateOrder::MonthDayYearSlashes => '/',
            DateOrder::DayMonthYearDashes => '-',
            DateOrder::MonthNameDayYear | DateOrder::DayMonthNameYear => ' ',
        }
    }
}

impl ColumnDates {
    /// Returns the order in which all cells are dates; `None` if there is none, or no cell.
    pub fn of<'c>(cells: impl Iterator<Item = &'c str>) -> Option<ColumnDates> {
        let (mut orders, mut is_empty) = (DateOrder::ALL.to_vec(), true);
        for cell in cells {
            is_empty = false;
            orders.retain(|order| order.seconds(cell).is_some());
            if orders.is_empty() {
                return None;
            }
        }
        match orders[..] {
            _ if is_empty => None,
            [order] => Some(ColumnDates::Order(order)),
            _ => Some(ColumnDates::Ambiguous),
        }
    }
}

/// Returns the number in a text of this many digits.
fn number(digits: &str, length: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_number = length.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Returns the month with this English name or its first three letters, counted from 1.
fn month_of(name: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let name = name.to_ascii_lowercase();
    let month = MONTHS.iter().position(|month| *month == name || month[..3] == name)?;
    Some(month as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are `datetime(year, month, day, …, tzinfo=timezone.utc).timestamp()`.
    #[test]
    fn dates_in_each_order() {
        const DAY: f64 = 1_735_603_200.0;
        for (cell, order, expected) in [
            ("31.12.2024", DateOrder::DayMonthYearPoints, DAY),
            ("1.2.1970", DateOrder::DayMonthYearPoints, 31.0 * 86_400.0),
            ("31.12.2024 12:30", DateOrder::DayMonthYearPoints, DAY + 45_000.0),
            ("31/12/2024", DateOrder::DayMonthYearSlashes, DAY),
            ("12/31/2024", DateOrder::MonthDayYearSlashes, DAY),
            ("12/31/2024 12:30:00.5", DateOrder::MonthDayYearSlashes, DAY + 45_000.5),
            ("31-12-2024", DateOrder::DayMonthYearDashes, DAY),
            ("Dec 31 2024", DateOrder::MonthNameDayYear, DAY),
            ("december 31, 2024", DateOrder::MonthNameDayYear, DAY),
            ("31 Dec 2024", DateOrder::DayMonthNameYear, DAY),
            ("29 February 2024 00:01", DateOrder::DayMonthNameYear, 1_709_164_860.0),
        ] {
            assert_eq!(order.seconds(cell), Some(expected), "{cell}");
            let read = ColumnDates::of([cell].into_iter());
            assert_eq!(read, Some(ColumnDates::Order(order)), "{cell}");
        }
        for order in DateOrder::ALL {
            assert_eq!(order.seconds(order.example()), Some(DAY), "{order:?}");
        }
        for cell in [
            "31.12.24",
            "2024-12-31",
            "31.13.2024",
            "29.02.2023",
            "1.2",
            "1.2.3.2024",
            "+1.2.2024",
            "31.12.2024 25:00",
            "Dez 31 2024",
            "Dec 2024",
            "Dec 31 2024 12:30 PM",
            "31 12 2024",
            "",
            "1,2",
        ] {
            assert_eq!(ColumnDates::of([cell].into_iter()), None, "{cell}");
        }
    }

    #[test]
    fn order_of_a_column_fits_every_cell() {
        let of = |cells: &[&str]| ColumnDates::of(cells.iter().copied());
        assert_eq!(of(&["01/02/2024", "03/04/2024"]), Some(ColumnDates::Ambiguous));
        let days_first = Some(ColumnDates::Order(DateOrder::DayMonthYearSlashes));
        assert_eq!(of(&["01/02/2024", "13/04/2024"]), days_first);
        assert_eq!(of(&["01/02/2024", "04/13/2024"]), Some(ColumnDates::Order(DateOrder::MonthDayYearSlashes)));
        assert_eq!(of(&["13/04/2024", "04/13/2024"]), None);
        assert_eq!(of(&["13.04.2024", "2024-04-13"]), None);
        assert_eq!(of(&[]), None);
    }
}
