//! Stacks as a flame graph, the outermost function at the top: each function as wide as the time in it and in what it
//! called. A function's name, its time and its share appear under the pointer, without a script.

use super::{svg::Svg, theme::COLOURS};
use crate::{number::us, statistics::explain::instructions::StackTime};

const WIDTH: f64 = 700.0;
const LEFT: f64 = 8.0;
const ROW: f64 = 18.0;

/// Narrower functions are left out: a pixel can't be seen.
const WIDTH_MIN: f64 = 1.0;

/// Width of a letter, for names that have to fit.
const LETTER: f64 = 6.6;

/// A function with what it called.
#[derive(Default)]
struct Call<'a> {
    function: &'a str,
    ns: u64,
    calls: Vec<Call<'a>>,
}

impl<'a> Call<'a> {
    fn add(&mut self, functions: &'a [String], ns: u64) {
        self.ns += ns;
        let Some((first, rest)) = functions.split_first() else { return };
        let at = self.calls.iter().position(|call| call.function == first);
        let at = at.unwrap_or_else(|| {
            self.calls.push(Call { function: first, ..Call::default() });
            self.calls.len() - 1
        });
        self.calls[at].add(rest, ns);
    }

    /// Rows that are wide enough to be seen.
    fn depth(&self, scale: f64) -> usize {
        let seen = self.calls.iter().filter(|call| call.ns as f64 * scale >= WIDTH_MIN);
        seen.map(|call| 1 + call.depth(scale)).max().unwrap_or(0)
    }
}

/// The graph of a late wake-up.
#[must_use]
pub(crate) fn draw(stacks: &[StackTime], number: usize) -> String {
    let mut all = Call::default();
    stacks.iter().for_each(|stack| all.add(&stack.functions, stack.ns));
    let scale = (WIDTH - 2.0 * LEFT) / all.ns.max(1) as f64;
    let height = ROW * all.depth(scale) as f64 + 8.0;
    let (title, description) = (format!("flame-{number}-title"), format!("flame-{number}-desc"));
    let mut svg = Svg::default();
    svg.element("svg")
        .attribute("class", "plot flame")
        .attribute("viewBox", &format!("0 0 {WIDTH} {height}"))
        .number("width", WIDTH)
        .number("height", height)
        .attribute("role", "img")
        .attribute("aria-labelledby", &format!("{title} {description}"))
        .attribute("font-family", "monospace")
        .attribute("font-size", "11")
        .open();
    svg.element("title").attribute("id", &title).text("Time by function and by what it called");
    let text = "The table of functions has the longest ones.";
    svg.element("desc").attribute("id", &description).text(text);
    row(&mut svg, &all, (LEFT, 4.0), scale, all.ns);
    svg.finish()
}

/// What a function called, and below it what that called.
fn row(svg: &mut Svg, caller: &Call<'_>, (left, top): (f64, f64), scale: f64, all_ns: u64) {
    let mut x = left;
    for call in &caller.calls {
        let width = call.ns as f64 * scale;
        if width >= WIDTH_MIN {
            let share = call.ns as f64 * 100.0 / all_ns.max(1) as f64;
            svg.element("g").open();
            let text = format!("{}: {} us, {share:.1} %", call.function, us(call.ns));
            svg.element("title").text(&text);
            let colour = call.function.bytes().map(usize::from).sum::<usize>() % COLOURS;
            svg.rect(&format!("C{colour} flame-call"), x, top, width - 0.4, ROW - 1.0);
            let room = ((width - 6.0) / LETTER).max(0.0) as usize;
            if room >= 3 {
                let name: String = match call.function.chars().count() > room {
                    true => call.function.chars().take(room - 1).chain(['…']).collect(),
                    false => call.function.to_owned(),
                };
                svg.label("text", "start", x + 3.0, top + ROW - 5.5, &name);
            }
            svg.close();
            row(svg, call, (x, top + ROW), scale, all_ns);
        }
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &[&str], ns: u64) -> StackTime {
        StackTime { functions: functions.iter().map(|it| (*it).to_owned()).collect(), ns }
    }

    #[test]
    fn a_function_is_as_wide_as_its_time_and_that_of_what_it_called() {
        let stacks = [stack(&["a"], 1000), stack(&["a", "b"], 2000), stack(&["c<d"], 1000)];
        let svg = draw(&stacks, 1);
        assert!(svg.contains("a: 3.0 us, 75.0 %"), "{svg}");
        assert!(svg.contains("b: 2.0 us, 50.0 %"), "{svg}");
        assert!(svg.contains("c&lt;d: 1.0 us, 25.0 %"), "{svg}");
        // By hand: 684 points for 4 us.
        assert!(svg.contains("width=\"512.6\"") && svg.contains("width=\"341.6\""), "{svg}");
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_is_left_out() {
        let svg = draw(&[stack(&["wide"], 1_000_000), stack(&["wide", "narrow"], 1)], 2);
        assert!(svg.contains("wide") && !svg.contains("narrow"), "{svg}");
        assert!(draw(&[], 3).contains("<svg"));
    }
}
