//! Walks the tree of the command line: what holds for every verb.

use std::collections::BTreeMap;

use clap::{Arg, Command};
use clap_complete::Shell;

use super::*;

#[path = "../../../tests/it/book/blocks.rs"]
mod blocks;

/// The width that every text fits.
const COLUMNS: usize = 80;

/// Drop-ins keep the letters of the tools that they stand for.
const DROP_INS: [&str; 2] = ["cyclictest", "hackbench"];

/// Every command with its path, from the root down.
fn tree() -> Vec<(String, Command)> {
    fn below(path: &str, command: &Command, all: &mut Vec<(String, Command)>) {
        all.push((path.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            below(&format!("{path} {}", sub.get_name()), sub, all);
        }
    }
    let mut root = command();
    root.build();
    let mut all = Vec::new();
    below("rtscope", &root, &mut all);
    all
}

/// The commands that do something themselves.
fn leaves() -> Vec<(String, Command)> {
    tree().into_iter().filter(|(_, command)| !command.has_subcommands()).collect()
}

/// Short and long help at a width.
fn help(command: &Command, columns: usize) -> [String; 2] {
    let command = command.clone().term_width(columns).max_term_width(columns);
    let short = command.clone().render_help().to_string();
    [short, command.clone().render_long_help().to_string()]
}

/// The lines that are wrapped before their width is full: the first word of the next line would have fitted.
fn ragged(text: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // Where a text begins in a line: an option stands before it in the short help.
    let lines: Vec<&str> = text.lines().collect();
    let is_early = |pair: &&[&str]| {
        let (line, next) = (pair[0], pair[1]);
        let word = next.split_whitespace().next().unwrap_or_default();
        let is_prose =
            !line.trim().is_empty() && !word.is_empty() && !word.starts_with(['-', '[', '<']);
        let starts_here = line.get(indent(next).saturating_sub(2)..indent(next));
        let continues = indent(line) == indent(next)
            || (indent(next) > 8 && starts_here.is_some_and(|gap| gap.trim().is_empty()));
        is_prose && continues && line.chars().count() + 1 + word.chars().count() <= COLUMNS
    };
    lines.windows(2).filter(is_early).map(|pair| pair.join("\n")).collect()
}

#[test]
fn no_help_is_wider_than_80_columns_or_wrapped_raggedly() {
    let mut wrong = Vec::new();
    for (path, command) in tree() {
        for text in help(&command, COLUMNS) {
            let too_wide = text.lines().filter(|line| line.chars().count() > COLUMNS);
            wrong.extend(too_wide.map(|line| format!("{path}: too wide: {line}")));
            // Lists of values and of verbs, and examples, have a line for each.
            let prose = text.split(EXAMPLES).next().unwrap_or_default();
            let is_list = |part: &&str| {
                let part = part.trim_start();
                !part.starts_with("Usage:")
                    && !part.contains("Possible values:")
                    && !part.contains("Commands:\n")
                    && !GROUPS.iter().any(|(heading, _)| part.starts_with(heading))
            };
            let parts = prose.split("\n\n").filter(is_list);
            wrong.extend(parts.flat_map(ragged).map(|pair| format!("{path}: ragged:\n{pair}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_ragged_text_is_seen() {
    let full = "x".repeat(70);
    assert_eq!(ragged(&format!("{full}\nto the bit")).len(), 1);
    assert_eq!(ragged(&format!("{full}\nconfigurations of it")).len(), 0);
    let option = format!("      --one <N>  {}", "y".repeat(40));
    assert_eq!(ragged(&format!("{option}\n{}short", " ".repeat(17))).len(), 1);
}

#[test]
fn a_list_of_verbs_has_a_line_for_each_that_fits() {
    for (path, command) in tree() {
        let [text, _] = help(&command, COLUMNS);
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let about = sub.get_about().expect("every verb says what it does").to_string();
            let is_whole = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some(sub.get_name()) && line.ends_with(&about)
            };
            assert!(text.lines().any(is_whole), "{path} {}: {about}", sub.get_name());
        }
    }
}

#[test]
fn every_verb_is_in_one_group_in_its_order() {
    let command = command();
    let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
    assert_eq!([verbs, vec!["help"]].concat(), grouped);
    let text = help(&command, COLUMNS)[1].clone();
    let at = |text: &str, heading: &str| text.find(&format!("\n{heading}:\n")).expect("a heading");
    let places: Vec<usize> = GROUPS.iter().map(|(heading, _)| at(&text, heading)).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn every_group_has_examples_of_its_verbs() {
    for (path, command) in tree().into_iter().filter(|(_, command)| command.has_subcommands()) {
        let text = examples(&command).unwrap_or_default();
        assert!(text.lines().filter(|line| line.contains(&path)).count() >= 2, "{path}: {text}");
    }
}

#[test]
fn every_leaf_has_an_example_of_itself() {
    let mut wrong = Vec::new();
    for (path, command) in leaves() {
        let text = examples(&command).unwrap_or_default();
        if !text.contains(&path) {
            wrong.push(format!("{path} has no example of itself: {text}"));
        }
        let too_long = text.lines().filter(|line| line.chars().count() + 2 > COLUMNS);
        wrong.extend(too_long.map(|line| format!("{path}: an example too long: {line}")));
        for text in help(&command, COLUMNS) {
            let (_, shown) = text.split_once(EXAMPLES).unwrap_or_default();
            let shown: String = shown
                .lines()
                .map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned() + "\n")
                .collect();
            if Some(&shown) != examples(&command).as_ref() {
                wrong.push(format!("{path} breaks its examples:\n{shown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The commands that an example types, as words; parts that the shell takes are cut off.
fn commands(examples: &str) -> Vec<Vec<String>> {
    let whole = examples.replace("\\\n", " ");
    let lines = whole.lines().filter_map(|line| line.split(" #").next());
    let parts = lines.flat_map(|line| line.split([';', '|']).flat_map(|part| part.split("&&")));
    let words = |part: &str| -> Vec<String> {
        let mut words = Vec::new();
        for (i, quoted) in part.split('\'').enumerate() {
            match i % 2 {
                0 => words.extend(quoted.split_whitespace().map(str::to_owned)),
                _ => words.push(quoted.to_owned()),
            }
        }
        words
            .into_iter()
            .skip_while(|word| word == "sudo")
            .take_while(|word| word != ">" && word != "&")
            .collect()
    };
    parts.map(words).filter(|words| words.first().is_some_and(|word| word == "rtscope")).collect()
}

/// What is refused of the commands in a text, with where the text is.
fn refused(place: &str, text: &str) -> Vec<String> {
    let all = commands(text).into_iter();
    let ours = all.filter(|words| !words.iter().any(|word| DROP_INS.contains(&word.as_str())));
    let said = |words: Vec<String>| {
        let error =
            parse(words.iter().map(OsString::from)).err().filter(clap::Error::use_stderr)?;
        Some(format!("{place}: {words:?}: {error}"))
    };
    ours.filter_map(said).collect()
}

#[test]
fn every_example_can_be_typed() {
    for (path, command) in tree() {
        let refused = refused(&path, &examples(&command).unwrap_or_default());
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}

/// Tests of the documents run what can run. Of the rest they ask for help, which is given although a word is missing or two
/// exclude each other.
#[test]
fn every_command_of_the_documents_can_be_typed() {
    let (mut all, mut wrong) = (0, Vec::new());
    for block in blocks::pages().iter().flat_map(|page| blocks::blocks_of(page)) {
        let place = format!("{}:{}", block.page, block.line);
        for typed in blocks::commands(&block) {
            all += commands(&typed).len();
            wrong.extend(refused(&place, &typed));
        }
    }
    assert!(all > 500, "only {all} commands were read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_letter_means_one_thing() {
    let mut meanings: BTreeMap<char, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut letters: BTreeMap<String, Vec<(Option<char>, String)>> = BTreeMap::new();
    for (path, command) in leaves() {
        if DROP_INS.contains(&command.get_name()) {
            continue;
        }
        for option in command.get_arguments().filter(|arg| !arg.is_positional()) {
            let long = option.get_long().unwrap_or_default().to_owned();
            if let Some(letter) = option.get_short() {
                let of_letter = meanings.entry(letter).or_default();
                of_letter.entry(long.clone()).or_default().push(path.clone());
            }
            // A switch and an option with a value are two things, whatever their name.
            if option.get_num_args().is_some_and(|values| values.takes_values()) {
                let letter = (option.get_short(), path.clone());
                letters.entry(long).or_default().push(letter);
            }
        }
    }
    let ambiguous: Vec<_> = meanings.iter().filter(|(_, longs)| longs.len() > 1).collect();
    assert!(ambiguous.is_empty(), "{ambiguous:#?}");
    let inconsistent: Vec<_> = letters
        .iter()
        .filter(|(_, uses)| uses.iter().any(|(letter, _)| *letter != uses[0].0))
        .collect();
    assert!(inconsistent.is_empty(), "{inconsistent:#?}");
    assert!(meanings[&'o'].contains_key("out") && meanings[&'p'].contains_key("priority"));
}

#[test]
fn an_option_s_help_is_a_sentence_about_it() {
    for (path, command) in leaves() {
        let is_bare = |arg: &&Arg| arg.get_help().is_none_or(|help| help.to_string().is_empty());
        let bare: Vec<_> = command.get_arguments().filter(is_bare).map(Arg::get_id).collect();
        assert!(bare.is_empty(), "{path}: {bare:?}");
    }
}

/// First words of a help text that say what a value is instead of what the option does.
const NO_BEGINNING: [&str; 12] =
    ["A", "Also", "An", "As", "Each", "How", "Only", "The", "What", "Where", "Which", "With"];

/// Verbs that a command does, or an option without a value.
const VERBS: [&str; 46] = [
    "Accept", "Add", "Boot", "Build", "Capture", "Change", "Check", "Compare", "Count", "Create",
    "Delete", "Draw", "Explain", "Fetch", "Fill", "Find", "Generate", "Install", "Judge", "Keep",
    "Let", "List", "Make", "Measure", "Open", "Pack", "Pass", "Plot", "Print", "Read", "Record",
    "Remove", "Repeat", "Restore", "Run", "Search", "Show", "Sort", "Start", "Suggest", "Take",
    "Try", "Unpack", "Use", "Watch", "Write",
];

#[test]
fn a_help_text_begins_with_a_verb_or_names_its_value() {
    let first = |text: &str| text.split([' ', ',', ':']).next().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    for (path, command) in tree().into_iter().skip(1) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        if !VERBS.contains(&first(&about).as_str()) {
            wrong.push(format!("{path}: {about}"));
        }
        for option in command.get_arguments().filter(|arg| !arg.is_positional()) {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let (first, takes_value) = (first(&help), option.get_action().takes_values());
            let is_value = takes_value
                && first.starts_with(char::is_uppercase)
                && !NO_BEGINNING.contains(&first.as_str());
            if !is_value && !VERBS.contains(&first.as_str()) {
                wrong.push(format!("{path} {}: {help}", option.get_id()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_sentence_of_a_help_text_is_short_enough_to_be_read_once() {
    let mut wrong = Vec::new();
    for (path, command) in tree() {
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
        let options = command
            .get_arguments()
            .filter_map(|arg| arg.get_long_help().or(arg.get_help()).map(ToString::to_string));
        for text in about.into_iter().chain(options) {
            let too_long = text
                .split("\n\n")
                .flat_map(|paragraph| paragraph.split(". "))
                .filter(|sentence| sentence.split_whitespace().count() > SENTENCE_WORDS);
            wrong.extend(too_long.map(|sentence| format!("{path}: {sentence}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words of a sentence at most. `cargo xtask tidy` allows documents a little more.
const SENTENCE_WORDS: usize = 30;

/// What rtscope starts itself.
fn internal() -> Vec<String> {
    let internal = super::super::Internal::command();
    internal.get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

#[test]
fn internal_verbs_are_in_no_completion_help_or_suggestion() {
    let internal = internal();
    assert!(internal.contains(&"load-worker".to_owned()));
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command(), "rtscope", &mut text);
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("throughput"), "{shell}");
        for verb in internal.iter().filter(|verb| verb.contains('-') || *verb == "guard") {
            assert!(!text.contains(verb.as_str()), "{shell}: {verb}");
        }
    }
    let told = |word: &str| {
        parse(["rtscope", word].map(OsString::from)).expect_err("no such verb").to_string()
    };
    for verb in &internal {
        let [short, long] = help(&command(), COLUMNS);
        assert!(!(short + &long).contains(&format!("\n  {verb} ")), "{verb}");
        let (first, rest) = verb.split_at(1);
        let second: String = rest.chars().take(1).collect();
        let mistyped = format!("{second}{first}{}", &rest[second.len()..]);
        assert!(!told(&mistyped).contains(&format!("'{verb}'")), "{}", told(&mistyped));
    }
}

#[test]
fn help_and_errors_have_colours_as_color_says() {
    let ansi = |words: &str| {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        color(words)
    };
    assert_eq!(ansi("rtscope --color always --help"), ColorChoice::Always);
    assert_eq!(ansi("rtscope run --color=never --help"), ColorChoice::Never);
    assert_eq!(ansi("rtscope run --help"), ColorChoice::Auto);
    assert_eq!(ansi("rtscope stat -- ls --color=always"), ColorChoice::Auto);
}

#[test]
fn a_forgotten_kernel_is_asked_for_with_the_command_to_type() {
    let told = |words: &str| {
        let words = words.split_whitespace().map(OsString::from);
        parse(words).expect_err("no kernel").to_string()
    };
    for (words, tip) in [
        ("rtscope lab run debian-rt", "rtscope lab run --kernel debian-rt\n"),
        ("rtscope lab run", "rtscope lab run --kernel debian-stock\n"),
        (
            "rtscope lab run quick --seeds 2",
            "rtscope lab run quick --seeds 2 --kernel debian-stock\n",
        ),
        (
            "rtscope lab wave sweep --subject c",
            "rtscope lab wave sweep --subject c --kernel debian-stock\n",
        ),
        ("rtscope lab drift", "rtscope lab drift --kernel debian-stock\n"),
        ("rtscope lab matrix my.toml", "rtscope lab matrix my.toml --kernel debian-stock\n"),
    ] {
        assert!(told(words).contains(tip), "{}", told(words));
    }
}

#[test]
fn an_option_of_another_verb_is_answered_with_that_verb() {
    let told = |words: &str| {
        let words = words.split_whitespace().map(OsString::from);
        parse(words).expect_err("no such option").to_string()
    };
    let lab = told("/usr/bin/rtscope lab run --kernel x --preempt full");
    assert!(lab.contains("found\n\n  tip: rtscope lab matrix has --preempt\n\n"), "{lab}");
    let own = told("rtscope lab run --kernel x --seedz 3");
    assert!(own.contains("'--seeds'"), "{own}");
}

#[test]
fn a_missing_option_with_few_values_names_them() {
    let told = |words: &str| {
        let words = words.split_whitespace().map(OsString::from);
        parse(words).expect_err("something is missing").to_string()
    };
    let plot = told("rtscope plot my-run");
    assert!(plot.contains("--kind is one of histogram, exceedance, timeline"), "{plot}");
    let export = told("rtscope export my-run");
    assert!(export.contains("--format is one of ") && export.contains("junit"), "{export}");
}

#[test]
fn words_that_only_rtscope_uses_are_defined_where_they_are_met_first() {
    for (verb, words) in [
        ("run", &["phase", "cell", "slice"][..]),
        ("plan", &["phase", "cell"]),
        ("lab", &["phase", "cell"]),
    ] {
        let command = command();
        let command = command.find_subcommand(verb).expect("a verb");
        let text = help(command, 200)[1].to_lowercase();
        for word in words {
            let defined = format!("a {word} is ");
            assert!(text.contains(&defined), "{verb}: {word} is not defined: {text}");
        }
    }
}

#[test]
fn completions_offer_the_names_of_what_is_shipped() {
    let bash = super::super::completions::script(Shell::Bash).expect("text");
    for (verb, names) in [
        ("rtscope__subcmd__run)", &["quick", "lab-matrix"][..]),
        ("rtscope__subcmd__load)", &["message", "external", "list"]),
        ("rtscope__subcmd__plan__subcmd__show)", &["quick"]),
        ("rtscope__subcmd__sched__subcmd__run)", &["two-rr-pinned"]),
        ("rtscope__subcmd__lab__subcmd__run)", &["lab-quick", "debian-rt", "tiny-6.12-rt"]),
        ("rtscope__subcmd__lab__subcmd__drift)", &["debian-rt", "tiny-6.12-rt"]),
        ("rtscope__subcmd__lab__subcmd__wave__subcmd__sweep)", &["debian-rt", "c-rt"]),
        ("rtscope__subcmd__kernel__subcmd__build)", &["tiny-6.12-rt"]),
    ] {
        let (_, rest) = bash.split_once(&format!("\n        {verb}\n")).expect(verb);
        let part = rest.split_once(";;\n        rtscope").map_or(rest, |(part, _)| part);
        for name in names {
            let offered = part.split_whitespace().any(|w| w.trim_matches(['"', '(', ')']) == *name);
            assert!(offered, "{verb} {name}: {part}");
        }
    }
}

#[test]
fn a_program_without_its_separator_is_told_where_it_goes() {
    let said = |line: &str| {
        let error = parse(line.split(' ').map(OsString::from)).expect_err(line);
        error.to_string()
    };
    for verb in ["check", "drift", "stat"] {
        let told = said(&format!("rtscope {verb} --json ./motor"));
        assert!(told.contains("go after --, for example: -- ./motor"), "{told}");
    }
    assert!(!said("rtscope check --nonsense").contains("go after --"));
    assert!(!said("rtscope report a b --nonsense").contains("go after --"));
}

#[test]
fn a_mistyped_verb_gets_a_suggestion() {
    let told = |words: &[&str]| {
        let words = std::iter::once("rtscope").chain(words.iter().copied());
        parse(words.map(OsString::from)).expect_err("no such verb").to_string()
    };
    for (words, meant) in [
        (&["rnu"][..], "run"),
        (&["repotr"], "report"),
        (&["lba"], "lab"),
        (&["lab", "rnu"], "run"),
        (&["kernel", "biuld"], "build"),
        (&["lab", "cache", "lsit"], "list"),
    ] {
        let text = told(words);
        assert!(text.contains(&format!("a similar subcommand exists: '{meant}'")), "{text}");
    }
    assert!(!told(&["qqqq"]).contains("similar"), "{}", told(&["qqqq"]));
}
