//! Whether the kernel's configuration took what was asked.

use super::merge::{ConfigOptions, Value};

/// An asked option that the configuration doesn't have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Option, without `CONFIG_`.
    pub name: String,
    pub asked: Value,
    /// As it is; none when the configuration doesn't name it.
    pub found: Option<Value>,
}

/// Every asked option that was lost. What is asked to be off and isn't named is off.
#[must_use]
pub fn lost(asked: &ConfigOptions, found: &ConfigOptions) -> Vec<Lost> {
    let is_met = |name: &String, value: &Value| match (value, found.get(name)) {
        (Value::Off, None) => true,
        (value, Some(found)) => value == found,
        (Value::Set(_), None) => false,
    };
    asked
        .iter()
        .filter(|(name, value)| !is_met(name, value))
        .map(|(name, value)| Lost {
            name: name.clone(),
            asked: value.clone(),
            found: found.get(name).cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::merge::read, *};

    #[test]
    fn lost_options_are_those_with_another_value() {
        let asked = read(
            "CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=y\n# CONFIG_D is not set\n# CONFIG_E is not set\n\
             CONFIG_N=4\nCONFIG_T=\"-rt\"\n",
        );
        let found = read(
            "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=y\nCONFIG_N=4\nCONFIG_T=\"-rt\"\n",
        );
        let lost = lost(&asked, &found);
        let names: Vec<&str> = lost.iter().map(|lost| lost.name.as_str()).collect();
        assert_eq!(names, ["B", "C", "D"]);
        assert_eq!(lost[0].found, Some(Value::Set("m".into())));
        assert_eq!(lost[1].found, Some(Value::Off));
    }
}
