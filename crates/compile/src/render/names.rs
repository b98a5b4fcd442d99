//! Makes names of the kernel safe for every target language.

use std::collections::HashSet;

/// Maximum length kept of a name.
const LONGEST: usize = 40;

/// Allocator of names that are unique in the program and collide with no keyword or library function.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// Returns `wanted` followed by an underscore, and by a number if the name is already taken.
    pub fn pick(&mut self, wanted: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let clean: String = wanted.chars().map(letter).take(LONGEST).collect();
        let clean = clean.trim_matches('_');
        // Names with a leading underscore or digit are reserved or invalid.
        let clean =
            if clean.starts_with(|c: char| c.is_ascii_alphabetic()) { clean.into() } else { format!("v{clean}") };
        let mut name = format!("{clean}_");
        let mut count = 1;
        while !self.taken.insert(name.clone()) {
            count += 1;
            name = format!("{clean}_{count}");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_safe_and_unique() {
        let mut names = Names::default();
        let wanted = ["x", "x", "float", "__x", "r#type", "größe", "9", "", "x_2"];
        let picked: Vec<String> = wanted.iter().map(|name| names.pick(name)).collect();
        assert_eq!(picked, ["x_", "x_2", "float_", "x_3", "r_type_", "gr__e_", "v9_", "v_", "x_2_"]);
    }
}
