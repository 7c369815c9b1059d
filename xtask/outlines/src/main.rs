//! Makes `crates/rtscope/fonts`, the outlines that pictures are drawn with, from Noto Sans. `--check` compares instead.
//!
//! A program of its own, because what reads fonts would be a tenth of what a build of rtscope compiles.
//!
//! A font is a text that zlib has packed: a line with its units per em, and a line for each of its characters. That has the
//! character's number in hexadecimal, its advance, and its outline as the data of an SVG path. Coordinates are in the
//! font's units, and their y axis points up.

#![forbid(unsafe_code)]

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    ops::RangeInclusive,
    path::Path,
    process::ExitCode,
};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use skrifa::{
    FontRef, GlyphId, MetadataProvider,
    instance::{LocationRef, Size},
    outline::{DrawSettings, OutlinePen},
};

fn main() -> ExitCode {
    let only_compares = std::env::args().nth(1).is_some_and(|word| word == "--check");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/rtscope/fonts");
    let fonts = [("regular", notosans::REGULAR_TTF), ("bold", notosans::BOLD_TTF)];
    let mut all_equal = true;
    for (name, font) in fonts {
        let text = outlines(&FontRef::new(font).expect("a font"));
        let file = folder.join(format!("{name}.outlines.zlib"));
        if only_compares {
            let is_equal = unpacked(&file) == text;
            println!("{}: {}", file.display(), if is_equal { "as made" } else { "different" });
            all_equal &= is_equal;
        } else {
            fs::write(&file, packed(&text)).expect("the folder can be written to");
        }
    }
    if all_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text.as_bytes()).expect("written to memory");
    packer.finish().expect("written to memory")
}

/// Another version of the library may pack the same text otherwise, so texts are compared.
fn unpacked(file: &Path) -> String {
    let mut text = String::new();
    let packed = fs::read(file).expect("the outlines are there");
    ZlibDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("they are packed");
    text
}

/// Characters whose outlines are kept: those of European languages, punctuation, arrows and signs of mathematics.
/// The others would make them five times as large.
const KEPT: [RangeInclusive<u32>; 6] =
    [0x20..=0x17f, 0x370..=0x3ff, 0x400..=0x45f, 0x2010..=0x203f, 0x20ac..=0x20ac, 0x2190..=0x226f];

fn outlines(font: &FontRef<'_>) -> String {
    let (size, place) = (Size::unscaled(), LocationRef::default());
    let (metrics, glyphs) = (font.glyph_metrics(size, place), font.outline_glyphs());
    let mut text = format!("{}\n", font.metrics(size, place).units_per_em);
    let mut characters: Vec<(u32, GlyphId)> = font.charmap().mappings().collect();
    characters.sort_unstable();
    for (character, glyph) in characters {
        let is_kept = KEPT.iter().any(|range| range.contains(&character));
        let Some(outline) = glyphs.get(glyph).filter(|_| is_kept) else { continue };
        let mut path = SvgPath::default();
        outline.draw(DrawSettings::unhinted(size, place), &mut path).expect("an outline");
        let advance = metrics.advance_width(glyph).unwrap_or(0.0);
        writeln!(text, "{character:x} {advance} {}", path.0).expect("written to memory");
    }
    text
}

/// The data of a path: each command's letter and its coordinates, with spaces between all of them.
#[derive(Default)]
struct SvgPath(String);

impl SvgPath {
    fn write(&mut self, command: char, coordinates: &[f32]) {
        self.0.push(command);
        for coordinate in coordinates {
            write!(self.0, " {}", coordinate.round()).expect("written to memory");
        }
        self.0.push(' ');
    }
}

impl OutlinePen for SvgPath {
    fn move_to(&mut self, x: f32, y: f32) {
        self.write('M', &[x, y]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.write('L', &[x, y]);
    }

    fn quad_to(&mut self, cx: f32, cy: f32, x: f32, y: f32) {
        self.write('Q', &[cx, cy, x, y]);
    }

    fn curve_to(&mut self, cx: f32, cy: f32, dx: f32, dy: f32, x: f32, y: f32) {
        self.write('C', &[cx, cy, dx, dy, x, y]);
    }

    fn close(&mut self) {
        self.write('Z', &[]);
    }
}
