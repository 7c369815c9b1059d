//! SVG to PNG, with a font of our own: a board has none.
//!
//! Texts become outlines before the plot is drawn. Plots hold single lines of unmixed Latin text, for
//! which a font's own advances are enough; the machinery that shapes every script of the world would
//! make the program a megabyte larger.

use std::{fmt::Write as _, io::Read};

use anyhow::Context;
use flate2::read::ZlibDecoder;
use resvg::{
    tiny_skia,
    usvg::{self, roxmltree},
};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

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

/// How much a bold text's strokes grow, as a part of the font's size: the font has one weight.
const BOLD: f32 = 0.035;

/// The font, as build.rs packed it.
const FONT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/font.zlib"));

/// Renders an SVG at its own size.
pub(crate) fn of_svg(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut font = Vec::new();
    ZlibDecoder::new(FONT).read_to_end(&mut font).context("the font")?;
    let face = Face::parse(&font, 0).context("the font")?;
    let svg = outlined(svg, &face)?;
    let tree = usvg::Tree::from_str(&svg, &usvg::Options::default())
        .context("the plot can't be read back")?;
    let size = tree.size().to_int_size();
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the plot has no size")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().context("the picture can't be encoded")
}

/// The same picture with a path in the place of each text.
fn outlined(svg: &str, face: &Face<'_>) -> anyhow::Result<String> {
    let document = roxmltree::Document::parse(svg).context("the plot can't be read back")?;
    let mut out = String::with_capacity(svg.len() * 4);
    let mut done = 0;
    for text in document.descendants().filter(|node| node.has_tag_name("text")) {
        let range = text.range();
        out.push_str(&svg[done..range.start]);
        out.push_str(&path(text, face));
        done = range.end;
    }
    out.push_str(&svg[done..]);
    Ok(out)
}

/// The path of a text element.
fn path(text: roxmltree::Node<'_, '_>, face: &Face<'_>) -> String {
    // What an element doesn't say itself it has from those around it.
    let said = |name| text.ancestors().find_map(|node| node.attribute(name));
    let number = |name, otherwise| said(name).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let own = |name| text.attribute(name).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let size: f32 = number("font-size", 16.0);
    let scale = size / f32::from(face.units_per_em());
    let glyphs: Vec<GlyphId> =
        text.text().unwrap_or("").chars().filter_map(|c| face.glyph_index(c)).collect();
    let advance = |glyph: &GlyphId| f32::from(face.glyph_hor_advance(*glyph).unwrap_or(0)) * scale;
    let width: f32 = glyphs.iter().map(advance).sum();
    let before = match said("text-anchor") {
        Some("middle") => width / 2.0,
        Some("end") => width,
        _ => 0.0,
    };
    let mut pen = Pen { path: String::new(), x: own("x") - before, y: own("y"), scale };
    for glyph in &glyphs {
        face.outline_glyph(*glyph, &mut pen);
        pen.x += advance(glyph);
    }
    let mut element = String::from("<path");
    for (name, value) in KEPT.iter().filter_map(|name| Some((name, text.attribute(*name)?))) {
        let _ = write!(element, " {name}=\"{value}\"");
    }
    let _ = write!(element, " d=\"{}\"/>", pen.path);
    if said("font-weight").is_some_and(|weight| weight >= "600") {
        let fill = said("fill").unwrap_or("#000000");
        let turned = text.attribute("transform").unwrap_or("");
        let _ = write!(
            element,
            "<path transform=\"{turned}\" fill=\"{fill}\" stroke=\"{fill}\" stroke-width=\"{}\" d=\"{}\"/>",
            size * BOLD,
            pen.path
        );
    }
    element
}

/// Writes the outlines of glyphs as the data of a path. A font's y axis points up.
struct Pen {
    path: String,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen {
    fn write(&mut self, command: char, points: &[(f32, f32)]) {
        self.path.push(command);
        for (x, y) in points {
            let (x, y) = (self.x + x * self.scale, self.y - y * self.scale);
            let _ = write!(self.path, "{x:.2} {y:.2} ");
        }
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.write('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.write('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.write('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.write('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.path.push('Z');
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
    fn a_turned_text_is_turned() {
        let (left, right) =
            dark("<text transform=\"translate(20 38) rotate(-90)\" font-size=\"12\">wwww</text>");
        assert!(left > 10 && right == 0);
    }
}
