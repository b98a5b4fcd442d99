//! Names of the kernel made safe for any language of the family.

use std::collections::HashSet;

/// Longest part of a name that is kept.
const LONGEST: usize = 40;

/// Hands out names that are unique in the program and are no keyword or library function anywhere.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// `wanted` with an underscore behind it, and a number behind that if others wanted the same.
    pub fn pick(&mut self, wanted: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let clean: String = wanted.chars().map(letter).take(LONGEST).collect();
        let clean = clean.trim_matches('_');
        // A leading underscore or digit is not for programs to use.
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
