//! Places that a labgrid coordinator hands out. Its own Python library speaks with it; what runs at the place goes over ssh
//! as everywhere else.

use std::collections::BTreeMap;

use rtscope_model::printable::{self, printable};
use serde::Deserialize;

use crate::{
    error::FleetError,
    places::Reach,
    selector::Selector,
    shell::{NOT_EXECUTABLE, NOT_FOUND, Shell},
};

/// The program that asks, for `python3 -c`.
const ASK: &str = include_str!("scripts/ask_labgrid.py");

/// Where the coordinator is, and the Python that has labgrid.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coordinator {
    /// `HOST:PORT`.
    #[serde(rename = "coordinator")]
    pub address: String,
    /// A program in PATH, or its path.
    #[serde(default = "python3")]
    pub python: String,
}

fn python3() -> String {
    "python3".to_owned()
}

/// A place as the coordinator lists it.
#[derive(Clone, Debug, Deserialize)]
pub struct ListedPlace {
    pub name: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    pub taken_by: Option<String>,
}

impl ListedPlace {
    /// Its tags as `KEY=VALUE`; one that can't be chosen by is left out.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        let tags = self.tags.iter().map(|(key, value)| format!("{key}={value}"));
        tags.filter(|tag| Selector::is_tag(tag)).collect()
    }
}

/// What the coordinator says of one place.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PlaceAnswer {
    problem: Option<String>,
    taken_by: Option<String>,
    address: Option<String>,
    user: Option<String>,
    port: Option<u16>,
}

impl Coordinator {
    pub(crate) fn list(&self) -> Result<Vec<ListedPlace>, FleetError> {
        self.ask(&["list"])
    }

    /// Takes a place, and says how ssh reaches it. `is_ours` says that it may be taken by this user already.
    pub(crate) fn acquire(&self, place: &str, is_ours: bool) -> Result<Reach, FleetError> {
        if is_ours {
            let said: PlaceAnswer = self.ask(&["address", place])?;
            if said.address.is_some() {
                return said.reach();
            }
        }
        // Without an answer, the coordinator may have handed it out.
        let said: PlaceAnswer = self.ask(&["acquire", place]).map_err(|e| match e {
            FleetError::Connection(why) => FleetError::Unsettled(why),
            other => other,
        })?;
        said.reach()
    }

    /// Gives a place back that this user has; one that is free, or somebody else's, stays as it is.
    pub(crate) fn release(&self, place: &str) -> Result<(), FleetError> {
        match self.ask::<PlaceAnswer>(&["release", place])?.problem {
            // The coordinator, or what it asks, may come back.
            Some(problem) => Err(FleetError::Connection(problem)),
            None => Ok(()),
        }
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, words: &[&str]) -> Result<T, FleetError> {
        let command = [&[self.python.as_str(), "-c", ASK, &self.address], words].concat();
        // Not to be interrupted: a place that is acquired meanwhile would have to be found again.
        let answer = Shell::here().run("exec \"$@\"", &command, &|| false)?;
        if [NOT_EXECUTABLE, NOT_FOUND].contains(&answer.code) {
            return Err(FleetError::Refused(format!(
                "can't run {:?}, which asks labgrid: {}; name a Python with `python` in [labgrid]",
                self.python, answer.complaint
            )));
        }
        let last = answer.complaint.rsplit("; ").next().unwrap_or_default();
        if last.contains("No module named") {
            return Err(FleetError::Refused(format!(
                "{:?} has no labgrid: run `pip install labgrid` in a virtual environment, and name its python with \
                 `python` in [labgrid]",
                self.python
            )));
        }
        printable::from_json(&answer.said).map_err(|_| {
            FleetError::Connection(format!("the coordinator {}: {}", self.address, printable(last)))
        })
    }
}

impl PlaceAnswer {
    /// How ssh reaches the place.
    ///
    /// # Errors
    ///
    /// The coordinator has refused it, or its answer names no host.
    pub fn reach(self) -> Result<Reach, FleetError> {
        if let Some(problem) = self.problem {
            // Its exporter may come back.
            return Err(FleetError::Connection(problem));
        }
        if let Some(holder) = self.taken_by {
            return Err(FleetError::Taken { holder, seconds: None });
        }
        let address = self.address.unwrap_or_default();
        let target = self.user.map_or_else(|| address.clone(), |user| format!("{user}@{address}"));
        if address.is_empty() || [&address, &target].iter().any(|word| word.starts_with('-')) {
            return Err(FleetError::Connection(format!("{target:?} is not an ssh address")));
        }
        let port = self.port.unwrap_or(22).to_string();
        Ok(Reach::Ssh { target, options: vec!["-p".to_owned(), port] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_coordinator_says_is_no_option_of_ssh() {
        let reach = |text| printable::from_json::<PlaceAnswer>(text).expect("an answer").reach();
        let options = vec!["-p".to_owned(), "2222".to_owned()];
        assert_eq!(
            reach(r#"{"address": "saw", "user": "root", "port": 2222}"#).expect("a place"),
            Reach::Ssh { target: "root@saw".to_owned(), options }
        );
        for hostile in [
            r#"{"address": "-oProxyCommand=x"}"#,
            r#"{"address": "-oProxyCommand=x", "user": "root"}"#,
            r#"{"address": "saw", "user": "-oProxyCommand=x "}"#,
            r#"{"address": "", "user": "root"}"#,
        ] {
            assert!(
                reach(hostile).expect_err(hostile).to_string().contains("is not an ssh address")
            );
        }
    }
}
