//! Which crate of ours may use which. The absence of an edge is what keeps measuring and judging
//! apart.

use cargo_metadata::{Dependency, DependencyKind, Metadata};

use super::Problem;

/// Each crate with those it may use, for its tests too. A crate that isn't there yet is no problem;
/// one that isn't in the table is.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rtscope-histogram", &[]),
    ("rtscope-model", &["rtscope-histogram"]),
    ("rtscope-sys", &["rtscope-model", TESTING]),
    ("rtscope-testing", &["rtscope-sys"]),
    ("rtscope-sampler", &["rtscope-model", "rtscope-sys", TESTING]),
    ("rtscope-measure", &["rtscope-model", "rtscope-sampler", "rtscope-sys", TESTING]),
    ("rtscope-analyse", &["rtscope-model", TESTING]),
    ("rtscope-lab", &["rtscope-model", "rtscope-sys", TESTING]),
    ("rtscope-fleet", &["rtscope-model", "rtscope-sys", TESTING]),
    (
        "rtscope",
        &[
            "rtscope-analyse",
            "rtscope-fleet",
            "rtscope-lab",
            "rtscope-measure",
            "rtscope-model",
            "rtscope-sampler",
            "rtscope-sys",
            TESTING,
        ],
    ),
    ("xtask", &[TESTING]),
];

/// What tests share: a program that contains it would contain its panics and its clock that stands still.
const TESTING: &str = "rtscope-testing";

/// A crate of ours and those of ours that it uses. What it uses for more than its tests and should not stands
/// there with a mark.
pub(super) type Edges = Vec<(String, Vec<String>)>;

/// The edges between the workspace's crates, of every kind.
pub(super) fn read(metadata: &Metadata) -> Edges {
    let ours = metadata.workspace_packages();
    let is_ours = |name: &str| ours.iter().any(|package| package.name.as_str() == name);
    let uses = |package: &cargo_metadata::Package| {
        let name = |dependency: &Dependency| match dependency.kind {
            DependencyKind::Development => dependency.name.clone(),
            _ if dependency.name == TESTING => format!("{TESTING} outside of tests"),
            _ => dependency.name.clone(),
        };
        let ours = package.dependencies.iter().filter(|one| is_ours(&one.name));
        ours.map(name).collect()
    };
    ours.iter().map(|package| (package.name.to_string(), uses(package))).collect()
}

pub(super) fn check(edges: &Edges) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, uses) in edges {
        let folder = if name == "xtask" { "xtask".to_owned() } else { format!("crates/{name}") };
        let problem = |message| Problem::new(&format!("{folder}/Cargo.toml"), 1, message);
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            problems.push(problem(format!("say in xtask's table what {name} may use")));
            continue;
        };
        let wrong = uses.iter().filter(|used| !allowed.contains(&used.as_str()));
        problems.extend(wrong.map(|used| problem(format!("{name} must not use {used}"))));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(edges: &[(&str, &[&str])]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let edges = edges.iter().map(|(name, uses)| ((*name).to_owned(), owned(uses))).collect();
        check(&edges).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn measuring_never_sees_judging() {
        assert_eq!(
            messages(&[("rtscope-measure", &["rtscope-model", "rtscope-analyse"])]),
            ["rtscope-measure must not use rtscope-analyse"]
        );
        assert_eq!(
            messages(&[("rtscope-measure", &["rtscope-sys"]), ("rtscope", &["rtscope-measure"])]),
            [""; 0]
        );
    }

    #[test]
    fn a_new_crate_must_be_in_the_table() {
        assert_eq!(messages(&[("rtscope-new", &[])]).len(), 1);
    }

    #[test]
    fn the_workspace_is_read() {
        let edges = read(&crate::metadata().expect("metadata"));
        let measure = edges.iter().find(|(name, _)| name == "rtscope-measure").expect("a crate");
        assert!(measure.1.iter().any(|name| name == "rtscope-sys"), "{measure:?}");
    }
}
