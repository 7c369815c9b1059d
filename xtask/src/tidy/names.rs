//! The name of a public type means one thing in the whole workspace.

use std::collections::BTreeMap;

use super::{Problem, source::Source};

/// Names that two types have, and why.
const SHARED: &[(&str, &str)] = &[("Event", "of a run's record, and of the kernel's trace")];

/// Where public types are declared, by name.
#[derive(Default)]
pub(super) struct PublicTypes(BTreeMap<String, Vec<(String, usize)>>);

impl PublicTypes {
    pub(super) fn add(&mut self, source: &Source) {
        let declares = ["struct", "enum", "union", "trait", "type"];
        for three in source.words.windows(3) {
            let [visibility, keyword, name] = three else { continue };
            if visibility.is("pub") && declares.contains(&keyword.text.as_str()) {
                let places = self.0.entry(name.text.clone()).or_default();
                places.push((source.path.clone(), name.line));
            }
        }
    }

    /// The second and each further type of a name.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
        let repeated = self.0.iter().filter(|(name, _)| !is_shared(name));
        let say = |(name, places): (&String, &Vec<(String, usize)>)| -> Vec<Problem> {
            let first = &places[0].0;
            let text = format!("{first} has a public {name} too: give each the name of what it is");
            places[1..].iter().map(|(path, line)| Problem::new(path, *line, text.clone())).collect()
        };
        repeated.flat_map(say).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::source::tests::source, *};

    #[test]
    fn two_public_types_of_one_name_are_a_problem() {
        let mut types = PublicTypes::default();
        types.add(&source("a.rs", "pub struct Choice;\npub enum Event {}\nstruct Args;"));
        types.add(&source("b.rs", "pub enum Event {}\npub(crate) struct Args;\npub struct Other;"));
        assert_eq!(types.problems(), []);
        types.add(&source("c.rs", "pub struct Args;\npub type Choice = u8;"));
        let found: Vec<String> = types.problems().iter().map(ToString::to_string).collect();
        let expected =
            "c.rs:2: a.rs has a public Choice too: give each the name of what it is".to_owned();
        assert_eq!(found, [expected]);
    }
}
