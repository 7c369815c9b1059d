//! What is where on a page: the browser is asked for the place of each element.

use std::{collections::BTreeMap, sync::LazyLock};

use rtscope_testing::{
    browser::{Browser, Theme},
    skip::skip,
};
use serde_json::Value;

use crate::{WIDTHS, kinds};

/// What a check finds on the page that the browser shows. It takes the page and the window as the checks before have left
/// them.
type Check = fn(&mut Browser, name: &str) -> Vec<String>;

/// The checks of each page, in their order: the last ones print it and unfold it.
const CHECKS: [(&str, Check); 6] = [
    ("width", wider_than_the_window),
    ("tables", without_caption_or_pressed),
    ("rows", empty_rows),
    ("drawings", drawn_outside),
    ("paper", bad_on_paper),
    ("cells", hidden_cells),
];

/// What each check finds on all pages. Each page is opened once for all checks, since that takes longer than a check. None
/// without a browser.
static FOUND: LazyLock<Option<BTreeMap<&str, Vec<String>>>> = LazyLock::new(|| {
    let mut browser = Browser::start()?;
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, page) in kinds::PAGES.iter() {
        browser.open(name, page);
        for (check, look) in CHECKS {
            let here = look(&mut browser, name).into_iter();
            found.entry(check).or_default().extend(here.map(|what| format!("{name}: {what}")));
        }
    }
    Some(found)
});

fn assert_finds_nothing(test: &str, check: &str) {
    match &*FOUND {
        Some(found) => assert_eq!(found[check], [""; 0]),
        None => skip(test, "without chromium"),
    }
}

/// Shows the pages whose name begins so.
fn on_pages(test: &str, start: &str, mut look: impl FnMut(&mut Browser, &str)) {
    let Some(mut browser) = Browser::start() else {
        return skip(test, "without chromium");
    };
    for (name, page) in kinds::PAGES.iter().filter(|(name, _)| name.starts_with(start)) {
        browser.open(name, page);
        look(&mut browser, name);
    }
}

fn texts(value: &Value) -> Vec<&str> {
    let all = value.as_array().expect("a list").iter();
    all.map(|text| text.as_str().expect("a text")).collect()
}

/// A list of texts that the page answers.
fn list(browser: &mut Browser, expression: &str) -> Vec<String> {
    texts(&browser.evaluate(expression)).into_iter().map(str::to_owned).collect()
}

#[test]
fn no_page_is_wider_than_its_window() {
    assert_finds_nothing("no_page_is_wider_than_its_window", "width");
}

fn wider_than_the_window(browser: &mut Browser, _: &str) -> Vec<String> {
    let mut found = Vec::new();
    for width in WIDTHS {
        browser.show(width, Theme::Light);
        let needed = browser.evaluate("document.documentElement.scrollWidth");
        if needed != width {
            found.push(format!("needs {needed} of {width} px"));
        }
    }
    found
}

#[test]
fn tables_have_captions_and_images_hold_nothing_to_press() {
    assert_finds_nothing("tables_have_captions_and_images_hold_nothing_to_press", "tables");
}

fn without_caption_or_pressed(browser: &mut Browser, _: &str) -> Vec<String> {
    const BARE: &str = "[...document.querySelectorAll('table')].filter(one => !one.caption?.textContent.trim())\
        .map(one => 'without a caption: ' + one.textContent.trim().slice(0, 80))";
    const PRESSED: &str = "[...document.querySelectorAll('[role=img] :is(a, button, input, [tabindex], [role=button])')]\
        .map(one => 'to press: ' + one.outerHTML.slice(0, 80))";
    [list(browser, BARE), list(browser, PRESSED)].concat()
}

#[test]
fn no_cell_with_a_text_is_hidden() {
    assert_finds_nothing("no_cell_with_a_text_is_hidden", "cells");
}

/// A class of the style sheet that hides curves once hid the cells of a table.
fn hidden_cells(browser: &mut Browser, _: &str) -> Vec<String> {
    const HIDDEN: &str = "[...document.querySelectorAll('td')]\
        .filter(one => one.textContent.trim() && !one.checkVisibility()).map(one => one.outerHTML.slice(0, 200))";
    browser.show(1280, Theme::Light);
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
    list(browser, HIDDEN)
}

