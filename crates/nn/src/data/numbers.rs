//! Cells of tables as numbers: plain, with percent or currency signs, grouped digits, decimal commas, and dates.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// The finite number in a cell: as Rust writes it, with a percent sign, a currency sign or groups of three digits (`45%`, `$12.50`,
/// `1,234`), or the seconds since 1970 of a date (`2024-02-29`, `2024-02-29 12:30:00`).
pub(super) fn number(cell: &str) -> Option<f64> {
    if let Some(number) = short_decimal(cell) {
        return Some(number);
    }
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

/// The number in a cell of at most 15 digits with an optional sign and point. `None` for all other cells.
///
/// Its digits as an integer and the power of ten are exact in f64, so that the quotient is rounded once and equals that of `str::parse`.
///
/// Source: W. D. Clinger, "How to read floating point numbers accurately", 1990.
fn short_decimal(cell: &str) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (is_negative, digits) = match cell.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        bytes => (false, bytes),
    };
    if digits.is_empty() || digits.len() >= POWERS.len() {
        return None;
    }
    let (mut number, mut point) = (0u64, None);
    for (at, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            number = 10 * number + u64::from(digit);
        } else if *byte == b'.' && point.is_none() {
            point = Some(at);
        } else {
            return None;
        }
    }
    // A point alone is not a number.
    let fraction = point.map_or(0, |point| digits.len() - point - 1);
    if digits.len() == 1 && point.is_some() {
        return None;
    }
    let number = number as f64 / POWERS[fraction];
    Some(if is_negative { -number } else { number })
}

/// Seconds since 1970 of a date in the order year, month, day, with or without a time of day; a time without a zone is in UTC.
///
/// In other orders the cells of a whole column are dates; see [`super::dates`].
pub(super) fn date(cell: &str) -> Option<f64> {
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

/// Seconds since 1970 of a time in UTC.
pub(super) fn seconds(time: NaiveDateTime) -> f64 {
    let time = time.and_utc();
    time.timestamp() as f64 + f64::from(time.timestamp_subsec_nanos()) / 1e9
}

/// Returns a cell of a column that stores times in the order year, month, day; `None` if it has no value. The cell is the number of
/// seconds since 1970.
pub(super) fn stored_time_text(cell: &str) -> Option<String> {
    number(cell).and_then(date_text)
}

/// Formats seconds since 1970 as a date, with the time of day unless it is midnight; `None` beyond the range of dates.
fn date_text(seconds: f64) -> Option<String> {
    let nanoseconds = ((seconds - seconds.floor()) * 1e9).round().min(999_999_999.0) as u32;
    let time = DateTime::from_timestamp(seconds.floor() as i64, nanoseconds)?.naive_utc();
    let is_midnight = seconds.rem_euclid(86_400.0) == 0.0;
    Some(if is_midnight { time.date().to_string() } else { format!("{} {}", time.date(), time.time()) })
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

    /// `str(datetime.fromtimestamp(seconds, timezone.utc))` without zone, and the text is the number again.
    #[test]
    fn seconds_are_formatted_as_dates() {
        for (seconds, expected) in [
            (1_709_164_800.0, "2024-02-29"),
            (1_709_209_800.0, "2024-02-29 12:30:00"),
            (1_709_209_800.25, "2024-02-29 12:30:00.250"),
            (-86_400.0, "1969-12-31"),
            (-0.5, "1969-12-31 23:59:59.500"),
        ] {
            assert_eq!(date_text(seconds).as_deref(), Some(expected));
            assert_eq!(number(expected), Some(seconds));
        }
        assert_eq!((date_text(1e18), date_text(-1e300)), (None, None));
    }

    /// The bits are those of the standard library.
    #[test]
    fn short_decimals() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            // Constants of Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200_000 {
            let length = 1 + draw(17);
            let letter = |_| match draw(14) {
                digit @ 0..10 => char::from(b'0' + digit as u8),
                10 | 11 => '.',
                12 => '-',
                _ => 'e',
            };
            let digits: String = (0..length).map(letter).collect();
            if let Some(number) = short_decimal(&digits) {
                assert_eq!(digits.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()), "{digits}");
            } else {
                let is_long = digits.trim_start_matches('-').len() > 15;
                let has_other = digits.matches(['e', '-']).count() > usize::from(digits.starts_with('-'));
                assert!(is_long || has_other || digits.parse::<f64>().is_err(), "{digits}");
            }
        }
        for (cell, wanted) in
            [("-0", -0.0f64), ("5.", 5.0), (".5", 0.5), ("0.1", 0.1), ("123456789012345", 123456789012345.0)]
        {
            assert_eq!(short_decimal(cell).map(f64::to_bits), Some(wanted.to_bits()), "{cell}");
        }
        for cell in ["", "-", ".", "-.", "+1", "1e3", "1..2", "--1", "1234567890123456", "nan"] {
            assert_eq!(short_decimal(cell), None, "{cell}");
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
