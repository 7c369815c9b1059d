//! A tiny SVG writer: elements, escaping, numbers to a tenth of a pixel, paths of straight lines.

use std::fmt::Write as _;

use super::theme;

/// SVG text as it grows. Elements that were opened are closed in reverse order.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    text: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Opens a plot. The description is for readers who don't see it; without one, the plot has the id itself.
    pub(crate) fn plot(
        id: &str,
        (width, height): (f64, f64),
        title: &str,
        description: Option<&str>,
    ) -> Svg {
        let mut svg = Svg::default();
        let mut element = svg.element("svg").attribute("xmlns", "http://www.w3.org/2000/svg");
        element = element.attribute("class", "plot");
        let labels = match description {
            Some(_) => format!("{id}-title {id}-desc"),
            None => format!("{id}-title"),
        };
        if description.is_none() {
            element = element.attribute("id", id);
        }
        element
            .attribute("viewBox", &format!("0 0 {width} {height}"))
            .number("width", width)
            .number("height", height)
            .attribute("role", "img")
            .attribute("aria-labelledby", &labels)
            .attribute("font-family", "sans-serif")
            .open();
        svg.element("title").attribute("id", &format!("{id}-title")).text(title);
        if let Some(description) = description {
            svg.element("desc").attribute("id", &format!("{id}-desc")).text(description);
        }
        svg
    }

    /// Starts an element; finish it with [`Element::done`], [`Element::open`] or [`Element::text`].
    pub(crate) fn element(&mut self, tag: &'static str) -> Element<'_> {
        self.text.push('<');
        self.text.push_str(tag);
        Element { svg: self, tag }
    }

    /// Closes the element that was opened last.
    pub(crate) fn close(&mut self) {
        if let Some(tag) = self.open.pop() {
            let _ = write!(self.text, "</{tag}>");
            self.text.push('\n');
        }
    }

    /// A line of text: `anchor` is `start`, `middle` or `end`.
    pub(crate) fn label(&mut self, ink: &str, anchor: &str, x: f64, y: f64, text: &str) {
        let element = self.element("text").ink(ink).number("x", x).number("y", y);
        let element =
            if anchor == "start" { element } else { element.attribute("text-anchor", anchor) };
        element.text(text);
    }

    pub(crate) fn rect(&mut self, ink: &str, x: f64, y: f64, width: f64, height: f64) {
        self.element("rect")
            .ink(ink)
            .number("x", x)
            .number("y", y)
            .number("width", width)
            .number("height", height)
            .done();
    }

    pub(crate) fn line(&mut self, ink: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let mut path = Path::default();
        path.to(x1, y1);
        path.to(x2, y2);
        self.path(ink, &path);
    }

    /// A path; nothing when it has no point.
    pub(crate) fn path(&mut self, ink: &str, path: &Path) {
        if !path.is_empty() {
            self.element("path").ink(ink).path(path).done();
        }
    }

    pub(crate) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    /// Adds text that is markup already.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
    }
}

/// An element whose attributes are being written.
#[must_use]
#[derive(Debug)]
pub(crate) struct Element<'a> {
    svg: &'a mut Svg,
    tag: &'static str,
}