#[test]
fn tables_hold_no_empty_row_and_no_all_to_all() {
    assert_finds_nothing("tables_hold_no_empty_row_and_no_all_to_all", "rows");
}

fn empty_rows(browser: &mut Browser, _: &str) -> Vec<String> {
    const NOTHING: &str = "[...document.querySelectorAll('tbody tr')].flatMap(row => {\
        const cells = [...row.querySelectorAll('td')].map(cell => cell.textContent.trim());\
        const empty = cells.length && cells.every(text => text == '' || text == '-');\
        const same = cells.filter(text => /^(.+) to \\1$/.test(text));\
        return empty ? ['an empty row: ' + row.innerHTML.slice(0, 80)] : same; })";
    list(browser, NOTHING)
}

/// The names of the columns of a table of figures that are on the screen, and whether one of them is cut.
const COLUMNS: &str = "[...document.querySelectorAll('#figures > .scroll .figures thead th')]\
    .filter(one => one.offsetWidth && one.getBoundingClientRect().right <= innerWidth)\
    .map(one => one.textContent)";

#[test]
fn the_columns_that_decide_come_first_and_the_rest_folds_away() {
    let test = "the_columns_that_decide_come_first_and_the_rest_folds_away";
    on_pages(test, "page-", |browser, name| {
        browser.show(400, Theme::Light);
        let shown = browser.evaluate(COLUMNS);
        let [first, rest @ ..] = &texts(&shown)[..] else { panic!("{name}: no column") };
        assert!(["thread", "phase"].contains(first), "{name}: {first}");
        assert_eq!(rest, ["max", "missed", "p99.9"], "{name}");
        let all = "[...document.querySelectorAll('#figures > .scroll .figures thead th')].filter(one => one.offsetWidth).length";
        assert_eq!(browser.evaluate(all), 4, "{name}: the rest is folded away");
        // A run without a wake-up has no more than these.
        if name != "page-empty" {
            browser.evaluate("document.querySelector('.unfold input').click()");
            assert!(browser.evaluate(all).as_u64() > Some(6), "{name}: it can be unfolded");
        }
        browser.show(1280, Theme::Light);
        let shown = browser.evaluate(COLUMNS);
        assert!(texts(&shown).contains(&"max"), "{name}: {shown}");
        if name == "page-run" {
            assert_eq!(browser.evaluate(all), texts(&shown).len(), "{name}: none is cut: {shown}");
        }
    });
}

#[test]
fn each_kernel_of_a_lab_is_on_the_screen_of_a_phone() {
    const CUT: &str = "[...document.querySelectorAll('.heat td')]\
        .filter(one => one.getBoundingClientRect().right > innerWidth).length";
    on_pages("each_kernel_of_a_lab_is_on_the_screen_of_a_phone", "lab", |browser, name| {
        // The page of a verb has no heat map.
        if name != "lab" {
            return;
        }
        for width in WIDTHS {
            browser.show(width, Theme::Light);
            assert_eq!(browser.evaluate(CUT), 0, "{width} px");
        }
        let kernels = browser.evaluate("document.querySelectorAll('.heat td[data-kernel]').length");
        assert_eq!(kernels, 12, "three kernels under three loads, and the worst of each");
    });
}

#[test]
fn host_and_kernel_are_above_the_fold() {
    const LOWEST: &str = "Math.max(...[...document.querySelectorAll('.verdict .facts div')]\
        .filter(one => /Host|Kernel/.test(one.textContent)).map(one => one.getBoundingClientRect().bottom))";
    on_pages("host_and_kernel_are_above_the_fold", "page-run", |browser, name| {
        for (width, fold) in [(400, 700.0), (1280, 600.0)] {
            browser.show(width, Theme::Light);
            let lowest = browser.evaluate(LOWEST).as_f64().expect("two facts");
            assert!(lowest > 0.0 && lowest < fold, "{name}, {width} px: {lowest}");
        }
    });
}

