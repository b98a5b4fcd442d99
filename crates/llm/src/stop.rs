//! Stop strings: a text ends before the first of them, even where tokens cut it.

/// Buffers text that can be the beginning of a stop string.
#[derive(Debug, Default)]
pub(crate) struct StopStrings {
    strings: Vec<String>,
    pending: String,
}

impl StopStrings {
    /// Creates a buffer for these stop strings; empty ones are ignored.
    pub fn new(strings: &[String]) -> StopStrings {
        StopStrings {
            strings: strings.iter().filter(|string| !string.is_empty()).cloned().collect(),
            pending: String::new(),
        }
    }

    /// Adds text. Returns the text that cannot be part of a stop string, and true if one was found; then no text may be added.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.pending.push_str(text);
        let first = self.strings.iter().filter_map(|stop| self.pending.find(stop.as_str())).min();
        if let Some(first) = first {
            self.pending.truncate(first);
            return (std::mem::take(&mut self.pending), true);
        }
        let begins = |suffix: &str| self.strings.iter().any(|stop| stop.starts_with(suffix));
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let earliest = self.pending.len().saturating_sub(longest);
        let held = self.pending.char_indices().map(|(at, _)| at).filter(|at| *at >= earliest);
        let held = held.into_iter().find(|at| begins(&self.pending[*at..])).unwrap_or(self.pending.len());
        let rest = self.pending.split_off(held);
        (std::mem::replace(&mut self.pending, rest), false)
    }

    /// Returns the buffered text at the end of the generation.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text before the first stop string of a complete text.
    fn expected<'a>(text: &'a str, stops: &[String]) -> &'a str {
        let first = stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
        &text[..first.unwrap_or(text.len())]
    }

    #[test]
    fn text_ends_at_the_first_stop_string_for_every_tokenization() {
        let texts = ["ab###c", "aaab", "x\n\nUser: y", "naïve €uro", "", "####", "aabaab€"];
        let stops: Vec<String> = ["###", "aab", "\n\nUser:", "€u"].map(str::to_string).into();
        for text in texts {
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).collect();
            for choice in 0..1u32 << cuts.len() {
                let (mut matcher, mut out, mut start, mut found) = (StopStrings::new(&stops), String::new(), 0, false);
                let ends = cuts.iter().enumerate().filter(|(n, _)| choice >> n & 1 == 1).map(|(_, at)| *at);
                for end in ends.chain([text.len()]) {
                    let piece;
                    (piece, found) = matcher.push(&text[start..end]);
                    out += &piece;
                    start = end;
                    if found {
                        break;
                    }
                }
                if !found {
                    out += &matcher.finish();
                }
                assert_eq!(out, expected(text, &stops), "{text:?} cut by {choice:b}");
            }
        }
    }

    #[test]
    fn text_that_cannot_begin_a_stop_string_is_emitted_at_once() {
        let mut matcher = StopStrings::new(&["END".into(), String::new()]);
        assert_eq!(matcher.push("all E"), ("all ".into(), false));
        assert_eq!(matcher.push("N"), (String::new(), false));
        assert_eq!(matcher.push("x"), ("ENx".into(), false));
    }
}
