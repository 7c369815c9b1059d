//! The page in a real browser, and plots as files.

use std::{fs, path::Path, process::Command};

use rtscope_testing::browser;

use crate::support::{folder, json, output, output_of, skip, text};

/// Where pictures are kept, to be looked at after the tests.
const PICTURES: &str = env!("CARGO_TARGET_TMPDIR");

const SECTIONS: [&str; 12] = [
    "verdict",
    "findings",
    "figures",
    "histogram",
    "exceedance",
    "timeline",
    "heatmap",
    "losses",
    "load",
    "environment",
    "provenance",
    "raw",
];

fn shown(name: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(browser::program()?);
    let url = format!("file://{}", name.display());
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--virtual-time-budget=3000", "--window-size=1280,5200"]);
    Some(text(&output_of(command.args(arguments).arg(url)).stdout))
}

#[test]
fn the_page_is_whole_in_a_real_browser() {
    let folder = folder();
    json(folder.path(), "run quick --duration 3s --require 'max < 1h' --out run --json");
    let page = folder.path().join("run/report.html");
    let source = fs::read_to_string(&page).expect("a page");
    let addresses = source.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !addresses.contains("http://") && !addresses.contains("https://"),
        "an outside address"
    );

    let Some(document) = shown(&page, &["--dump-dom"]) else {
        return skip("the_page_is_whole_in_a_real_browser", "without chromium");
    };
    for section in SECTIONS {
        assert!(document.contains(&format!("id=\"{section}\"")), "section {section} is missing");
    }
    assert!(document.contains("data-script=\"ready\""), "the page's own script did not run");
    let plots = document.matches("<svg").count();
    assert!(plots >= 6, "{plots} plots");
    let picture = format!("--screenshot={PICTURES}/report.png");
    shown(&page, &[&picture]).expect("chromium was there a moment ago");
    let bytes = fs::read(format!("{PICTURES}/report.png")).expect("a screenshot");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 50_000, "{} bytes", bytes.len());
}

#[test]
fn each_plot_is_drawn_as_svg_and_png() {
    let folder = folder();
    json(folder.path(), "run quick --duration 2s --out run --json");
    for kind in ["histogram", "exceedance", "timeline", "heatmap", "losses", "load"] {
        for format in ["svg", "png"] {
            let name = format!("{kind}.{format}");
            let drawn = output(folder.path(), &format!("plot run --kind {kind} --out {name}"));
            assert_eq!(drawn.status.code(), Some(0), "{}", text(&drawn.stderr));
            let bytes = fs::read(folder.path().join(&name)).expect("a plot");
            let magic: &[u8] = if format == "svg" { b"<svg" } else { b"\x89PNG" };
            let found = bytes.windows(magic.len()).take(100).any(|window| window == magic);
            assert!(found && bytes.len() > 1_000, "{name}: {} bytes", bytes.len());
            fs::copy(folder.path().join(&name), format!("{PICTURES}/{name}")).expect("kept");
        }
    }
}
