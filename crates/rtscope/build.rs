//! Makes the program smaller: packs the outlines of its fonts and, where that works, its relocations.

use std::{
    env, fmt::Write as _, fs, io::Write as _, ops::RangeInclusive, path::PathBuf, process::Command,
};

use flate2::{Compression, write::ZlibEncoder};
use skrifa::{
    FontRef, GlyphId, MetadataProvider,
    instance::{LocationRef, Size},
    outline::{DrawSettings, OutlinePen},
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_outlines();
    if can_pack_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Characters whose outlines are kept: those of European languages, punctuation, arrows and signs of mathematics.
/// The others would make them five times as large.
const KEPT: [RangeInclusive<u32>; 6] =
    [0x20..=0x17f, 0x370..=0x3ff, 0x400..=0x45f, 0x2010..=0x203f, 0x20ac..=0x20ac, 0x2190..=0x226f];

/// The outlines of the fonts that pictures are drawn with, so that the program needs nothing that reads fonts.
///
/// A font is a line with its units per em and a line for each of its characters: the character's number in
/// hexadecimal, its advance, and its outline as the data of an SVG path. Coordinates are in the font's units, and
/// their y axis points up.
fn pack_outlines() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    let fonts = [("regular", notosans::REGULAR_TTF), ("bold", notosans::BOLD_TTF)];
    for (name, font) in fonts {
        let text = outlines(&FontRef::new(font).expect("a font"));
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
        packer.write_all(text.as_bytes()).expect("written to memory");
        let packed = packer.finish().expect("written to memory");
        let file = folder.join(format!("{name}.outlines.zlib"));
        fs::write(file, packed).expect("the folder can be written to");
    }
}

fn outlines(font: &FontRef<'_>) -> String {
    let (size, place) = (Size::unscaled(), LocationRef::default());
    let (metrics, glyphs) = (font.glyph_metrics(size, place), font.outline_glyphs());
    let mut text = format!("{}\n", font.metrics(size, place).units_per_em);
    let mut characters: Vec<(u32, GlyphId)> = font.charmap().mappings().collect();
    characters.sort_unstable();
    for (character, glyph) in characters {
        let is_kept = KEPT.iter().any(|range| range.contains(&character));
        let Some(outline) = glyphs.get(glyph).filter(|_| is_kept) else { continue };
        let mut path = Path::default();
        outline.draw(DrawSettings::unhinted(size, place), &mut path).expect("an outline");
        let advance = metrics.advance_width(glyph).unwrap_or(0.0);
        writeln!(text, "{character:x} {advance} {}", path.0).expect("written to memory");
    }
    text
}

/// The data of a path: each command's letter and its coordinates, with spaces between all of them.
#[derive(Default)]
struct Path(String);

impl Path {
    fn write(&mut self, command: char, coordinates: &[f32]) {
        self.0.push(command);
        for coordinate in coordinates {
            write!(self.0, " {}", coordinate.round()).expect("written to memory");
        }
        self.0.push(' ');
    }
}

impl OutlinePen for Path {
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

/// A relocation takes 24 bytes, a packed one a few bits: a quarter of a megabyte in all. A static program
/// relocates itself, with code of the C library of the machine that it is linked on. That of glibc reads packed
/// ones since version 2.36; the program would crash at its start with an older one.
fn can_pack_relocations() -> bool {
    let is_own = env::var("HOST") == env::var("TARGET");
    let target = env::var("TARGET").unwrap_or_default();
    if !is_own || target != "x86_64-unknown-linux-gnu" {
        return false;
    }
    let Ok(told) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.trim().strip_prefix("glibc 2.");
    version
        .and_then(|minor| minor.split('.').next()?.parse::<u32>().ok())
        .is_some_and(|minor| minor >= 36)
}
