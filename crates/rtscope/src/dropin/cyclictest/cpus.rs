//! CPU sets as libnuma reads them: `0-3,5`, `all`, `!0` for all but, `+0-1` counted among the allowed.

use rtscope_model::cpu::CpuSet;

#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// What this process may use.
    pub(super) allowed: CpuSet,
    /// What is there, whether on line or not.
    pub(super) configured: CpuSet,
    /// What is on line.
    pub(super) online: CpuSet,
}

/// Reads a set. The error is what libnuma warns of.
pub(super) fn parse(text: &str, machine: &Machine) -> Result<CpuSet, String> {
    let unreadable = || format!("unparseable cpu description `{text}'");
    let mut rest = text;
    let (mut relative, mut negated) = (false, false);
    while let Some(sign) = rest.chars().next().filter(|c| matches!(c, '!' | '+')) {
        (relative, negated) = (relative || sign == '+', negated || sign == '!');
        rest = &rest[1..];
    }
    // Relative numbers count the CPUs that this process may use.
    let known: Vec<u32> = if relative {
        machine.allowed.iter().collect()
    } else {
        machine.configured.iter().collect()
    };
    let resolve = |number: u32| match relative {
        true => known.get(number as usize).copied(),
        false => Some(number).filter(|n| machine.configured.contains(*n)),
    };
    let mut set = CpuSet::default();
    if rest == "all" {
        set = known.iter().copied().collect();
    } else {
        for part in rest.split(',') {
            let number = |word: &str| word.trim().parse::<u32>().map_err(|_| unreadable());
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            // A range of billions ends at the first CPU that isn't there.
            for asked in first..=last {
                let missing = || format!("cpu argument {rest} is out of range");
                set.insert(resolve(asked).ok_or_else(missing)?);
            }
        }
    }
    let set = if negated { machine.configured.without(&set) } else { set };
    if set.is_empty() { Err(unreadable()) } else { Ok(set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let set = |text: &str| text.parse::<CpuSet>().expect("a set");
        let machine = Machine { allowed: set("2,4-5"), configured: set("0-7"), online: set("0-7") };
        parse(text, &machine).map(|set| set.to_string())
    }

    #[test]
    fn sets_are_read_as_libnuma_reads_them() {
        let sets = ["3-5,0", "!0-5", "all", "+0,2", "0"].map(read).map(|set| set.expect("a set"));
        assert_eq!(sets, ["0,3-5", "6-7", "0-7", "2,5", "0"]);
        assert_eq!(read("77"), Err("cpu argument 77 is out of range".to_owned()));
        assert_eq!(read("foo"), Err("unparseable cpu description `foo'".to_owned()));
        assert!(read("0-4000000000").is_err() && read("!all").is_err() && read("+3").is_err());
    }
}