impl<'a> Element<'a> {
    /// Class and, for readers without style sheets, its light look. Classes are separated by blanks.
    pub(crate) fn ink(self, classes: &str) -> Element<'a> {
        if classes.is_empty() {
            return self;
        }
        let _ = write!(self.svg.text, " class=\"{classes}\"");
        for class in classes.split(' ') {
            theme::light_attributes(class, &mut self.svg.text);
        }
        self
    }

    /// An attribute, escaped.
    pub(crate) fn attribute(self, name: &str, value: &str) -> Element<'a> {
        let _ = write!(self.svg.text, " {name}=\"");
        escape(value, &mut self.svg.text);
        self.svg.text.push('"');
        self
    }

    /// A number to a tenth.
    pub(crate) fn number(self, name: &str, value: f64) -> Element<'a> {
        let _ = write!(self.svg.text, " {name}=\"");
        tenths(value, &mut self.svg.text);
        self.svg.text.push('"');
        self
    }

    /// Moves the element, and tells the page's script where it belongs when the x axis is zoomed.
    pub(crate) fn pinned(self, x: f64, y: f64) -> Element<'a> {
        let (mut at_x, mut at_y) = (String::new(), String::new());
        tenths(x, &mut at_x);
        tenths(y, &mut at_y);
        let _ = write!(
            self.svg.text,
            " transform=\"translate({at_x} {at_y})\" data-x=\"{at_x}\" data-y=\"{at_y}\""
        );
        self
    }

    /// The lines of a path.
    pub(crate) fn path(self, path: &Path) -> Element<'a> {
        self.attribute("d", &path.text)
    }

    /// Without content.
    pub(crate) fn done(self) {
        self.svg.text.push_str("/>\n");
    }

    /// With content to come, up to [`Svg::close`].
    pub(crate) fn open(self) {
        self.svg.text.push_str(">\n");
        self.svg.open.push(self.tag);
    }

    /// With a text as content, escaped.
    pub(crate) fn text(self, text: &str) {
        self.svg.text.push('>');
        escape(text, &mut self.svg.text);
        let _ = writeln!(self.svg.text, "</{}>", self.tag);
    }
}

/// Straight lines from point to point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    text: String,
    /// The last point as it was written.
    last: Option<(String, String)>,
    lifted: bool,
}

impl Path {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// A line to the point; a move when it is the first, or the pen was lifted.
    pub(crate) fn to(&mut self, x: f64, y: f64) {
        let (mut at_x, mut at_y) = (String::new(), String::new());
        tenths(x, &mut at_x);
        tenths(y, &mut at_y);
        let _ = match &self.last {
            Some((last_x, last_y)) if !self.lifted && *last_x == at_x && *last_y == at_y => Ok(()),
            Some((last_x, _)) if !self.lifted && *last_x == at_x => write!(self.text, "V{at_y}"),
            Some((_, last_y)) if !self.lifted && *last_y == at_y => write!(self.text, "H{at_x}"),
            Some(_) if !self.lifted => write!(self.text, "L{at_x} {at_y}"),
            _ => write!(self.text, "M{at_x} {at_y}"),
        };
        self.last = Some((at_x, at_y));
        self.lifted = false;
    }

    /// The next point starts a new line.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }

    /// Joins the last point with the first one since the pen was lifted.
    pub(crate) fn close(&mut self) {
        if !self.is_empty() {
            self.text.push('Z');
        }
        self.lifted = true;
    }

    /// A rectangle of its own.
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.lift();
        self.to(x, y);
        self.to(x + width, y);
        self.to(x + width, y + height);
        self.to(x, y + height);
        self.close();
    }
}

/// A number to a tenth, without a trailing `.0`.
fn tenths(value: f64, out: &mut String) {
    let tenths = (value * 10.0).round() as i64;
    let sign = if tenths < 0 { "-" } else { "" };
    let (whole, rest) = (tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10);
    let _ = match rest {
        0 => write!(out, "{sign}{whole}"),
        _ => write!(out, "{sign}{whole}.{rest}"),
    };
}

/// Text as XML content or attribute. Control characters, which XML can't hold, become blanks.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut svg = Svg::default();
        svg.element("g").attribute("data-name", "a\"b<c>").open();
        svg.label("", "middle", 1.25, -0.04, "<script>alert('&')</script>\u{1}");
        assert_eq!(
            svg.finish(),
            "<g data-name=\"a&quot;b&lt;c&gt;\">\n<text x=\"1.3\" y=\"0\" text-anchor=\"middle\">\
             &lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt; </text>\n</g>\n"
        );
    }

    #[test]
    fn a_path_uses_the_shortest_command() {
        let mut path = Path::default();
        path.to(0.0, 1.0);
        path.to(5.0, 1.0);
        path.to(5.0, 2.5);
        path.to(5.01, 2.49);
        path.to(7.0, 9.0);
        path.lift();
        path.to(8.0, 9.0);
        path.rect(0.0, 0.0, 2.0, 3.0);
        assert_eq!(path.text, "M0 1H5V2.5L7 9M8 9M0 0H2V3H0Z");
    }
}
