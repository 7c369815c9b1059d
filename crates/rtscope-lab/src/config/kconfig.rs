//! Why an option was lost: its definition in the source, read as far as that takes.
//!
//! It reads symbols with prompts, types, dependencies, selections, choices and the conditions of the
//! menus and files around them. It doesn't evaluate macros that ask the compiler: those count as met,
//! and are named.

use std::{collections::HashMap, fs, path::Path};

pub use super::expression::Expression;
use super::{
    expression::{parse, tristate},
    merge::{ConfigOptions, Value},
    verify::Lost,
};

/// What is known of an option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Symbol {
    /// Each place that defines it.
    pub definitions: Vec<Definition>,
    /// Options that select it, with their condition.
    pub selected_by: Vec<(String, Option<Expression>)>,
}

/// One definition of an option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// `bool`, `tristate`, `int`, `hex`, `string`.
    pub kind: String,
    /// Whether the user may set it; with the prompt's own condition.
    pub prompt: Option<Option<Expression>>,
    /// All conditions that must hold, those around it too.
    pub depends: Vec<Expression>,
    /// The choice that it is a member of.
    pub choice: Option<usize>,
    /// File and line.
    pub place: String,
}

/// Options of a source by name.
pub type Symbols = HashMap<String, Symbol>;

/// How deep files may include each other: deeper than those of any source.
const DEPTH_MAX: usize = 40;

/// Files and their bytes, each as often as it is included: many times those of Linux.
const FILES_MAX: usize = 20_000;
const BYTES_MAX: usize = 64 << 20;

/// Reads all of a source's `Kconfig` files that one architecture uses.
#[must_use]
pub fn read_tree(tree: &Path, arch_folder: &str) -> Symbols {
    read_files(arch_folder, &|name| fs::read(tree.join(name)).ok())
}

/// The same of files by their names below the source's folder.
#[must_use]
pub fn read_files(arch_folder: &str, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Symbols {
    let mut reader = Reader {
        read: file,
        arch_folder: arch_folder.to_owned(),
        symbols: Symbols::new(),
        around: Vec::new(),
        choices: 0,
        choice: None,
        depth: 0,
        files: 0,
        bytes: 0,
    };
    reader.file("Kconfig");
    reader.symbols
}

struct Reader<'a> {
    read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    arch_folder: String,
    symbols: Symbols,
    /// Conditions of `if`, `menu` and `choice` blocks that are open.
    around: Vec<Expression>,
    choices: usize,
    choice: Option<usize>,
    depth: usize,
    /// Files and bytes that were read so far.
    files: usize,
    bytes: usize,
}

/// What an indented line belongs to.
enum Entry {
    None,
    Config(String, Definition),
    /// A menu or choice, whose conditions hold for all in it.
    Block,
}

