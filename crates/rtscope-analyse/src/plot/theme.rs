//! How things look: each class has a light look, written as presentation attributes so that an SVG
//! stands alone in any renderer, and a dark look, written as rules of a style sheet.
//!
//! The colours of CPUs follow the palette of Okabe and Ito, those of cells lie between its hues:
//! both stay apart for colour-blind readers, and every colour comes with a dash or a marker.

use std::fmt::Write as _;

/// Property, light value, dark value; an empty dark value is the light one.
type Property = (&'static str, &'static str, &'static str);

/// How many colours there are for CPUs, and for cells.
pub(crate) const COLOURS: usize = 8;

/// Levels of the heat map.
pub(crate) const HEATS: usize = 9;

/// Colour of each CPU: light, dark.
const CPUS: [(&str, &str); COLOURS] = [
    ("#0b6bb8", "#5ab0f5"),
    ("#d1570b", "#ff9350"),
    ("#078a63", "#3ecf9d"),
    ("#b4498f", "#e88fca"),
    ("#3fa7e0", "#9ad9ff"),
    ("#a87900", "#f2c14e"),
    ("#4b5563", "#c3ccda"),
    ("#8c510a", "#cfa070"),
];

/// Colour of each kind of load, rest first: light, dark.
const CELLS: [(&str, &str); COLOURS] = [
    ("#64748b", "#9fb0c6"),
    ("#5b3fb8", "#a896ff"),
    ("#0f8588", "#4fd0d0"),
    ("#a3285a", "#f178a8"),
    ("#77830f", "#c6d24a"),
    ("#c2607a", "#f29db2"),
    ("#2f7d32", "#7bd17f"),
    ("#8d4fa8", "#d29be8"),
];

/// Colour of each level of the heat map, few to many: light, dark.
const HEAT: [(&str, &str); HEATS] = [
    ("#8bb9ec", "#2b5590"),
    ("#6fa6e3", "#3264a8"),
    ("#558fd6", "#3c77c2"),
    ("#3f79c6", "#4a8cd8"),
    ("#2f65b3", "#62a3ea"),
    ("#27529c", "#82b9f4"),
    ("#224083", "#a4cff9"),
    ("#1d2f69", "#c5e1fc"),
    ("#171d4c", "#e3f1fe"),
];

/// Dash of each colour, so that it is not told by its hue alone.
pub(crate) const DASHES: [&str; COLOURS] =
    ["none", "10 2", "4 2", "10 2 2 2", "2 1.5", "14 3 4 3", "6 2 1 2", "1 1.5"];

/// Everything that is not a colour of a CPU, a cell or a heat. Texts that lie on curves have a rim of
/// the colour of the paper.
const INKS: [(&str, &[Property]); 29] = [
    ("paper", &[("fill", "#ffffff", "#151b2b")]),
    (
        "head",
        &[("fill", "#131c2b", "#eef2f9"), ("font-size", "17", ""), ("font-weight", "600", "")],
    ),
    ("sub", &[("fill", "#5a6678", "#9aa7bd"), ("font-size", "12", "")]),
    (
        "name",
        &[
            ("fill", "#131c2b", "#eef2f9"),
            ("font-size", "12.5", ""),
            ("font-weight", "600", ""),
            ("stroke", "#ffffff", "#151b2b"),
            ("stroke-width", "3", ""),
            ("stroke-linejoin", "round", ""),
            ("paint-order", "stroke", ""),
        ],
    ),
    ("text", &[("fill", "#3b4658", "#c2ccdc"), ("font-size", "11.5", "")]),
    ("tick", &[("fill", "#5a6678", "#9aa7bd"), ("font-size", "11", "")]),
    ("axis", &[("stroke", "#aab4c3", "#4a5770"), ("stroke-width", "1", ""), ("fill", "none", "")]),
    ("grid", &[("stroke", "#e6eaf0", "#252e43"), ("stroke-width", "1", ""), ("fill", "none", "")]),
    (
        "limit",
        &[
            ("stroke", "#c81e3a", "#ff6b81"),
            ("stroke-width", "1.4", ""),
            ("stroke-dasharray", "5 3", ""),
            ("fill", "none", ""),
        ],
    ),
    (
        "limit-text",
        &[
            ("fill", "#b3152f", "#ff8a9b"),
            ("font-size", "11", ""),
            ("font-weight", "600", ""),
            ("stroke", "#ffffff", "#151b2b"),
            ("stroke-width", "3", ""),
            ("stroke-linejoin", "round", ""),
            ("paint-order", "stroke", ""),
        ],
    ),
    ("beyond", &[("fill", "#c81e3a", "#ff6b81"), ("fill-opacity", "0.07", "0.12")]),
    ("blind", &[("fill", "#7a8699", "#8795ad"), ("fill-opacity", "0.13", "0.14")]),
    ("band", &[("fill-opacity", "0.07", "0.08")]),
    (
        "curve",
        &[("fill", "none", ""), ("stroke-width", "1.7", ""), ("stroke-linejoin", "round", "")],
    ),
    ("mean", &[("fill", "none", ""), ("stroke-width", "1.1", ""), ("stroke-opacity", "0.6", "")]),
    (
        "samples",
        &[
            ("fill", "none", ""),
            ("stroke-width", "1.4", ""),
            ("stroke-linecap", "round", ""),
            ("stroke-opacity", "0.75", ""),
        ],
    ),
    ("area", &[("fill-opacity", "0.1", "0.14"), ("stroke", "none", "")]),
    ("between", &[("fill-opacity", "0.16", "0.22"), ("stroke", "none", "")]),
    ("light", &[("fill-opacity", "0.4", ""), ("stroke", "none", "")]),
    ("others", &[("stroke", "#8e99a9", "#77859c")]),
    ("others-area", &[("fill", "#8e99a9", "#77859c"), ("fill-opacity", "0.22", "0.25")]),
    (
        "ring",
        &[("fill", "none", ""), ("stroke", "#131c2b", "#eef2f9"), ("stroke-width", "1.3", "")],
    ),
    (
        "lead",
        &[
            ("stroke", "#131c2b", "#eef2f9"),
            ("stroke-width", "0.8", ""),
            ("stroke-opacity", "0.5", ""),
            ("fill", "none", ""),
        ],
    ),
    ("missed", &[("fill", "#d1570b", "#ff9350")]),
    ("overflow", &[("fill", "#a3285a", "#f178a8")]),
    ("early", &[("fill", "#0b6bb8", "#5ab0f5")]),
    ("raw-lost", &[("fill", "#a87900", "#f2c14e")]),
    ("good", &[("fill", "#0a7d4f", "#43d093")]),
    ("bar-ground", &[("fill", "#eef1f5", "#222b40")]),
];

/// Classes made of a letter and a number: `c0` a CPU's stroke, `C0` its fill, `k0` and `K0` the same
/// of a cell, `h0` a heat.
fn numbered(class: &str) -> Option<(&'static str, (&'static str, &'static str))> {
    let (kind, number) = class.split_at_checked(1)?;
    let number: usize = number.parse().ok()?;
    let pick = |palette: &[(&'static str, &'static str)]| palette.get(number).copied();
    match kind {
        "c" => Some(("stroke", pick(&CPUS)?)),
        "C" => Some(("fill", pick(&CPUS)?)),
        "k" => Some(("stroke", pick(&CELLS)?)),
        "K" => Some(("fill", pick(&CELLS)?)),
        "h" => Some(("fill", pick(&HEAT)?)),
        _ => None,
    }
}

/// The light look of a class as presentation attributes.
pub(crate) fn light_attributes(class: &str, out: &mut String) {
    if let Some((property, (light, _))) = numbered(class) {
        let _ = write!(out, " {property}=\"{light}\"");
    }
    let known = INKS.iter().find(|(name, _)| *name == class);
    for (property, light, _) in known.map_or(&[][..], |(_, properties)| properties) {
        let _ = write!(out, " {property}=\"{light}\"");
    }
}

/// The colours of cells for the page around the plots: `--k` of the classes `ink-0`, `ink-1`...
pub(crate) fn cell_rules() -> String {
    let rules = |pick: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        let rule = |(n, pair): (usize, &(&'static str, &'static str))| {
            format!(".ink-{n}{{--k:{}}}", pick(pair))
        };
        CELLS.iter().enumerate().map(rule).collect()
    };
    let (light, dark) = (rules(|pair| pair.0), rules(|pair| pair.1));
    format!("{light}@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

/// The dark look as rules for screens that ask for it; paper stays light.
pub(crate) fn dark_rules() -> String {
    let mut rules = String::from("@media screen and (prefers-color-scheme:dark){");
    for (class, properties) in &INKS {
        let dark: Vec<String> = properties
            .iter()
            .filter(|(_, _, dark)| !dark.is_empty())
            .map(|(property, _, dark)| format!("{property}:{dark}"))
            .collect();
        if !dark.is_empty() {
            let _ = write!(rules, ".plot .{class}{{{}}}", dark.join(";"));
        }
    }
    let palettes: [(&str, &[(&str, &str)]); 5] =
        [("c", &CPUS), ("C", &CPUS), ("k", &CELLS), ("K", &CELLS), ("h", &HEAT)];
    for (letter, palette) in palettes {
        for number in 0..palette.len() {
            let class = format!("{letter}{number}");
            if let Some((property, (_, dark))) = numbered(&class) {
                let _ = write!(rules, ".plot .{class}{{{property}:{dark}}}");
            }
        }
    }
    rules.push('}');
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of `#rrggbb` (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("hex");
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn lines_and_texts_stand_out_from_the_paper_in_both_themes() {
        let (_, paper) = INKS[0];
        let (_, light_paper, dark_paper) = paper[0];
        for (light, dark) in CPUS.iter().chain(&CELLS) {
            assert!(contrast(light, light_paper) >= 2.5, "{light}");
            assert!(contrast(dark, dark_paper) >= 4.5, "{dark}");
        }
        for class in ["head", "sub", "name", "text", "tick", "limit-text"] {
            let (_, properties) = INKS.iter().find(|ink| ink.0 == class).expect("a class");
            let (_, light, dark) = properties[0];
            assert!(contrast(light, light_paper) >= 4.5, "{class} {light}");
            assert!(contrast(dark, dark_paper) >= 4.5, "{class} {dark}");
        }
    }

    #[test]
    fn texts_of_a_page_stand_out_from_its_grounds_in_both_themes() {
        let style = include_str!("../report/template/style.css");
        let themes: Vec<&str> = style.split(":root {").skip(1).collect();
        let [light, dark] = themes[..] else { panic!("{} themes", themes.len()) };
        for theme in [light, dark] {
            let colour = |name: &str| {
                let (_, rest) = theme.split_once(&format!("--{name}: ")).expect("a colour");
                rest.split(';').next().expect("its end")
            };
            for text in ["ink", "text", "quiet", "accent", "pass", "fail", "unsure", "plain"] {
                for ground in ["page", "paper", "soft"] {
                    let found = contrast(colour(text), colour(ground));
                    assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
                }
            }
        }
        let thin = style.split_once(".figures .thin {").expect("the pale quantiles").1;
        let thin = thin.split('}').next().expect("its end");
        assert!(thin.contains("color: var(--quiet)") && !thin.contains("opacity"), "{thin}");
    }

    #[test]
    fn heat_grows_steadily_away_from_the_paper() {
        for pair in HEAT.windows(2) {
            assert!(luminance(pair[0].0) > luminance(pair[1].0), "{pair:?}");
            assert!(luminance(pair[0].1) < luminance(pair[1].1), "{pair:?}");
        }
    }

    #[test]
    fn a_class_is_written_as_attributes_and_as_a_dark_rule() {
        let mut out = String::new();
        light_attributes("c1", &mut out);
        light_attributes("band", &mut out);
        light_attributes("unknown", &mut out);
        assert_eq!(out, " stroke=\"#d1570b\" fill-opacity=\"0.07\"");
        assert!(dark_rules().contains(".plot .c1{stroke:#ff9350}"));
    }
}
