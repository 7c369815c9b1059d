//! The preemption model that was asked for, and the one that ran.

use rtscope_model::{environment::Preemption, guest::GuestStart};

use super::model_word;

/// How a word of the kernel command line that asks for a model begins.
const WORD: &str = "preempt=";

/// Whether a word of the kernel command line asks for a preemption model.
pub(super) fn asks_model(word: &str) -> bool {
    word.starts_with(WORD)
}

/// What a word `preempt=MODEL` asked for, when the kernel then ran as another one. A kernel that knows no such
/// word hands it to its first process, which tells of it in `start`.
pub(super) fn warning(
    append: &[String],
    found: Preemption,
    start: Option<&GuestStart>,
) -> Option<String> {
    let word = append.iter().rfind(|word| asks_model(word))?;
    let model = match word.strip_prefix(WORD)? {
        "none" => Preemption::None,
        "voluntary" => Preemption::Voluntary,
        "full" => Preemption::Full,
        "lazy" => Preemption::Lazy,
        _ => {
            return Some(format!(
                "{word} is not a model that kernels know (none, voluntary, full, lazy): the kernel runs as {}",
                model_word(found)
            ));
        }
    };
    let is_refused = start.is_some_and(|start| start.unknown_words.contains(word));
    let is_other = match found {
        Preemption::Unknown | Preemption::Dynamic => false,
        // Since Linux 6.13 real-time kernels have models, too: there such a word is known.
        Preemption::RealTime => start.is_none(),
        found => found != model,
    };
    (is_refused || is_other).then(|| {
        let why = match found {
            Preemption::RealTime => "a real-time kernel has no other model",
            _ if is_refused => "the model of this kernel is fixed, or it doesn't have this one",
            _ => "the kernel chose another model",
        };
        format!("{word} had no effect ({why}): the kernel runs as {}", model_word(found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption_model_that_the_kernel_did_not_take_is_told() {
        let of = |word: &str, found, start: Option<&GuestStart>| {
            warning(&["quiet".to_owned(), word.to_owned()], found, start)
        };
        let refused = |word: &str| GuestStart {
            unknown_words: vec![word.to_owned()],
            ..GuestStart::default()
        };
        for start in [None, Some(&refused("preempt=none"))] {
            let said = of("preempt=none", Preemption::RealTime, start).expect("without effect");
            assert!(said.contains("had no effect") && said.contains("PREEMPT_RT"), "{said}");
        }
        let known = Some(&GuestStart::default());
        assert_eq!(of("preempt=lazy", Preemption::RealTime, known), None, "Linux 6.13 and later");
        // A kernel without dynamic preemption that happens to be built as the model that was asked for.
        let start = refused("preempt=full");
        let said = of("preempt=full", Preemption::Full, Some(&start)).expect("without effect");
        assert!(said.ends_with("the kernel runs as full"), "{said}");
        let said = of("preempt=full", Preemption::Voluntary, known).expect("without effect");
        assert!(said.ends_with("runs as voluntary"), "{said}");
        let said = of("preempt=bogus", Preemption::Voluntary, known).expect("unknown");
        assert!(said.contains("preempt=bogus is not a model"), "{said}");
        assert_eq!(of("preempt=full", Preemption::Full, known), None);
        assert_eq!(
            of("preempt=full", Preemption::Dynamic, known),
            None,
            "the kernel doesn't show it"
        );
        assert_eq!(of("nohz=off", Preemption::RealTime, known), None);
    }
}
