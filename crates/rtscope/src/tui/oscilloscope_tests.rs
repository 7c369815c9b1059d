use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyEvent};
use rtscope_analyse::statistics::wave::judge;
use rtscope_model::wave::{Edge, Gap};

use super::*;

/// A wave of 1 kHz with a duty cycle of a quarter, over 50 ms.
fn capture() -> Capture {
    let pulse = |n: u64| {
        let at_ns = 300_000 + n * 1_000_000;
        [Edge::new(at_ns, true), Edge::new(at_ns + 250_000, false)]
    };
    Capture {
        line: "memory:x".to_owned(),
        start_ns: 0,
        end_ns: 50_000_000,
        resolution_ns: 240,
        starts_high: None,
        edges: (0..49).flat_map(pulse).collect(),
        gaps: Vec::new(),
        made: Some(98),
        made_in_gaps: Some(0),
        is_full: false,
    }
}

fn press(scene: &mut Scene, code: KeyCode) {
    scene.key(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

/// The screen as lines of text.
fn screen(scene: &Scene) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a screen");
    terminal.draw(|frame| scene.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer().clone();
    let row = |y: u16| {
        let symbols = (0..80).map(|x| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol()));
        symbols.collect::<String>().trim_end().to_owned()
    };
    (0..24).map(row).collect()
}

fn shown(scene: &mut Scene, capture: &Capture) -> Vec<String> {
    let wave = judge(capture, None);
    scene.take(capture, &wave, 80);
    screen(scene)
}

#[test]
fn the_trigger_stands_one_division_from_the_left() {
    let mut scene = Scene::new("memory:x", Some(500_000));
    let lines = shown(&mut scene, &capture());
    assert!(lines[1].contains("500 us/div   trigger: rising edge"), "{}", lines[1]);
    // 80 columns of 62.5 us: edges at columns 8, 12, then 16 columns on; 5 periods.
    let top: Vec<char> = lines[3].chars().collect();
    let edges: Vec<usize> = (0..80).filter(|n| top.get(*n) == Some(&'│')).collect();
    assert_eq!(edges, [8, 12, 24, 28, 40, 44, 56, 60, 72, 76]);
    assert!(top[9..12].iter().all(|c| *c == '─') && top[13] == ' ');
    assert_eq!(lines[10].chars().nth(13), Some('─'));
    assert!(lines.iter().any(|line| line.starts_with("frequency     1000.0000 Hz")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("98 seen, 0 lost")));
    press(&mut scene, KeyCode::Char('t'));
    let top = shown(&mut scene, &capture())[3].clone();
    // Now the falling edge stands there, and the rise is 12 columns behind it.
    assert_eq!((top.chars().nth(8), top.chars().nth(20)), (Some('│'), Some('│')));
}

#[test]
fn keys_change_the_time_base_and_freeze() {
    let mut scene = Scene::new("memory:x", None);
    shown(&mut scene, &capture());
    assert_eq!(scene.base_ns, 500_000, "from the wave");
    for (code, base_ns) in
        [(KeyCode::Left, 200_000), (KeyCode::Right, 500_000), (KeyCode::Right, 1_000_000)]
    {
        press(&mut scene, code);
        assert_eq!(scene.base_ns, base_ns);
    }
    let lines = shown(&mut scene, &capture());
    press(&mut scene, KeyCode::Char('f'));
    let silent = Capture { edges: Vec::new(), made: None, ..capture() };
    let frozen = shown(&mut scene, &silent);
    assert!(frozen[1].contains("FROZEN") && frozen[3] == lines[3]);
    press(&mut scene, KeyCode::Char('f'));
    let live = shown(&mut scene, &silent);
    assert_eq!(live[3], "");
    assert!(live.iter().any(|line| line.contains("no edge was seen")));
    press(&mut scene, KeyCode::Char('q'));
    assert!(scene.is_over);
}

#[test]
fn persistence_keeps_older_traces_up_to_a_bound() {
    let mut scene = Scene::new("memory:x", Some(500_000));
    press(&mut scene, KeyCode::Char('p'));
    for _ in 0..30 {
        shown(&mut scene, &capture());
    }
    assert_eq!(scene.traces.len(), TRACES);
    press(&mut scene, KeyCode::Char('p'));
    shown(&mut scene, &capture());
    assert_eq!(scene.traces.len(), 1);
}

#[test]
fn a_blind_time_is_shaded_and_has_no_level() {
    let mut blind = capture();
    blind.edges.retain(|edge| !(2_600_000..4_700_000).contains(&edge.at_ns()));
    blind.gaps = vec![Gap { start_ns: 2_600_000, end_ns: 4_700_000, moved: false }];
    let mut scene = Scene::new("memory:x", Some(500_000));
    let lines = shown(&mut scene, &blind);
    // The trace begins at 0.8 ms (trigger at 1.3 ms): the gap is in columns 29 to 62.
    for row in &lines[3..11] {
        assert!(row.chars().skip(30).take(30).all(|c| c == '░'), "{row}");
    }
}

#[test]
fn a_small_terminal_is_no_danger() {
    let mut scene = Scene::new("memory:x", None);
    for (width, height) in [(1, 1), (10, 3), (200, 60)] {
        let wave = judge(&capture(), None);
        scene.take(&capture(), &wave, width);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| scene.draw(frame)).expect("drawn");
    }
}
