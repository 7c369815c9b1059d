//! Every kind of page in a real browser: axe-core finds nothing, and what must be seen is on the screen.

#![expect(clippy::disallowed_methods, reason = "a browser is a process")]

mod axe;
mod explain;
#[path = "../../src/plot/fixture.rs"]
#[expect(dead_code, reason = "the unit tests use more of it")]
mod fixture;
mod fleet;
mod frames;
mod kinds;
mod late;
mod layout;
#[path = "../../src/test_support.rs"]
#[expect(dead_code, reason = "the unit tests use more of it")]
mod test_support;
mod trials;

use std::{fs, path::Path, thread};

use axe::Rules;
use rtscope_analyse::{judge, judgement};
use rtscope_testing::{
    browser::{Browser, Theme, WIDTHS},
    skip::{skip, skip_this},
};

const TEMPLATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/template");

#[test]
fn every_kind_of_page_is_among_those_that_are_looked_at() {
    let pages = &kinds::PAGES;
    let mut kinds = 0;
    for entry in fs::read_dir(TEMPLATES).expect("templates").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a text");
        if text.starts_with("{% extends \"base.html\" %}") {
            let file = entry.file_name().into_string().expect("a name");
            let kind = file.trim_end_matches(".html");
            let is_of = |name: &str| name == kind || name.starts_with(&format!("{kind}-"));
            assert!(pages.iter().any(|(name, _)| is_of(name)), "no page of {kind}");
            kinds += 1;
        }
    }
    assert!(kinds >= 10, "{kinds} kinds");
}

#[test]
fn axe_finds_nothing_on_any_page() {
    let Some(script) = axe::script() else {
        return skip("axe_finds_nothing_on_any_page", "without axe-core");
    };
    let pages = &kinds::PAGES;
    // Two browsers, each with every other page: that takes half the time on two CPUs.
    let check = |first: usize| {
        let mut browser = Browser::start()?;
        let own = pages.iter().skip(first).step_by(2);
        let found = own.flat_map(|(name, page)| axe_findings(&mut browser, &script, name, page));
        Some(found.collect::<Vec<String>>())
    };
    let (even, odd) = thread::scope(|scope| {
        let odd = scope.spawn(|| check(1));
        (check(0), odd.join().expect("it ends"))
    });
    let (Some(mut found), Some(odd)) = (even, odd) else {
        return skip("axe_finds_nothing_on_any_page", "without chromium");
    };
    found.extend(odd);
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

/// How axe-core sees each page. Colours don't depend on the width, nothing else depends on the theme, and a desk shows what
/// a notebook does: all of [`WIDTHS`] in both themes would take three times as long.
const LOOKS: [(u32, Theme, Rules); 3] = [
    (1280, Theme::Light, Rules::All),
    (1280, Theme::Dark, Rules::Colours),
    (400, Theme::Light, Rules::AllButColours),
];

/// What axe-core finds on a page in each look, with everything unfolded.
fn axe_findings(browser: &mut Browser, script: &str, name: &str, page: &str) -> Vec<String> {
    browser.open(name, page);
    browser.evaluate(script);
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
    let mut found = Vec::new();
    for (width, theme, rules) in LOOKS {
        browser.show(width, theme);
        let here = axe::findings(browser, rules).into_iter();
        found.extend(here.map(|line| format!("{name}, {width} px, {theme:?}: {line}")));
    }
    found
}

#[test]
fn axe_finds_what_is_planted_by_the_rules_that_are_asked_for() {
    let Some(script) = axe::script() else { return skip_this("without axe-core") };
    let Some(mut browser) = Browser::start() else { return skip_this("without chromium") };
    let page = "<!DOCTYPE html><html lang=en><title>a</title><main><h1>a</h1>\
                <p style='background: #fff; color: #eee'>pale</p><img src='data:,'></main></html>";
    browser.open("planted", page);
    browser.evaluate(&script);
    for (rules, colour, image) in [
        (Rules::All, true, true),
        (Rules::Colours, true, false),
        (Rules::AllButColours, false, true),
    ] {
        let found = axe::findings(&mut browser, rules).join("\n");
        assert_eq!(found.contains("color-contrast"), colour, "{rules:?}: {found}");
        assert_eq!(found.contains("image-alt"), image, "{rules:?}: {found}");
    }
}

/// Pages are kept where they can be looked at.
#[test]
fn pages_are_the_same_each_time_and_kept() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&folder).expect("a folder");
    for ((name, page), (_, again)) in kinds::PAGES.iter().zip(kinds::pages()) {
        assert!(*page == again, "{name} differs");
        fs::write(folder.join(name).with_extension("html"), page).expect("written");
    }
}
