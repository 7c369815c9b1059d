//! The few forms in which the kernel writes texts.

/// The values of a key in lines of the form `key : value`, in order.
pub(crate) fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == key).then(|| value.trim())
    })
}

/// The first value of a key.
pub(crate) fn value<'a>(text: &'a str, key: &'a str) -> Option<&'a str> {
    values(text, key).next()
}

/// The word that is marked as chosen: `madvise` in `always [madvise] never`.
pub(crate) fn bracketed(text: &str) -> Option<&str> {
    between(text, '[', ']')
}

/// The text between two marks.
pub(crate) fn between(text: &str, open: char, close: char) -> Option<&str> {
    Some(text.split_once(open)?.1.split_once(close)?.0)
}

/// The names that are a prefix and a number (`cpu0`, `cpu10`), by their number.
pub(crate) fn numbered(names: Vec<String>, prefix: &str) -> Vec<(u32, String)> {
    let number = |name: &String| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut found: Vec<(u32, String)> =
        names.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_forms_are_read() {
        let text = "model\t\t: 207\nmodel name\t: A: B\nbroken\nmodel name : C\n";
        assert_eq!(values(text, "model name").collect::<Vec<_>>(), ["A: B", "C"]);
        assert_eq!(value(text, "model"), Some("207"));
        assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
        assert_eq!(bracketed("always madvise] ["), None);
        let names = ["cpu10", "cpu2", "cpufreq", "cpu"].map(str::to_owned).to_vec();
        let numbers: Vec<u32> = numbered(names, "cpu").into_iter().map(|(n, _)| n).collect();
        assert_eq!(numbers, [2, 10]);
    }
}
