//! Names that kernels are given. A name names folders, and stands between `=` and `:` on command lines.

/// The longest name: a folder's name may have 255 bytes, and more follows the kernel's name in it.
pub const CHARS_MAX: usize = 100;

/// Whether a name may hold a character.
#[must_use]
pub fn may_hold(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".-_+".contains(c)
}

/// Why a text can't be the name of a kernel. `what` says what it would name, as `the label`.
///
/// # Errors
///
/// It is empty or too long, begins with a dot or a dash, or holds a character that can't be in a name.
pub fn check(what: &str, name: &str) -> Result<(), String> {
    let why = match name.chars().find(|c| !may_hold(*c)) {
        Some('/') => "has a slash in it".to_owned(),
        Some(other) => format!("has {other:?} in it"),
        None if name.is_empty() => "is empty".to_owned(),
        None if name.starts_with(['.', '-']) => format!("begins with {:?}", &name[..1]),
        None if name.len() > CHARS_MAX => format!("is longer than {CHARS_MAX} characters"),
        None => return Ok(()),
    };
    Err(format!(
        "{what} {name:?} {why}: a kernel's name also names folders, so it consists of letters, digits, '.', '-', \
         '_' and '+', and begins with neither '.' nor '-'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_a_folder_and_a_command_line() {
        for name in ["rt", "tiny-6.12-rt", "linux-image-6.12.9+bpo-amd64", "A_1", &"x".repeat(100)]
        {
            assert_eq!(check("the label", name), Ok(()));
        }
        for (name, why) in [
            ("", "is empty"),
            ("a/b", "has a slash in it"),
            ("a b", "has ' ' in it"),
            ("a=b", "has '=' in it"),
            ("caf\u{e9}", "has '\u{e9}' in it"),
            ("..", "begins with \".\""),
            ("-rt", "begins with \"-\""),
            (&"x".repeat(101), "is longer than 100"),
        ] {
            let said = check("the label", name).expect_err("refused");
            assert!(said.contains(why) && said.starts_with("the label"), "{said}");
        }
    }
}
