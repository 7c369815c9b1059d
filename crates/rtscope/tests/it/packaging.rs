//! What a package is made of besides the program: pages of the manual, completions. Both come from
//! the real command line, so they are checked against its help.

use std::fs;

use crate::support::{folder, output, rtscope, text};

/// The verbs that the help lists, in groups.
fn verbs(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    let lines = listed.take_while(|line| *line != "Options:");
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !["", "help"].contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_manual_has_a_page_for_every_verb() {
    let folder = folder();
    let verbs = verbs(&text(&output(folder.path(), "help").stdout));
    assert!(verbs.len() > 8 && verbs.contains(&"run".to_owned()), "{verbs:?}");
    let pages = folder.path().join("man");
    fs::create_dir(&pages).expect("a folder");
    let out = rtscope(folder.path()).arg("man").arg(&pages).output().expect("runs");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let main = fs::read_to_string(pages.join("rtscope.1")).expect("a page");
    for verb in &verbs {
        let page = fs::read_to_string(pages.join(format!("rtscope-{verb}.1"))).expect(verb);
        assert!(page.contains(".SH SYNOPSIS"), "{verb}: {page}");
        assert!(main.contains(&format!("rtscope\\-{verb}(1)")), "{verb} is not in the main page");
    }
    // An example is as it is typed, on a line of its own.
    let run = fs::read_to_string(pages.join("rtscope-run.1")).expect("a page");
    let example =
        "\n\\&rtscope run \\-\\-require \\(aqmax < 200us\\(aq \\-\\-require \\(aqmissed = 0\\(aq\n";
    assert!(run.contains(".SH EXAMPLES\n.nf\n") && run.contains(example), "{run}");
    let hidden = pages.join("rtscope-load-worker.1");
    assert!(!hidden.exists(), "what users don't call has no page");
    let missing = output(folder.path(), "man nowhere");
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("nowhere"));
}

#[test]
fn every_shell_completes_every_verb() {
    let folder = folder();
    let verbs = verbs(&text(&output(folder.path(), "help").stdout));
    for shell in ["bash", "zsh", "fish"] {
        let out = output(folder.path(), &format!("completions {shell}"));
        assert!(out.status.success(), "{shell}");
        let script = text(&out.stdout);
        for verb in &verbs {
            assert!(script.contains(verb.as_str()), "{shell} does not know {verb}");
        }
        // fish has an option's name by itself.
        assert!(script.contains("priority"), "{shell} does not know the options");
    }
    assert_eq!(output(folder.path(), "completions csh").status.code(), Some(64));
}
