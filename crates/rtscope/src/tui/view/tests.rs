use ratatui::{Terminal, backend::TestBackend};
use rtscope_model::{
    event::{CpuSpan, EndReason, Event, SystemSpan},
    finding::{Finding, Weight},
    machine_use::InterruptLine,
};

use super::*;
use crate::tui::script::Script;

fn look() -> Look {
    let host = "board".to_owned();
    let symbols = Symbols::for_terminal("xterm");
    let (linear, frozen, help, ending) = (false, false, false, false);
    Look { host, symbols, selected: 0, linear, frozen, help, ending }
}

/// The full screen on a terminal of this size.
fn screen(state: &State, look: &Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test backend");
    let draw = |frame: &mut ratatui::Frame<'_>| {
        let area = frame.area();
        draw(frame.buffer_mut(), area, state, look);
    };
    terminal.draw(draw).expect("a test backend");
    terminal.backend().buffer().clone()
}

/// The block under the prompt on a terminal of this size.
fn block(state: &State, width: u16, terminal: u16) -> Buffer {
    let height = compact::height(state, terminal);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    compact::draw(&mut buffer, state, Symbols::for_terminal("xterm"));
    buffer
}

fn rows(buffer: &Buffer) -> Vec<String> {
    let width = buffer.area.width as usize;
    let text =
        |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    buffer.content.chunks(width).map(|row| text(row).trim_end().to_owned()).collect()
}

fn row_of<'a>(rows: &'a [String], start: &str) -> &'a str {
    let is_it = |row: &&String| row.trim_start_matches(['▶', ' ']).starts_with(start);
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no row {start:?} in\n{}", rows.join("\n")))
}

/// The style of the cell where a text begins.
fn style_at(buffer: &Buffer, text: &str) -> Style {
    let rows = rows(buffer);
    let at = rows
        .iter()
        .enumerate()
        .find_map(|(y, row)| Some((row[..row.find(text)?].chars().count() as u16, y as u16)));
    buffer[at.unwrap_or_else(|| panic!("no {text:?} in\n{}", rows.join("\n")))].style()
}

#[test]
fn a_screen_of_80_by_24_shows_every_part() {
    let script = Script::under_load(2);
    let rows = rows(&screen(&script.state, &look(), 80, 24));
    assert!(rows[0].starts_with(" rtscope  quick  Rest, message load, rest"));
    assert!(rows[0].ends_with("board"));
    assert!(rows[1].starts_with(" message load 2/3   ━━━"), "{}", rows[1]);
    assert!(rows[1].ends_with("─  0:09 of 0:20, 0:11 left"), "{}", rows[1]);
    assert_eq!(rows[2], " ✓ rest   ▶ message load   · rest again");
    assert_eq!(rows[3], "   us             min      now      avg      max     recorded   missed");
    assert_eq!(rows[4], " ▶ all CPUs       1.2      3.4      4.5    100.0       10,000        0");
    assert_eq!(rows[5], "   CPU 0          1.2      3.4      4.5     99.0        5,000        0");
    assert!(rows[7].starts_with("─ Latency of all CPUs ─"), "{}", rows[7]);
    assert!(rows[7].contains("─ Worst latency over time ─"));
    for axis in ["1 us", "10 us", "100 us", "0:00", "0:10"] {
        assert!(rows[8..18].iter().any(|row| row.contains(axis)), "no {axis}: {rows:#?}");
    }
    assert!(row_of(&rows, "message groups=10").contains("123,456 messages/s"));
    assert!(rows.iter().any(|row| row.contains("0:05  load message groups=10 started")));
    assert!(rows[23].starts_with(" q end   arrows CPU"));
}

/// A run whose names are as long as people make them.
fn long_names() -> State {
    let text = r#"
        name = "acceptance-of-the-motor-board"
        title = "What the supplier's contract asks of every board before it leaves the house"
        about = "A test."
        [[phase]]
        name = "rest, all services up"
        duration = "5s"
        [[phase]]
        name = "motor control, camera and logging"
        duration = "10s"
        load = ["disk block=4MiB size=512MiB dir=/var/log/motor fsync=true", "message groups=10"]
        [[phase]]
        name = "rest, again with every service"
        duration = "5s"
    "#;
    let plan = rtscope_model::plan::parse("test", text).expect("a plan");
    let mut script = Script { state: State::new(&plan), at_ns: 0, threads: 0 };
    script.session(0, 2);
    script.begins(1);
    for (load, line) in plan.phases[1].loads.iter().enumerate() {
        let load = load as u32;
        script.happens(Event::LoadStarted { cell: 1, load, line: line.to_string(), pid: 7 });
        script.happens(Event::load_rate(1, load, 1_000_000_000, 123_456_789, "bytes"));
    }
    script.state
}

