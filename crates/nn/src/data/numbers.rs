//! Cells of tables as numbers: plain, with percent or currency signs, grouped digits, decimal commas, and dates.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// The finite number in a cell: as Rust writes it, with a percent sign, a currency sign or groups of three digits (`45%`, `$12.50`,
/// `1,234`), or the seconds since 1970 of a date (`2024-02-29`, `2024-02-29 12:30:00`).
pub(super) fn number(cell: &str) -> Option<f64> {
    let plain = |cell: &str| cell.parse::<f64>().ok().filter(|number| number.is_finite());
    if let Some(number) = plain(cell) {
        return Some(number);
    }
    if !cell.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Some(seconds) = date(cell) {
        return Some(seconds);
    }
    let (sign, rest) = match cell.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, cell),
    };
    let bare = rest.trim_start_matches(CURRENCIES).trim_end_matches(CURRENCIES);
    let bare = bare.strip_suffix('%').unwrap_or(bare).trim();
    let digits = match bare.contains(',') {
        true => ungrouped(bare)?,
        false => bare.to_string(),
    };
    // The sign is parsed already, and names of infinity have no digits.
    if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    plain(&digits).map(|number| sign * number)
}

/// Seconds since 1970 of a date in the order year, month, day, with or without a time of day; a time without a zone is in UTC.
///
/// Other orders are ambiguous and stay words.
fn date(cell: &str) -> Option<f64> {
    // Four digits and a separator: most cells are not dates.
    let separator = *cell.as_bytes().get(4)?;
    if !matches!(separator, b'-' | b'/') || !cell.as_bytes()[..4].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let cell = &cell.replace('/', "-");
    if let Ok(day) = NaiveDate::parse_from_str(cell, "%Y-%m-%d") {
        return Some(seconds(day.and_hms_opt(0, 0, 0)?));
    }
    for format in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(cell.trim_end_matches('Z'), format) {
            return Some(seconds(time));
        }
    }
    let zoned = |format: &str| DateTime::parse_from_str(cell, format).ok();
    let time = zoned("%Y-%m-%dT%H:%M:%S%.f%:z").or_else(|| zoned("%Y-%m-%d %H:%M:%S%.f%:z"))?;
    Some(seconds(time.naive_utc()))
}

fn seconds(time: NaiveDateTime) -> f64 {
    let time = time.and_utc();
    time.timestamp() as f64 + f64::from(time.timestamp_subsec_nanos()) / 1e9
}

/// Currency signs before or behind an amount.
const CURRENCIES: [char; 6] = ['$', '€', '£', '¥', '₹', '₩'];

/// The digits of a number with a comma before each group of three in its whole part; `None` if it is written otherwise.
fn ungrouped(text: &str) -> Option<String> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next().filter(|first| (1..=3).contains(&first.len()) && digits(first))?;
    let rest: Vec<&str> = groups.collect();
    let grouped = !rest.is_empty() && rest.iter().all(|group| group.len() == 3 && digits(group));
    let fraction = fraction.map_or(Some(String::new()), |fraction| digits(fraction).then(|| format!(".{fraction}")))?;
    grouped.then(|| format!("{first}{}{fraction}", rest.concat()))
}

/// The parts of a number around which a currency or percent sign may stand; `None` if the cell has other characters.
pub(super) fn numeric_part(cell: &str) -> Option<&str> {
    let bare = cell.trim_start_matches(['-', '+']).trim_matches(CURRENCIES);
    let bare = bare.strip_suffix('%').unwrap_or(bare).trim();
    let numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',');
    (!bare.is_empty() && bare.bytes().all(numeric)).then_some(bare)
}

/// Tells whether a cell is a number with a decimal comma: `Some(true)` for `3,5` and `1.234,5`, `Some(false)` for `3.5` and `1,234.5`; `None`
/// for other cells and for those that can be both, such as `1,234`.
pub(super) fn has_decimal_comma(cell: &str) -> Option<bool> {
    let number = numeric_part(cell)?;
    let groups = |whole: &str, mark: char| {
        let mut parts = whole.split(mark);
        parts.next().is_some_and(|first| (1..=3).contains(&first.len())) && parts.all(|part| part.len() == 3)
    };
    match (number.rfind(','), number.rfind('.')) {
        (Some(comma), Some(point)) if point < comma => {
            (number.matches(',').count() == 1 && groups(&number[..comma], '.')).then_some(true)
        }
        (Some(_), Some(_)) => Some(false),
        (Some(comma), None) if number.matches(',').count() > 1 => {
            groups(number, ',').then_some(false).filter(|_| comma > 0)
        }
        // Three digits behind the comma may be a group, unless more than three or a lone zero are before it.
        (Some(comma), None) => {
            let (whole, fraction) = (&number[..comma], &number[comma + 1..]);
            let is_group = fraction.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
            (!is_group && !whole.is_empty() && !fraction.is_empty()).then_some(true)
        }
        (None, Some(point)) if number.matches('.').count() == 1 => {
            let (whole, fraction) = (&number[..point], &number[point + 1..]);
            let is_group = fraction.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
            (!is_group).then_some(false)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dates are `datetime.fromisoformat(text).timestamp()` in UTC.
    #[test]
    fn cells_that_are_numbers() {
        for (cell, wanted) in [
            ("45%", 45.0),
            ("$12.50", 12.5),
            ("-1,234.5", -1234.5),
            ("7 €", 7.0),
            ("1970-01-02", 86_400.0),
            ("2024-02-29", 1_709_164_800.0),
            ("2024/02/29", 1_709_164_800.0),
            ("2024-02-29 12:30:00", 1_709_209_800.0),
            ("2024-02-29T12:30:00.25Z", 1_709_209_800.25),
            ("2024-02-29T12:30:00+02:00", 1_709_202_600.0),
        ] {
            assert_eq!(number(cell), Some(wanted), "{cell}");
        }
        for cell in ["2023-02-29", "29/02/2024", "12,34", "a1", "inf", "1,23,456", "2024-02"] {
            assert_eq!(number(cell), None, "{cell}");
        }
    }

    #[test]
    fn decimal_commas_are_distinguished_from_thousands_separators() {
        for (cell, wanted) in [
            ("3,5", Some(true)),
            ("-0,125 €", Some(true)),
            ("1.234,5", Some(true)),
            ("12345,678", Some(true)),
            ("3.5", Some(false)),
            ("1,234.5", Some(false)),
            ("1,234,567", Some(false)),
            ("1,234", None),
            ("1.234", None),
            ("42", None),
            ("a,5", None),
            ("1,2,3", None),
            (",5", None),
        ] {
            assert_eq!(has_decimal_comma(cell), wanted, "{cell}");
        }
    }
}
