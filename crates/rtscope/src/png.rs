//! Plots as files: SVG, or PNG with fonts of our own, because a board has none.
//!
//! Texts become outlines before the plot is drawn. Plots hold single lines of unmixed Latin text, for
//! which a font's own advances are enough; the machinery that shapes every script of the world would
//! make the program a megabyte larger.

use std::{collections::HashMap, fmt::Write as _, io::Read};

use anyhow::Context;
use flate2::read::ZlibDecoder;
use resvg::{
    tiny_skia,
    usvg::{self, roxmltree},
};

use crate::{failure::Refused, record::Destination};

/// Attributes of a text that its outline has too.
const KEPT: [&str; 8] = [
    "transform",
    "fill",
    "fill-opacity",
    "stroke",
    "stroke-width",
    "stroke-opacity",
    "stroke-linejoin",
    "paint-order",
];

/// The fonts, as `xtask/outlines` made them.
const REGULAR: &[u8] = include_bytes!("../fonts/regular.outlines.zlib");
const BOLD: &[u8] = include_bytes!("../fonts/bold.outlines.zlib");

/// From this weight on a text is bold.
const BOLD_WEIGHT: u32 = 600;

/// Stands for a character that the font lacks.
const UNKNOWN: char = '?';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Also that of standard output.
    Svg,
    Png,
}

impl Format {
    /// The format that the ending of a file's name says.
    pub(crate) fn for_destination(out: &Destination) -> Result<Format, Refused> {
        let Destination::File(file) = out else { return Ok(Format::Svg) };
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        match ending.to_lowercase().as_str() {
            "svg" => Ok(Format::Svg),
            "png" => Ok(Format::Png),
            _ => Err(Refused(format!("{out}: write a name that ends in .svg or .png"))),
        }
    }

    /// A plot in this format.
    pub(crate) fn encode(self, svg: String) -> anyhow::Result<Vec<u8>> {
        match self {
            Format::Svg => Ok(svg.into_bytes()),
            Format::Png => of_svg(&svg),
        }
    }
}

/// Renders an SVG at its own size.
fn of_svg(svg: &str) -> anyhow::Result<Vec<u8>> {
    let (regular, bold) = (unpacked(REGULAR)?, unpacked(BOLD)?);
    let fonts = Fonts { regular: Font::read(&regular)?, bold: Font::read(&bold)? };
    let svg = outlined(svg, &fonts)?;
    let tree = usvg::Tree::from_str(&svg, &usvg::Options::default())
        .context("the plot can't be read back")?;
    let size = tree.size().to_int_size();
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the plot has no size")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().context("the picture can't be encoded")
}

fn unpacked(packed: &[u8]) -> anyhow::Result<String> {
    let mut text = String::new();
    ZlibDecoder::new(packed).read_to_string(&mut text).context("a font")?;
    Ok(text)
}

struct Fonts<'a> {
    regular: Font<'a>,
    bold: Font<'a>,
}

/// A font in the form of build.rs.
struct Font<'a> {
    units_per_em: f32,
    glyphs: HashMap<char, Glyph<'a>>,
}

/// A character's advance in the font's units, and the data of its path.
#[derive(Clone, Copy)]
struct Glyph<'a> {
    advance: f32,
    outline: &'a str,
}

impl<'a> Font<'a> {
    fn read(text: &'a str) -> anyhow::Result<Font<'a>> {
        let (units, glyphs) = text.split_once('\n').context("a font without a size")?;
        let glyph = |line: &'a str| {
            let (number, rest) = line.split_once(' ')?;
            let (advance, outline) = rest.split_once(' ')?;
            let character = char::from_u32(u32::from_str_radix(number, 16).ok()?)?;
            Some((character, Glyph { advance: advance.parse().ok()?, outline }))
        };
        Ok(Font {
            units_per_em: units.parse().context("a font without a size")?,
            glyphs: glyphs.lines().filter_map(glyph).collect(),
        })
    }

    fn glyphs(&self, text: &str) -> Vec<Glyph<'a>> {
        let glyph = |c: char| self.glyphs.get(&c).or_else(|| self.glyphs.get(&UNKNOWN));
        text.chars().filter_map(glyph).copied().collect()
    }
}

/// The same picture with a path in the place of each text.
fn outlined(svg: &str, fonts: &Fonts<'_>) -> anyhow::Result<String> {
    let document = roxmltree::Document::parse(svg).context("the plot can't be read back")?;
    let mut out = String::with_capacity(svg.len() * 4);
    let mut done = 0;
    for text in document.descendants().filter(|node| node.has_tag_name("text")) {
        let range = text.range();
        out.push_str(&svg[done..range.start]);
        out.push_str(&path(text, fonts));
        done = range.end;
    }
    out.push_str(&svg[done..]);
    Ok(out)
}