#[test]
fn no_name_is_cut_at_80_columns() {
    let state = long_names();
    let look = Look { host: "motor-board-7.line-3.factory.example".to_owned(), ..look() };
    for height in [24, 30, 50] {
        let rows = rows(&screen(&state, &look, 80, height));
        let text = rows.join("\n");
        assert!(!text.contains('…'), "{text}");
        assert!(rows[0].contains("acceptance-of-the-motor-board"), "{}", rows[0]);
        assert!(rows[0].ends_with("motor-board-7.line-3.factory.example"), "{}", rows[0]);
        assert!(rows[1].contains("motor control, camera and logging 2/3"), "{}", rows[1]);
        assert!(rows[2].contains("motor control, camera and logging"), "{}", rows[2]);
        for part in ["disk block=4MiB", "dir=/var/log/motor", "123 MB/s"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }
    let block = rows(&block(&state, 80, 24)).join("\n");
    assert!(!block.contains('…') && block.contains("disk block=4MiB"), "{block}");
}

#[test]
fn a_screen_of_120_by_40_has_policies_and_both_charts_in_full_width() {
    let script = Script::under_load(2);
    let rows = rows(&screen(&script.state, &look(), 120, 40));
    let cpu = row_of(&rows, "CPU 1");
    assert!(cpu.contains("fifo 90     1 ms"), "{cpu}");
    assert!(cpu.contains(['▅', '▆', '▇', '█']), "no recent maxima: {cpu}");
    assert!(row_of(&rows, "─ Latency of all CPUs ─").ends_with("─ message load, log count ─"));
    assert!(row_of(&rows, "─ Worst latency over time ─").ends_with("─ max of each slice ─"));
    let is_dots = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
    assert!(rows.iter().filter(|row| row.contains(is_dots)).count() > 3, "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("┊rest") && row.contains("┊message load")));
}

#[test]
fn a_claim_is_shown_while_the_run_goes_on_for_it() {
    let mut script = Script::under_load(2);
    let text = "34 % of the time needed, no exceedance; about 2 h 26 min more without one";
    script.state.claim = Some(text.to_owned());
    assert_eq!(rows(&screen(&script.state, &look(), 80, 24))[2].trim(), text);
    assert_eq!(rows(&block(&script.state, 80, 24))[1].trim(), text);
    // Where there is room for two lines only, it is the second.
    assert_eq!(rows(&block(&script.state, 80, 3))[1].trim(), text);
}

#[test]
fn a_screen_of_40_by_10_keeps_the_maxima() {
    let script = Script::under_load(2);
    let rows = rows(&screen(&script.state, &look(), 40, 10));
    assert!(rows[1].ends_with("0:11 left"));
    assert_eq!(rows[2], "   us             avg      max   missed");
    assert_eq!(rows[4], "   CPU 0          4.5     99.0        0");
    assert_eq!(rows[5], "   CPU 1          4.5    100.0        0");
}

#[test]
fn no_size_and_no_state_is_too_small_or_too_large() {
    let mut ended = Script::under_load(2);
    ended.ends(1, EndReason::Break);
    ended.happens(Event::run_ended(EndReason::Break));
    let mut found = Script::under_load(1);
    found.happens(Event::Found(Finding::new("a", Weight::Warning, "steal time ".repeat(30))));
    let mut odd = Script::placed(3);
    odd.begins(0);
    odd.sees(0, 0, &[0]);
    odd.sees(1, 0, &[1 << 50]);
    let states =
        [Script::placed(0), Script::placed(64), ended, found, odd, Script::under_load(300)];
    for Script { state, .. } in &states {
        for (width, height) in [(1, 1), (3, 2), (10, 5), (27, 9), (76, 13), (80, 24), (200, 60)] {
            for selected in [0, state.lanes.len()] {
                let look = Look { selected, linear: true, help: true, frozen: true, ..look() };
                screen(state, &look, width, height);
            }
            assert!(block(state, width, height).area.height <= height.saturating_sub(1).max(1));
        }
    }
}

#[test]
fn what_is_above_a_limit_is_loud() {
    let script = Script::under_load(2);
    let buffer = screen(&script.state, &look(), 80, 24);
    assert_eq!(style_at(&buffer, "100.0 ").fg, ALARM.fg, "the limit itself is not below the limit");
    assert_ne!(style_at(&buffer, "99.0 ").fg, ALARM.fg);
    let small = block(&script.state, 80, 24);
    assert_eq!(style_at(&small, "100.0 ").fg, ALARM.fg);
    // A first phase without a limit on the maximum is never loud.
    let mut script = Script::placed(2);
    script.begins(0);
    script.shows(Some(0), 900_000_000);
    let buffer = screen(&script.state, &look(), 80, 24);
    assert_ne!(style_at(&buffer, "900,000").fg, ALARM.fg);
}

#[test]
fn a_peak_is_seen_over_time_however_long_the_run() {
    let top = |peak_at: Option<u32>| {
        let mut script = Script::placed(1);
        script.begins(0);
        for n in 0..3_000 {
            script.after_ms(1_000);
            script.sees(0, 0, &[if Some(n) == peak_at { 4_000_000 } else { 2_000 }]);
        }
        let rows = rows(&screen(&script.state, &look(), 120, 40));
        let at = rows.iter().position(|row| row.contains("┊rest")).expect("the chart");
        let is_dots = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        rows[at + 1..at + 4].iter().map(|row| row.chars().filter(|c| is_dots(*c)).count()).sum()
    };
    let with_peak: usize = top(Some(1_717));
    assert!(with_peak > 0, "one late wake-up of 3000 slices");
    let without: usize = top(None);
    assert_eq!(without, 0, "the axis follows what is shown");
}

#[test]
fn the_selected_cpu_is_shown_however_many_there_are() {
    let script = Script::under_load(64);
    for selected in [1, 32, 64] {
        let rows = rows(&screen(&script.state, &Look { selected, ..look() }, 80, 24));
        let label = format!("CPU {}", selected - 1);
        assert!(rows.iter().any(|row| row.starts_with(&format!(" ▶ {label} "))), "{rows:#?}");
        assert!(row_of(&rows, "─ Latency of").starts_with(&format!("─ Latency of {label} ")));
    }
}

#[test]
fn the_histogram_of_a_cpu_is_its_own_and_has_two_scales() {
    let script = Script::under_load(2);
    let full = |look: &Look| rows(&screen(&script.state, look, 60, 20)).join("\n");
    let (first, last) = (Look { selected: 1, ..look() }, Look { selected: 2, ..look() });
    assert_ne!(full(&first), full(&last));
    let linear = Look { linear: true, ..look() };
    assert!(full(&linear).contains("linear count") && full(&look()).contains("log count"));
    let bars = |text: &str| text.chars().filter(|c| ('▁'..='█').contains(c)).count();
    assert!(
        bars(&full(&linear)) < bars(&full(&look())),
        "rare latencies are low on a linear scale"
    );
    assert!(bars(&full(&linear)) > 0);
}

#[test]
fn of_many_phases_those_around_the_running_one_are_shown() {
    let mut script = Script::under_load(1);
    script.ends(1, EndReason::Duration);
    script.begins(2);
    let phases = |width| rows(&screen(&script.state, &look(), width, 24)).remove(2);
    assert_eq!(phases(80), " ✓ rest   ✓ message load   ▶ rest again");
    assert_eq!(phases(38), " 2 before   ▶ rest again");
    let script = Script::under_load(1);
    let phases = |width| rows(&screen(&script.state, &look(), width, 24)).remove(2);
    assert_eq!(phases(38), " ✓ rest   ▶ message load   + 1 more");
}

#[test]
fn tags_and_help_are_shown_when_they_are_on() {
    let script = Script::under_load(2);
    let text = |look: &Look| rows(&screen(&script.state, look, 80, 24)).join("\n");
    let plain = text(&look());
    assert!(
        !plain.contains("frozen") && !plain.contains("ending") && !plain.contains("End the run")
    );
    assert!(text(&Look { frozen: true, ..look() }).contains("board  frozen"));
    assert!(text(&Look { ending: true, ..look() }).contains("board  ending"));
    let help = text(&Look { help: true, ..look() });
    for (_, _, meaning) in KEYS {
        assert!(help.contains(meaning), "{meaning} is cut off");
    }
}

#[test]
fn the_block_says_it_in_a_few_lines() {
    let script = Script::under_load(2);
    let lines = rows(&block(&script.state, 79, 24));
    assert!(lines[0].starts_with(" message load 2/3   ━"), "{}", lines[0]);
    assert!(lines[0].ends_with("0:09 of 0:20, 0:11 left"), "{}", lines[0]);
    assert_eq!(lines[1], "   us             min      now      avg      max   missed");
    assert_eq!(lines[3], "   CPU 1          1.2      3.4      4.5    100.0        0");
    assert!(lines[5].starts_with("       1 us ") && lines[5].ends_with("200 us  log count"));
    assert_eq!(lines[6], "   message groups=10                         123,456 messages/s");
    assert_eq!(lines.len(), 7);
}

#[test]
fn the_block_speaks_for_cpus_without_a_line() {
    let mut script = Script::under_load(12);
    let twelve = rows(&block(&script.state, 79, 40));
    assert_eq!(row_of(&twelve, "+"), "   + 4 more, the worst CPU 11 max 100.0 us, missed 0");
    script.happens(Event::Found(Finding::new("a", Weight::Warning, "steal time")));
    let found = rows(&block(&script.state, 79, 40));
    assert_eq!((found.len(), found.last().map(String::as_str)), (14, Some(" ! steal time")));
    let low = rows(&block(&script.state, 79, 6));
    assert_eq!(
        (low.len(), low[3].as_str()),
        (5, "   + 11 more, the worst CPU 11 max 100.0 us, missed 0")
    );
    assert_eq!(low[4], " ! steal time");
}

#[test]
fn a_finished_phase_leaves_one_line() {
    let mut script = Script::under_load(2);
    let summary = script.state.take_summary().expect("the first phase");
    let line = |width| rows(&compact::summary(&script.state, &summary, width)).remove(0);
    let full = " rest              5 s   CPU 0 max   20.0 us   CPU 1 max   20.0 us   missed 0";
    assert_eq!(line(79), full);
    assert!(line(67).ends_with("s   worst of 2: CPU 1 max   20.0 us   missed 0"), "{}", line(67));
    assert!(line(66).ends_with("s   max   20.0 us   missed 0"), "{}", line(66));
    script.after_ms(100).ends(1, EndReason::Interrupted);
    script.after_ms(125).shows(None, 1);
    let summary = script.state.take_summary().expect("the second phase");
    let cut = compact::summary(&script.state, &summary, 100);
    assert!(rows(&cut)[0].ends_with("missed 0   interrupted"), "{:?}", rows(&cut));
    assert_eq!(style_at(&cut, "100.0 us").fg, ALARM.fg);
    assert_ne!(style_at(&cut, "90.0 us").fg, ALARM.fg);
}

#[test]
fn a_machine_that_others_keep_busy_is_not_called_at_rest() {
    let mut script = Script::placed(1);
    script.begins(0);
    let mut shown = |busy_ns| {
        script.happens(Event::System(SystemSpan {
            span_ns: 1_000_000_000,
            own_ns: Some(20_000_000),
            energy_uj: None,
            cpus: vec![CpuSpan { cpu: 0, busy_ns, ..CpuSpan::default() }],
            ..SystemSpan::default()
        }));
        rows(&screen(&script.state, &look(), 120, 40)).join("\n")
    };
    assert!(shown(50_000_000).contains("none: the machine is at rest"));
    let busy = shown(990_000_000);
    assert!(busy.contains("none, but others use 97 % of the CPUs"), "{busy}");
    assert!(!busy.contains("at rest"), "{busy}");
}

#[test]
fn the_full_screen_splits_cpu_time_as_mpstat_does() {
    let mut script = Script::under_load(1);
    let ms = |times: [u64; 7]| times.map(|ms| ms * 1_000_000);
    let cpu = |cpu, times| CpuSpan { cpu, times_ns: Some(ms(times)), ..CpuSpan::default() };
    script.happens(Event::System(SystemSpan {
        span_ns: 1_000_000_000,
        cpus: vec![cpu(0, [80, 0, 20, 0, 0, 900, 0]), cpu(1, [730, 0, 270, 0, 0, 0, 0])],
        lines: vec![InterruptLine {
            line: "24".to_owned(),
            name: "eth0".to_owned(),
            counts: vec![(0, 12_345)],
        }],
        ..SystemSpan::default()
    }));
    let text = rows(&screen(&script.state, &look(), 120, 40)).join("\n");
    assert!(text.contains("CPU % usr 40.5 sys 14.5 soft 45.0 idle 0.0, eth0 12,345/s"), "{text}");
}

#[test]
fn the_console_gets_characters_that_it_has() {
    let script = Script::under_load(2);
    let look = Look { symbols: Symbols::for_terminal("linux"), ..look() };
    let text = rows(&screen(&script.state, &look, 120, 40)).join("");
    let known = |c: char| c.is_ascii() || "─│┌┐└┘█▄▀░►√·".contains(c);
    let unknown: String = text.chars().filter(|c| !known(*c)).collect();
    assert_eq!(unknown, "");
}
