//! The book as its readers see it: at three widths, in both colours, with its search.

use rtscope_testing::{
    browser::{Browser, Theme, WIDTHS},
    skip::skip_this,
};

use super::*;

/// One page of each part, with the widest tables and blocks.
const PAGES: [&str; 7] = [
    "index.html",
    "tutorial/1-first-run.html",
    "guide/install.html",
    "reference/commands/run.html",
    "method/coverage.html",
    "walks/course-lab.html",
    "documents.html",
];

/// What stands out of the page on its right side, if anything does, and can't be scrolled by itself.
const SIDEWAYS: &str = "(() => {
    const scrolls = it => ['auto', 'scroll'].includes(getComputedStyle(it).overflowX);
    const hasOwn = it => it.tagName != 'MAIN' && (scrolls(it) || hasOwn(it.parentElement));
    const all = [...document.querySelectorAll('main *')];
    const out = all.filter(it => it.getBoundingClientRect().right > innerWidth + 1 && !hasOwn(it.parentElement));
    return out.map(it => it.outerHTML.slice(0, 80))[0] ?? '';
})()";

/// The first results of a search, once there are any.
const FOUND: &str = "new Promise(done => {
    document.getElementById('mdbook-search-toggle').click();
    const bar = document.getElementById('mdbook-searchbar');
    const look = () => {
        bar.value = 'exceedance';
        bar.dispatchEvent(new Event('input'));
        bar.dispatchEvent(new KeyboardEvent('keyup', { key: 'e' }));
        const results = document.querySelectorAll('#mdbook-searchresults li').length;
        results > 0 ? done(results) : setTimeout(look, 200);
    };
    look();
    setTimeout(() => done(0), 60000);
})";

#[test]
fn the_book_fits_three_widths_has_both_colours_and_finds_a_word() {
    let room = tempfile::tempdir().expect("a folder");
    let at = |name: &str| room.path().join(name);
    let Some(program) = program::present().expect("looked for") else { return skip_this(WITHOUT) };
    let Some(mut browser) = Browser::start() else { return skip_this("without chromium") };
    write(&program, &at("log"), &at("copy"), &at("book")).expect("written");
    for page in PAGES {
        for width in WIDTHS {
            browser.show(width, Theme::Light);
            browser.visit(&at("book").join(page));
            assert_eq!(browser.evaluate(SIDEWAYS), "", "{page}, {width} wide");
            let height = "document.querySelector('main h1').getBoundingClientRect().height";
            assert!(browser.evaluate(height).as_f64().is_some_and(|it| it > 10.0), "{page}");
        }
    }
    browser.visit(&at("book").join("index.html"));
    assert!(browser.evaluate(FOUND).as_u64().is_some_and(|results| results > 1));
    // Of three numbers from 0 to 255.
    const BRIGHTNESS: &str = "getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/g).slice(0, 3)\
        .reduce((sum, one) => sum + Number(one), 0)";
    let mut brightness = |theme: Theme| {
        browser.show(1280, theme);
        browser.visit(&at("book").join("index.html"));
        browser.evaluate(BRIGHTNESS).as_u64().expect("a number")
    };
    assert!(brightness(Theme::Light) > 600);
    assert!(brightness(Theme::Dark) < 200);
}
