//! The tables of rules, one file for each topic.

mod boot;
mod debug;
mod isolation;
mod kernel;
mod memory;
mod permission;
mod power;
mod scheduling;
mod surroundings;
mod threads;
mod time;

pub(super) use self::{
    isolation::{isolating, proposed},
    power::DEEP_US,
};
use super::Rule;
use crate::number::listed;

/// Every rule.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    let tables = [
        kernel::RULES,
        boot::RULES,
        permission::RULES,
        scheduling::RULES,
        threads::RULES,
        isolation::RULES,
        power::RULES,
        memory::RULES,
        time::RULES,
        debug::RULES,
        surroundings::RULES,
    ];
    tables.into_iter().flatten()
}
