//! Cells of comma-separated values after RFC 4180.

use std::borrow::Cow;

/// Returns the text of a cell, in quotes if it contains a separator, a quote or a line break, or begins or ends with white space.
pub fn quoted(cell: &str) -> Cow<'_, str> {
    let is_plain = cell.trim().len() == cell.len() && !cell.contains([',', '"', '\n', '\r']);
    if is_plain { cell.into() } else { format!("\"{}\"", cell.replace('"', "\"\"")).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_needed() {
        for (cell, expected) in
            [("plain text", "plain text"), ("a,b", "\"a,b\""), ("5\" wide", "\"5\"\" wide\""), ("a\nb", "\"a\nb\"")]
        {
            assert_eq!(quoted(cell), expected);
        }
        assert_eq!((&*quoted(""), &*quoted(" a")), ("", "\" a\""));
    }
}