/// The path of a text element.
fn path(text: roxmltree::Node<'_, '_>, fonts: &Fonts<'_>) -> String {
    // What an element doesn't say itself it has from those around it.
    let said = |name| text.ancestors().find_map(|node| node.attribute(name));
    let own = |name| text.attribute(name).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let size = said("font-size").and_then(|n| n.parse().ok()).unwrap_or(16.0_f32);
    let weight = said("font-weight").and_then(|weight| weight.parse().ok()).unwrap_or(400);
    let font = if weight >= BOLD_WEIGHT { &fonts.bold } else { &fonts.regular };
    let scale = size / font.units_per_em;
    let glyphs = font.glyphs(text.text().unwrap_or(""));
    let width: f32 = glyphs.iter().map(|glyph| glyph.advance * scale).sum();
    let before = match said("text-anchor") {
        Some("middle") => width / 2.0,
        Some("end") => width,
        _ => 0.0,
    };
    let (mut x, y) = (own("x") - before, own("y"));
    let mut element = String::from("<path");
    for (name, value) in KEPT.iter().filter_map(|name| Some((name, text.attribute(*name)?))) {
        let _ = write!(element, " {name}=\"{value}\"");
    }
    element.push_str(" d=\"");
    for glyph in glyphs {
        place(glyph.outline, (x, y), scale, &mut element);
        x += glyph.advance * scale;
    }
    element.push_str("\"/>");
    element
}

/// Appends the data of a glyph's path at its place in the picture. A font's y axis points up.
fn place(outline: &str, (x, y): (f32, f32), scale: f32, out: &mut String) {
    let mut is_x = true;
    for word in outline.split_whitespace() {
        let Ok(coordinate) = word.parse::<f32>() else {
            out.push_str(word);
            continue;
        };
        let placed = if is_x { x + coordinate * scale } else { y - coordinate * scale };
        let _ = write!(out, "{placed:.2} ");
        is_x = !is_x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pixels of a picture 100 x 40 are dark, left and right of the middle.
    fn dark(inner: &str) -> (usize, usize) {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"40\">\
             <rect width=\"100\" height=\"40\" fill=\"#ffffff\"/>{inner}</svg>"
        );
        let picture = tiny_skia::Pixmap::decode_png(&of_svg(&svg).expect("drawn")).expect("a PNG");
        let is_dark = |at: &usize| picture.pixels()[*at].red() < 128;
        let all: Vec<usize> = (0..100 * 40).filter(is_dark).collect();
        let left = all.iter().filter(|at| *at % 100 < 50).count();
        (left, all.len() - left)
    }

    #[test]
    fn a_text_stands_on_its_side_of_its_point() {
        let text = |anchor: &str| {
            dark(&format!(
                "<g font-size=\"20\" text-anchor=\"{anchor}\"><text x=\"50\" y=\"30\">MM</text></g>"
            ))
        };
        let ((start, after), (before, end)) = (text("start"), text("end"));
        assert!(start == 0 && end == 0 && after > 20 && before > 20);
        let (left, right) = text("middle");
        assert!(left > 10 && right > 10 && left.abs_diff(right) * 4 < left + right);
    }

    #[test]
    fn a_bold_text_is_darker_and_markup_in_a_text_stays_text() {
        let weight = |weight: u32| {
            let text = dark(&format!(
                "<text x=\"5\" y=\"30\" font-size=\"24\" font-weight=\"{weight}\">a&lt;b&gt;</text>"
            ));
            text.0 + text.1
        };
        assert!(weight(600) > weight(400) && weight(400) > 0);
    }

    #[test]
    fn what_plots_write_is_in_both_fonts_and_another_character_is_told() {
        for packed in [REGULAR, BOLD] {
            let text = unpacked(packed).expect("unpacked");
            let font = Font::read(&text).expect("a font");
            let lacks = |c: &char| !font.glyphs.contains_key(c);
            let written = (' '..='~').chain("µ×°·–—…äéßŁČΔλЖ".chars());
            assert_eq!(written.filter(lacks).collect::<String>(), "");
            assert_eq!(font.glyphs("\u{4e00}").len(), 1);
        }
    }

    #[test]
    fn a_turned_text_is_turned() {
        let (left, right) =
            dark("<text transform=\"translate(20 38) rotate(-90)\" font-size=\"12\">wwww</text>");
        assert!(left > 10 && right == 0);
    }
}
