//! Messages about unknown names, with the known names that are most similar.

/// Number of similar names in a message.
const NAMED: usize = 3;

/// Returns known names by their similarity to `name`, the most similar first; equally similar ones keep their order.
///
/// Source: F. J. Damerau, "A technique for computer detection and correction of spelling errors", 1964.
pub fn nearest_names<'n>(name: &str, known: &[&'n str]) -> Vec<&'n str> {
    let similarity = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let mut nearest = known.to_vec();
    nearest.sort_by(|a, b| similarity(b).total_cmp(&similarity(a)));
    nearest
}

/// Returns the question that names the most similar names, three at most: "did you mean `a`, `b`, `c`?".
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    let nearest = nearest_names(name, known);
    format!("did you mean `{}`?", nearest[..NAMED.min(nearest.len())].join("`, `"))
}

/// Returns the end of a message about an unknown name: of many known names the most similar, then all; of few all, the most similar first.
/// `list` introduces all names, such as "expected one of", and `quote` encloses each.
pub fn known_names(name: &str, known: &[&str], (list, quote): (&str, &str)) -> String {
    let all = |names: &[&str]| format!("{list} {quote}{}{quote}", names.join(&format!("{quote}, {quote}")));
    match known.len() > NAMED {
        true => format!("{} {}", did_you_mean(name, known), all(known)),
        false => all(&nearest_names(name, known)),
    }
}

/// Adds the most similar names to a message of `serde` about an unknown field or variant, or lists the known ones by similarity if they
/// are few. Other messages stay as they are.
pub fn with_nearest(message: String) -> String {
    let is_unknown = ["unknown field `", "unknown variant `"].iter().any(|start| message.starts_with(start));
    let Some((unknown, list)) = message.split_once(", expected ").filter(|_| is_unknown) else { return message };
    let name = unknown.split('`').nth(1).unwrap_or_default();
    let known: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    match known[..] {
        [] | [_] => message,
        [_, _] => {
            let nearest = nearest_names(name, &known);
            format!("{unknown}, expected `{}`", nearest.join("` or `"))
        }
        _ if known.len() > NAMED => format!("{unknown}; {}", known_names(name, &known, ("expected one of", "`"))),
        _ => format!("{unknown}, {}", known_names(name, &known, ("expected one of", "`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of `serde::de::Error::unknown_variant` and `unknown_field`.
    #[test]
    fn names_are_listed_by_similarity() {
        for (message, expected) in [
            ("unknown field `layr`, there are no fields", "unknown field `layr`, there are no fields"),
            ("unknown field `layr`, expected `layer`", "unknown field `layr`, expected `layer`"),
            ("unknown variant `glu`, expected `relu` or `gelu`", "unknown variant `glu`, expected `gelu` or `relu`"),
            (
                "unknown variant `tan`, expected one of `sin`, `cos`, `tanh`",
                "unknown variant `tan`, expected one of `tanh`, `sin`, `cos`",
            ),
            (
                "unknown field `layr`, expected one of `input`, `loss`, `layer`, `training`, `data`",
                "unknown field `layr`; did you mean `layer`, `loss`, `data`? expected one of `input`, `loss`, `layer`, `training`, `data`",
            ),
            (
                "invalid type: map, expected one of `a`, `b`, `c`, `d`",
                "invalid type: map, expected one of `a`, `b`, `c`, `d`",
            ),
        ] {
            assert_eq!(with_nearest(message.to_string()), expected);
            assert_eq!(with_nearest(expected.to_string()), expected, "a second time");
        }
        assert_eq!(known_names("knd", &["height", "kind"], ("the columns are", "")), "the columns are kind, height");
        assert_eq!(did_you_mean("b", &["a", "b"]), "did you mean `b`, `a`?");
    }
}
