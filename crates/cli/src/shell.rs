//! Quoting of paths in commands that are printed for the user to run.

use std::path::Path;

/// Quotes a path as one argument for a POSIX shell, or for the Windows command line.
pub fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    // A leading `-` would be parsed as an option.
    let start = if bytes.starts_with(b"-") { "./" } else { "" };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    match path.to_str() {
        Some("") => "''".to_string(),
        Some(text) if bytes.iter().all(plain) => format!("{start}{text}"),
        Some(text) if cfg!(windows) => format!("\"{start}{text}\""),
        Some(text) if !text.chars().any(char::is_control) => format!("'{start}{}'", text.replace('\'', "'\\''")),
        _ => format!("$'{start}{}'", escaped(bytes)),
    }
}

/// Escapes bytes for `$'…'`: non-printable bytes become three octal digits.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| match byte {
        b'\\' | b'\'' => format!("{text}\\{}", char::from(*byte)),
        b' '..=b'~' => format!("{text}{}", char::from(*byte)),
        _ => format!("{text}\\{byte:03o}"),
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    /// A shell parses the quoted text back to the path; not every `sh` supports `$'…'`, hence `bash`.
    #[test]
    fn shell_parses_quoted_path_back() {
        for (path, shell) in [
            (&b"runs/digits-1"[..], "sh"),
            (b"sp run/model.safetensors", "sh"),
            (b"it's", "sh"),
            (b"a\"b$HOME`x`\\;*?[!#~&|<>()", "sh"),
            ("größe".as_bytes(), "sh"),
            (b"-r", "sh"),
            (b"- r", "sh"),
            (b"line\nand \x1b[31mred", "bash"),
            (b"caf\xe9 '\\", "bash"),
        ] {
            let word = quoted(Path::new(OsStr::from_bytes(path)));
            assert!(!word.chars().any(char::is_control), "{word:?}");
            let echoed = Command::new(shell).args(["-c", &format!("printf %s {word}")]).output().unwrap().stdout;
            let echoed = echoed.strip_prefix(b"./").unwrap_or(&echoed);
            assert_eq!(echoed, path, "{word}");
        }
        assert_eq!(quoted(Path::new("runs/digits-1")), "runs/digits-1");
    }
}
