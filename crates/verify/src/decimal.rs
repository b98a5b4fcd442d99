//! Decimal numbers of a property, enclosed by f64 numbers.

use crate::interval::Interval;

/// Maximum number of characters of a number.
const MAX_DIGITS: usize = 400;
/// Maximum exponent; larger ones exceed the range of f64.
const MAX_EXPONENT: i64 = 400;

/// Parses a decimal such as `-0.45` or `1.5e-3`: a point if f64 represents it exactly, else the two adjacent f64 numbers.
///
/// # Errors
/// If the text is not a decimal, or is too long or too large.
pub fn enclose(text: &str) -> Result<Interval, String> {
    let exact = Decimal::parse(text)?;
    let nearest: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if !nearest.is_finite() {
        return Err(format!("`{text}` is larger than a 64-bit float holds"));
    }
    // A double has at most 1,074 decimal places.
    let shown = Decimal::parse_any(&format!("{nearest:.1080}"))?;
    if shown == exact {
        return Ok(Interval::point(nearest));
    }
    // The nearest double differs by at most half a unit, in either direction.
    Ok(Interval { lo: nearest.next_down(), hi: nearest.next_up() })
}

/// A decimal in normal form: no zeros at either end of the digits.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    /// Power of ten of the last digit.
    exponent: i64,
}

impl Decimal {
    fn parse(text: &str) -> Result<Decimal, String> {
        match text.len() <= MAX_DIGITS {
            true => Decimal::parse_any(text),
            false => Err(format!("a number has {} characters; at most {MAX_DIGITS} are supported", text.len())),
        }
    }

    fn parse_any(text: &str) -> Result<Decimal, String> {
        let wrong = || format!("`{text}` is not a number");
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) =
            unsigned.split_once(['e', 'E']).map_or((unsigned, Ok(0)), |(m, e)| (m, e.parse::<i64>()));
        let exponent = exponent.ok().filter(|exponent| exponent.abs() <= MAX_EXPONENT).ok_or_else(wrong)?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(wrong());
        }
        let mut exponent = exponent - fraction.len() as i64;
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent += 1;
        }
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..zeros);
        Ok(if digits.is_empty() {
            Decimal { negative: false, digits, exponent: 0 }
        } else {
            Decimal { negative, digits, exponent }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_representable_decimals_are_points() {
        for (text, value) in [
            ("0.5", 0.5),
            ("-0.45e2", -45.0),
            ("0", 0.0),
            ("-0.0", 0.0),
            ("+1.250", 1.25),
            ("1e3", 1000.0),
            (".5", 0.5),
            ("3.", 3.0),
        ] {
            assert_eq!(enclose(text), Ok(Interval::point(value)), "{text}");
        }
    }

    #[test]
    fn other_decimals_are_enclosed() {
        for text in ["0.1", "-0.45", "3.991125645861615", "1e-3", "0.30000000000000004"] {
            let around = enclose(text).unwrap();
            let nearest: f64 = text.parse().unwrap();
            assert!(around.lo < nearest && nearest < around.hi, "{text}: {around:?}");
        }
        // These digits are exactly the double nearest to 0.1.
        assert!(enclose("0.1000000000000000055511151231257827021181583404541015625").unwrap().is_point());
        assert!(!enclose("0.1000000000000000055511151231257827021181583404541015626").unwrap().is_point());
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        for text in ["", "-", ".", "1e", "0x1", "inf", "nan", "1e999", "1_0", "--1", "1.2.3", "é"] {
            assert!(enclose(text).is_err(), "{text}");
        }
        assert!(enclose(&"1".repeat(500)).is_err());
    }
}