#[test]
fn a_finger_is_promised_no_zoom_that_it_has_not() {
    const HINTS: &str = "[...document.querySelectorAll('.hint')].map(one => one.innerText)";
    on_pages("a_finger_is_promised_no_zoom_that_it_has_not", "page-run", |browser, _| {
        for (is_touched, says) in [(true, "Tap to read"), (false, "drag to zoom")] {
            browser.touch(is_touched);
            let hints = browser.evaluate(HINTS);
            let hints = texts(&hints);
            assert!(hints.len() >= 4, "{hints:?}");
            let other = if is_touched { "zoom" } else { "Tap" };
            for hint in hints {
                assert!(hint.contains(says), "{is_touched}: {hint}");
                assert!(!hint.replace("Reset zoom", "").contains(other), "{is_touched}: {hint}");
            }
        }
    });
}

#[test]
fn on_paper_the_verdict_stays_whole_and_every_text_is_8_pt_or_more() {
    let test = "on_paper_the_verdict_stays_whole_and_every_text_is_8_pt_or_more";
    assert_finds_nothing(test, "paper");
}

fn bad_on_paper(browser: &mut Browser, name: &str) -> Vec<String> {
    const SMALL: &str = "(() => {\
        const found = new Map();\
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);\
        for (let node; (node = walker.nextNode()); ) {\
            const one = node.parentElement;\
            if (!node.data.trim() || !one.checkVisibility() || one.closest('script, style, title, desc')) continue;\
            const scale = one.closest('svg') ? one.closest('svg').getScreenCTM().a : 1;\
            const pt = parseFloat(getComputedStyle(one).fontSize) * scale * 0.75;\
            if (pt < 7.99) found.set(one.tagName + ' ' + (one.closest('[class]')?.getAttribute('class') ?? ''),\
                pt.toFixed(2) + ' pt: ' + node.data.trim().slice(0, 40));\
        }\
        return [...found].map(([where, what]) => where + ' ' + what); })()";
    // Paper doesn't scroll: the columns of figures fit.
    const CUT: &str = "[...document.querySelectorAll('.figures, .outcomes')]\
        .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)\
        .map(one => 'a table is wider than the paper: ' + one.textContent.trim().slice(0, 80))";
    const INSIDE: &str =
        "(one => one && getComputedStyle(one).breakInside)(document.querySelector('.verdict'))";
    browser.print();
    let mut found = [list(browser, SMALL), list(browser, CUT)].concat();
    if name.starts_with("page-") && browser.evaluate(INSIDE) != "avoid" {
        found.push("the verdict may be split".to_owned());
    }
    // A card that is higher than the paper (A4) would be split all the same.
    let height = browser.evaluate("document.querySelector('.verdict')?.offsetHeight ?? 0");
    if name == "page-run" && !(Some(1.0)..Some(1_047.0)).contains(&height.as_f64()) {
        found.push(format!("the verdict is {height} px high"));
    }
    found
}

#[test]
fn no_drawing_leaves_its_sheet() {
    assert_finds_nothing("no_drawing_leaves_its_sheet", "drawings");
}

fn drawn_outside(browser: &mut Browser, _: &str) -> Vec<String> {
    const OUTSIDE: &str = "[...document.querySelectorAll('svg.plot')].flatMap(sheet => {\
        const { width, height } = sheet.viewBox.baseVal;\
        const drawn = [...sheet.querySelectorAll('path, rect, text, circle')].filter(one => !one.closest('.plane, clipPath, .off'));\
        const place = one => { const box = one.getBoundingClientRect(), at = sheet.getBoundingClientRect();\
            const scale = width / at.width; return { left: (box.left - at.left) * scale,\
            right: (box.right - at.left) * scale, bottom: (box.bottom - at.top) * scale }; };\
        return drawn.filter(one => { const { left, right, bottom } = place(one);\
            return left < -1 || right > width + 1 || bottom > height + 1; })\
            .map(one => sheet.id + ': ' + one.outerHTML.slice(0, 160)); })";
    browser.show(1280, Theme::Light);
    list(browser, OUTSIDE)
}
