//! The preemption model that was asked for, and the one that ran.

use rtscope_model::environment::Preemption;

/// What a word `preempt=MODEL` asked for, when the kernel then ran as another one.
pub(super) fn warning(append: &[String], found: Preemption) -> Option<String> {
    let asked = append.iter().rev().find_map(|word| word.strip_prefix("preempt="))?;
    let model = match asked {
        "none" => Some(Preemption::None),
        "voluntary" => Some(Preemption::Voluntary),
        "full" => Some(Preemption::Full),
        "lazy" => Some(Preemption::Lazy),
        _ => None,
    };
    match model {
        None => Some(format!(
            "preempt={asked} is no model that kernels know (none, voluntary, full, lazy); it ran as {}",
            found.word()
        )),
        Some(model)
            if model != found && !matches!(found, Preemption::Unknown | Preemption::Dynamic) =>
        {
            Some(format!(
                "preempt={asked} had no effect: the kernel in the guest is {}",
                found.word()
            ))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption_model_that_the_kernel_did_not_take_is_told() {
        let of = |word: &str, found| warning(&["quiet".to_owned(), word.to_owned()], found);
        let said = of("preempt=none", Preemption::RealTime).expect("without effect");
        assert!(said.contains("had no effect") && said.contains("PREEMPT_RT"), "{said}");
        let said = of("preempt=bogus", Preemption::Voluntary).expect("unknown");
        assert!(said.contains("preempt=bogus is no model"), "{said}");
        assert_eq!(of("preempt=full", Preemption::Full), None);
        assert_eq!(of("preempt=full", Preemption::Dynamic), None, "the kernel doesn't show it");
        assert_eq!(of("nohz=off", Preemption::RealTime), None);
    }
}
