//! What is where on a page: the browser is asked for the place of each element.

use rtscope_testing::skip::skip;
use serde_json::Value;

use crate::{
    WIDTHS,
    browser::{Browser, Theme},
    kinds,
};

fn on_each_page(test: &str, look: impl FnMut(&mut Browser, &str)) {
    on_pages(test, "", look);
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

#[test]
fn no_page_is_wider_than_its_window() {
    on_each_page("no_page_is_wider_than_its_window", |browser, name| {
        for width in WIDTHS {
            browser.show(width, Theme::Light);
            let needed = browser.evaluate("document.documentElement.scrollWidth");
            assert_eq!(needed, width, "{name}");
        }
    });
}

#[test]
fn tables_have_captions_and_images_hold_nothing_to_press() {
    on_each_page("tables_have_captions_and_images_hold_nothing_to_press", |browser, name| {
        let bare = "[...document.querySelectorAll('table')]\
            .filter(one => !one.caption?.textContent.trim()).map(one => one.textContent.trim().slice(0, 80))";
        assert_eq!(texts(&browser.evaluate(bare)), [""; 0], "{name}: tables without a caption");
        let pressed = "document.querySelectorAll('[role=img] :is(a, button, input, [tabindex], [role=button])').length";
        assert_eq!(browser.evaluate(pressed), 0, "{name}");
    });
}

#[test]
fn no_cell_with_a_text_is_hidden() {
    // A class of the style sheet that hides curves once hid the cells of a table.
    const HIDDEN: &str = "[...document.querySelectorAll('td')]\
        .filter(one => one.textContent.trim() && !one.checkVisibility()).map(one => one.outerHTML.slice(0, 200))";
    on_each_page("no_cell_with_a_text_is_hidden", |browser, name| {
        browser.show(1280, Theme::Light);
        browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
        assert_eq!(texts(&browser.evaluate(HIDDEN)), [""; 0], "{name}");
    });
}

#[test]
fn tables_hold_no_empty_row_and_no_all_to_all() {
    const NOTHING: &str = "[...document.querySelectorAll('tbody tr')].flatMap(row => {\
        const cells = [...row.querySelectorAll('td')].map(cell => cell.textContent.trim());\
        const empty = cells.length && cells.every(text => text == '' || text == '-');\
        const same = cells.filter(text => /^(.+) to \\1$/.test(text));\
        return empty ? [row.textContent.trim()] : same; })";
    on_each_page("tables_hold_no_empty_row_and_no_all_to_all", |browser, name| {
        assert_eq!(texts(&browser.evaluate(NOTHING)), [""; 0], "{name}");
    });
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
    on_each_page(
        "on_paper_the_verdict_stays_whole_and_every_text_is_8_pt_or_more",
        |browser, name| {
            browser.print();
            assert_eq!(texts(&browser.evaluate(SMALL)), [""; 0], "{name}");
            // Paper doesn't scroll: the columns of figures fit.
            let cut = "[...document.querySelectorAll('.figures, .outcomes')]\
                .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1).length";
            assert_eq!(browser.evaluate(cut), 0, "{name}: a table is wider than the paper");
            if name.starts_with("page-") {
                let inside = "getComputedStyle(document.querySelector('.verdict')).breakInside";
                assert_eq!(browser.evaluate(inside), "avoid", "{name}");
            }
            if name == "page-run" {
                // A card that is higher than the paper would split all the same.
                let height = browser.evaluate("document.querySelector('.verdict').offsetHeight");
                assert!(height.as_f64() < Some(1_047.0), "{height} px on A4");
            }
        },
    );
}

#[test]
fn no_drawing_leaves_its_sheet() {
    const OUTSIDE: &str = "[...document.querySelectorAll('svg.plot')].flatMap(sheet => {\
        const { width, height } = sheet.viewBox.baseVal;\
        const drawn = [...sheet.querySelectorAll('path, rect, text, circle')].filter(one => !one.closest('.plane, clipPath, .off'));\
        const place = one => { const box = one.getBoundingClientRect(), at = sheet.getBoundingClientRect();\
            const scale = width / at.width; return { left: (box.left - at.left) * scale,\
            right: (box.right - at.left) * scale, bottom: (box.bottom - at.top) * scale }; };\
        return drawn.filter(one => { const { left, right, bottom } = place(one);\
            return left < -1 || right > width + 1 || bottom > height + 1; })\
            .map(one => sheet.id + ': ' + one.outerHTML.slice(0, 160)); })";
    on_each_page("no_drawing_leaves_its_sheet", |browser, name| {
        browser.show(1280, Theme::Light);
        assert_eq!(texts(&browser.evaluate(OUTSIDE)), [""; 0], "{name}");
    });
}