impl Reader<'_> {
    fn file(&mut self, name: &str) {
        // Guards against files that include each other: two that do so twice each are read 2^40 times.
        if self.depth > DEPTH_MAX || self.files >= FILES_MAX || self.bytes > BYTES_MAX {
            return;
        }
        let Some(bytes) = (self.read)(name) else { return };
        self.depth += 1;
        self.files += 1;
        self.bytes += bytes.len();
        self.lines(name, &String::from_utf8_lossy(&bytes));
        self.depth -= 1;
    }

    fn lines(&mut self, file: &str, text: &str) {
        let mut entry = Entry::None;
        let mut blocks: Vec<(usize, Option<usize>)> = Vec::new();
        let mut help: Option<Option<usize>> = None;
        for (i, line) in logical_lines(text) {
            let line = line.as_str();
            let indent = indent_of(line);
            if goes_on(&mut help, indent, line.trim().is_empty()) {
                continue;
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            match word {
                "help" | "---help---" => help = Some(None),
                "config" | "menuconfig" => {
                    self.close(&mut entry);
                    let place = format!("{file}:{}", i + 1);
                    let definition = Definition {
                        depends: self.around.clone(),
                        choice: self.choice,
                        place,
                        ..Definition::default()
                    };
                    entry = Entry::Config(rest.to_owned(), definition);
                }
                "if" => {
                    self.close(&mut entry);
                    blocks.push((self.around.len(), self.choice));
                    self.around.push(parse(rest));
                }
                "menu" | "choice" => {
                    self.close(&mut entry);
                    blocks.push((self.around.len(), self.choice));
                    if word == "choice" {
                        self.choices += 1;
                        self.choice = Some(self.choices);
                    }
                    entry = Entry::Block;
                }
                "endif" | "endmenu" | "endchoice" => {
                    self.close(&mut entry);
                    if let Some((height, choice)) = blocks.pop() {
                        self.around.truncate(height);
                        self.choice = choice;
                    }
                }
                "source" | "rsource" | "osource" | "orsource" => {
                    self.close(&mut entry);
                    self.include(file, word, rest);
                }
                "comment" | "mainmenu" => {
                    self.close(&mut entry);
                    entry = Entry::None;
                }
                _ => self.attribute(&mut entry, word, rest),
            }
        }
        self.close(&mut entry);
    }

    fn include(&mut self, file: &str, word: &str, rest: &str) {
        let name = rest.trim_matches(['"', '\'']);
        let name = name
            .replace("$(SRCARCH)", &self.arch_folder)
            .replace("$(HEADER_ARCH)", &self.arch_folder);
        let name = match (word.contains("rsource"), Path::new(file).parent()) {
            (true, Some(folder)) => folder.join(&name).display().to_string(),
            _ => name,
        };
        self.file(&name);
    }

    /// An indented line of the open entry.
    fn attribute(&mut self, entry: &mut Entry, word: &str, rest: &str) {
        let (rest, condition) = split_condition(rest);
        match entry {
            Entry::Block if word == "depends" => {
                self.around.push(parse(rest.trim_start_matches("on").trim()));
            }
            Entry::Block if word == "visible" => {
                if let Some(condition) = condition {
                    self.around.push(condition);
                }
            }
            Entry::Config(name, definition) => match word {
                "bool" | "tristate" | "int" | "hex" | "string" | "def_bool" | "def_tristate" => {
                    definition.kind = word.trim_start_matches("def_").to_owned();
                    if !rest.is_empty() && !word.starts_with("def_") {
                        definition.prompt = Some(condition);
                    }
                }
                "prompt" => definition.prompt = Some(condition),
                "depends" => {
                    definition.depends.push(parse(rest.trim_start_matches("on").trim()));
                }
                "select" => {
                    let selecting = (name.clone(), condition);
                    self.symbols.entry(rest.to_owned()).or_default().selected_by.push(selecting);
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn close(&mut self, entry: &mut Entry) {
        if let Entry::Config(name, definition) = std::mem::replace(entry, Entry::None) {
            self.symbols.entry(name).or_default().definitions.push(definition);
        }
    }
}

/// Whether a line belongs to a help text, which goes on as long as lines are indented as much as its
/// first one.
fn goes_on(help: &mut Option<Option<usize>>, indent: usize, is_empty: bool) -> bool {
    let Some(depth) = help else { return false };
    let inside = is_empty || depth.map_or(indent > 0, |least| indent >= least);
    if !inside {
        *help = None;
    } else if !is_empty && depth.is_none() {
        *depth = Some(indent);
    }
    inside
}

/// Lines with those that they go on in, each with the number of its first, from 0.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (i, line) in text.lines().enumerate() {
        let (body, next) = line.strip_suffix('\\').map_or((line, false), |body| (body, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(body.trim_start()),
            None => lines.push((i, body.to_owned())),
        }
        goes_on = next;
    }
    lines
}

fn indent_of(line: &str) -> usize {
    let mut column = 0;
    for c in line.chars() {
        match c {
            ' ' => column += 1,
            '\t' => column = column / 8 * 8 + 8,
            _ => break,
        }
    }
    column
}

/// `"a prompt" if A` as the prompt and the condition.
fn split_condition(rest: &str) -> (&str, Option<Expression>) {
    let after_quote = match rest.strip_prefix('"').and_then(|text| text.find('"')) {
        Some(end) => end + 2,
        None => 0,
    };
    let tail = &rest[after_quote..];
    let at = if tail.starts_with("if ") { Some(0) } else { tail.find(" if ").map(|at| at + 1) };
    match at {
        Some(at) => (rest[..after_quote + at].trim(), Some(parse(&tail[at + 3..]))),
        None => (rest, None),
    }
}

/// Why an option was lost, in one line.
#[must_use]
pub fn explain(symbols: &Symbols, lost: &Lost, options: &ConfigOptions) -> String {
    let asked = format!("CONFIG_{}={}", lost.name, lost.asked.word());
    let found = lost.found.as_ref().map_or("absent".to_owned(), |value| value.word().to_owned());
    format!("{asked} is lost ({found}): {}", reason(symbols, lost, options))
}

fn reason(symbols: &Symbols, lost: &Lost, options: &ConfigOptions) -> String {
    let Some(symbol) = symbols.get(&lost.name).filter(|symbol| !symbol.definitions.is_empty())
    else {
        let known = symbols.keys().map(String::as_str);
        let nearest = rtscope_model::text::suggest(&lost.name, known);
        let hint =
            nearest.map(|word| format!(" (did you mean CONFIG_{word}?)")).unwrap_or_default();
        return format!("this source has no such option for this architecture{hint}");
    };
    let held = symbol.selected_by.iter().filter(|(name, condition)| {
        tristate(name, options) > 0
            && condition.as_ref().is_none_or(|condition| condition.holds(options) > 0)
    });
    let held: Vec<&str> = held.map(|(name, _)| name.as_str()).collect();
    if lost.asked == Value::Off && !held.is_empty() {
        return format!("selected by {}", held.join(", "));
    }
    // Where it is defined more than once, the definition with the fewest conditions that fail is the
    // one that the user is nearest to.
    let unmet = |definition: &Definition| -> Vec<String> {
        definition.depends.iter().flat_map(|expression| expression.unmet(options)).collect()
    };
    let nearest = symbol.definitions.iter().min_by_key(|definition| unmet(definition).len());
    let Some(definition) = nearest else { return String::new() };
    let missing = unmet(definition);
    if !missing.is_empty() {
        let decided: String = missing.iter().filter_map(|part| decided(symbols, part)).collect();
        return format!("needs {} ({}){decided}", missing.join(" and "), definition.place);
    }
    match &definition.prompt {
        None => {
            let by = symbol.selected_by.iter().map(|(name, _)| name.as_str()).take(6);
            let by = by.collect::<Vec<_>>().join(", ");
            let how = if by.is_empty() {
                "other options decide it".to_owned()
            } else {
                format!("set one that selects it: {by}")
            };
            format!("it can't be set by itself; {how} ({})", definition.place)
        }
        Some(Some(condition)) if condition.holds(options) == 0 => {
            let missing = condition.unmet(options).join(" and ");
            format!("it can be set only with {missing} ({})", definition.place)
        }
        _ => chosen_instead(symbols, lost, definition, options),
    }
}

/// What decides an option that is off and can't be set by itself.
fn decided(symbols: &Symbols, part: &str) -> Option<String> {
    let name = part.strip_suffix(" (now n)").filter(|name| !name.contains(' '))?;
    let symbol = symbols.get(name)?;
    if symbol.definitions.iter().any(|definition| definition.prompt.is_some()) {
        return None;
    }
    let by: Vec<&str> = symbol.selected_by.iter().map(|(name, _)| name.as_str()).take(6).collect();
    Some(if by.is_empty() {
        format!("; nothing of this architecture selects {name}")
    } else {
        format!("; {name} is selected by {}", by.join(", "))
    })
}

/// The member of the same choice that was chosen, or what else there is to say.
fn chosen_instead(
    symbols: &Symbols,
    lost: &Lost,
    definition: &Definition,
    options: &ConfigOptions,
) -> String {
    if let Some(choice) = definition.choice {
        let mut chosen: Vec<&str> = symbols
            .iter()
            .filter(|(name, symbol)| {
                **name != lost.name
                    && symbol.definitions.iter().any(|d| d.choice == Some(choice))
                    && tristate(name, options) == 2
            })
            .map(|(name, _)| name.as_str())
            .collect();
        chosen.sort_unstable();
        if !chosen.is_empty() {
            return format!(
                "{} is chosen instead in the same choice ({})",
                chosen.join(", "),
                definition.place
            );
        }
    }
    let modules = definition.kind == "bool" && lost.asked.word() == "m";
    if modules {
        return format!("it can't be a module ({})", definition.place);
    }
    format!("all its dependencies are met; look at {} for its range and default", definition.place)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{merge::read, verify::lost},
        *,
    };

    const TOP: &str = r#"
mainmenu "Small"
config EXPERT
	bool "Expert"
config ARCH_HAS_RT
	bool
source "arch/$(SRCARCH)/Kconfig"
menu "Preemption"
	depends on EXPERT
choice
	prompt "Model"
config PREEMPT_NONE
	bool "None"
config PREEMPT
	bool "Full"
	depends on ARCH_HAS_RT
	help
	  config NOT_AN_OPTION
	    depends on NOTHING

	  More.
endchoice
endmenu
if NET && \
   !SLIM
config GPIO_SIM
	tristate "Simulated" if EXPERT
	depends on (GPIOLIB || PINCTRL="y") && DEPTH > 4
	depends on $(cc-option,-fthing)
	select IRQ_SIM
endif
config IRQ_SIM
	bool
config GPIOLIB
	bool "Lines"
config NET
	bool "Net"
config SLIM
	def_bool y
	prompt "Slim"
config DEPTH
	int "Depth"
	range 1 9
"#;

    const ARCH: &str = "config X86\n\tdef_bool y\n\tselect ARCH_HAS_RT if X86_64\n";

    fn symbols() -> Symbols {
        let tree = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(tree.path().join("arch/x86")).expect("made");
        fs::write(tree.path().join("Kconfig"), TOP).expect("written");
        fs::write(tree.path().join("arch/x86/Kconfig"), ARCH).expect("written");
        read_tree(tree.path(), "x86")
    }

    fn why(asked: &str, found: &str) -> Vec<String> {
        let (asked, found) = (read(asked), read(found));
        lost(&asked, &found).iter().map(|lost| explain(&symbols(), lost, &found)).collect()
    }

    #[test]
    fn definitions_are_read_with_what_is_around_them() {
        let symbols = symbols();
        assert!(!symbols.contains_key("NOT_AN_OPTION"), "help is no definition");
        let preempt = &symbols["PREEMPT"].definitions[0];
        assert_eq!(preempt.depends.len(), 2, "the menu's and its own: {preempt:?}");
        assert_eq!(preempt.choice, symbols["PREEMPT_NONE"].definitions[0].choice);
        assert_eq!(symbols["NET"].definitions[0].choice, None);
        assert_eq!(symbols["IRQ_SIM"].selected_by, [("GPIO_SIM".to_owned(), None)]);
        assert_eq!(symbols["ARCH_HAS_RT"].selected_by[0].0, "X86");
        assert_eq!(symbols["DEPTH"].definitions[0].kind, "int");
    }

    #[test]
    fn the_unmet_dependency_is_named() {
        let said = why("CONFIG_PREEMPT=y\n", "CONFIG_PREEMPT_NONE=y\nCONFIG_EXPERT=y\n");
        assert!(
            said[0].starts_with("CONFIG_PREEMPT=y is lost (absent): needs ARCH_HAS_RT (now n) ("),
            "{said:?}"
        );
        assert!(said[0].ends_with("; ARCH_HAS_RT is selected by X86"), "{said:?}");
        let said = why("CONFIG_PREEMPT=y\n", "");
        assert!(said[0].contains("needs EXPERT (now n) and ARCH_HAS_RT (now n)"), "{said:?}");
        let gpio = "CONFIG_GPIO_SIM=y\n";
        let said = why(gpio, "CONFIG_NET=y\nCONFIG_SLIM=y\nCONFIG_EXPERT=y\nCONFIG_DEPTH=3\n");
        let expected =
            "needs !SLIM, but SLIM=y and one of: GPIOLIB (now n); PINCTRL = \"y\" and DEPTH > 4";
        assert!(said[0].contains(expected), "{said:?}");
        let met = "CONFIG_NET=y\nCONFIG_GPIOLIB=y\nCONFIG_DEPTH=5\n# CONFIG_SLIM is not set\n";
        assert!(
            why(gpio, met)[0].contains("it can be set only with EXPERT (now n)"),
            "{:?}",
            why(gpio, met)
        );
    }

    #[test]
    fn files_that_include_each_other_twice_come_to_an_end() {
        let of_both = |name: &str| {
            let text = format!("config IN_{}\nsource a\nsource b\n", name.to_uppercase());
            Some(text.into_bytes())
        };
        let symbols = read_files("x86", &of_both);
        assert_eq!(symbols.values().map(|one| one.definitions.len()).sum::<usize>(), FILES_MAX);
        let of_long = |name: &str| {
            let text = format!("config {name}\nsource a\nsource b\n#{}", "-".repeat(10 << 20));
            Some(text.into_bytes())
        };
        let symbols = read_files("x86", &of_long);
        assert_eq!(symbols.values().map(|one| one.definitions.len()).sum::<usize>(), 7);
    }

    #[test]
    fn a_condition_of_any_depth_is_read() {
        for deep in ["!".repeat(1_000_000) + "A", "(".repeat(1_000_000), "A && ".repeat(500_000)] {
            assert!(matches!(parse(&deep), Expression::Unknown(_)));
        }
        assert_eq!(parse(&("!".repeat(500) + "A")).holds(&read("CONFIG_A=m\n")), 1);
    }

    #[test]
    fn choices_selections_and_unknown_names_are_named() {
        let said = why(
            "CONFIG_PREEMPT=y\n",
            "CONFIG_PREEMPT_NONE=y\n# CONFIG_PREEMPT is not set\nCONFIG_EXPERT=y\nCONFIG_ARCH_HAS_RT=y\n",
        );
        assert!(
            said[0].contains("PREEMPT_NONE is chosen instead in the same choice (Kconfig:14)"),
            "{said:?}"
        );
        let said = why("# CONFIG_IRQ_SIM is not set\n", "CONFIG_IRQ_SIM=y\nCONFIG_GPIO_SIM=y\n");
        assert!(said[0].contains("CONFIG_IRQ_SIM=n is lost (y): selected by GPIO_SIM"), "{said:?}");
        let said = why("CONFIG_IRQ_SIM=y\n", "");
        assert!(said[0].contains("set one that selects it: GPIO_SIM"), "{said:?}");
        let said = why("CONFIG_GPIO_SIMM=y\n", "");
        assert!(
            said[0].contains("no such option") && said[0].contains("did you mean CONFIG_GPIO_SIM?")
        );
        let said = why("CONFIG_DEPTH=12\n", "CONFIG_DEPTH=9\n");
        assert!(said[0].contains("look at Kconfig:41 for its range"), "{said:?}");
    }

    #[test]
    fn odd_conditions_count_as_met() {
        let unknown = parse("A &&");
        assert_eq!(unknown, Expression::Unknown("A &&".to_owned()));
        assert_eq!(unknown.holds(&ConfigOptions::new()), 2);
        assert_eq!(parse("m").holds(&ConfigOptions::new()), 1);
        assert_eq!(parse("!(A || B)").holds(&read("CONFIG_A=m\n")), 1);
        assert_eq!(parse("\"a b\" = \"a b\"").holds(&ConfigOptions::new()), 2);
    }
}
