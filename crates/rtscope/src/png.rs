//! SVG to PNG, with a font of our own: a board has none.

use anyhow::Context;
use resvg::{tiny_skia, usvg};

/// Renders an SVG at its own size.
pub(crate) fn of_svg(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family("Ubuntu");
    options.font_family = "Ubuntu".to_owned();
    let tree = usvg::Tree::from_str(svg, &options).context("the plot can't be read back")?;
    let size = tree.size().to_int_size();
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the plot has no size")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().context("the picture can't be encoded")
}
