//! What a key means.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::view::Look;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// End the run.
    Stop,
    /// Select the next or the previous CPU.
    Next,
    Previous,
    /// Freeze the screen, or go on.
    Freeze,
    /// Logarithmic or linear counts.
    Scale,
    /// Show or hide the help.
    Help,
    /// Hide the help.
    Close,
}

/// The action of a terminal's event; most have none.
pub(super) fn action(event: &Event) -> Option<Action> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Stop);
    }
    Some(match key.code {
        KeyCode::Char('q' | 'Q') => Action::Stop,
        KeyCode::Tab | KeyCode::Down | KeyCode::Right | KeyCode::Char('j') => Action::Next,
        KeyCode::BackTab | KeyCode::Up | KeyCode::Left | KeyCode::Char('k') => Action::Previous,
        KeyCode::Char('f' | 'F') => Action::Freeze,
        KeyCode::Char('h' | 'H') => Action::Scale,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc => Action::Close,
        _ => return None,
    })
}

/// Changes the look; `lanes` is the number of threads. The first choice is all of them together.
pub(super) fn change(look: &mut Look, action: Action, lanes: usize) {
    let choices = if lanes > 1 { lanes + 1 } else { 1 };
    match action {
        Action::Stop => look.ending = true,
        Action::Next => look.selected = (look.selected + 1) % choices,
        Action::Previous => look.selected = (look.selected + choices - 1) % choices,
        Action::Freeze => look.frozen = !look.frozen,
        Action::Scale => look.linear = !look.linear,
        Action::Help => look.help = !look.help,
        Action::Close => look.help = false,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;
    use crate::tui::view::Symbols;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(code, modifiers))
    }

    fn look() -> Look {
        let symbols = Symbols::for_terminal("xterm");
        let host = String::new();
        let (linear, frozen, help, ending) = (false, false, false, false);
        Look { host, symbols, selected: 0, linear, frozen, help, ending }
    }

    #[test]
    fn keys_mean_what_the_help_says() {
        let plain = |code| action(&key(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Action::Stop));
        assert_eq!(plain(KeyCode::Tab), Some(Action::Next));
        assert_eq!(plain(KeyCode::Up), Some(Action::Previous));
        assert_eq!(plain(KeyCode::Char('f')), Some(Action::Freeze));
        assert_eq!(plain(KeyCode::Char('h')), Some(Action::Scale));
        assert_eq!(plain(KeyCode::Char('?')), Some(Action::Help));
        assert_eq!(plain(KeyCode::Esc), Some(Action::Close));
        assert_eq!(plain(KeyCode::Char('x')), None);
        let control = |c| action(&key(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!(control('c'), Some(Action::Stop));
        assert_eq!([control('q'), control('h')], [None, None], "Ctrl-H is a backspace");
        assert_eq!(action(&Event::Resize(80, 24)), None);
        let released =
            KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(action(&Event::Key(released)), None);
    }

    #[test]
    fn the_selection_goes_round() {
        let mut look = look();
        let selected = [Action::Next, Action::Next, Action::Next, Action::Previous].map(|action| {
            change(&mut look, action, 2);
            look.selected
        });
        assert_eq!(selected, [1, 2, 0, 2]);
        let mut look = self::look();
        change(&mut look, Action::Next, 1);
        assert_eq!(look.selected, 0, "one thread is all threads");
        change(&mut look, Action::Previous, 0);
        assert_eq!(look.selected, 0);
    }

    #[test]
    fn escape_closes_the_help_and_never_opens_it() {
        let mut look = look();
        let shown = [Action::Close, Action::Help, Action::Close, Action::Close].map(|action| {
            change(&mut look, action, 2);
            look.help
        });
        assert_eq!(shown, [false, true, false, false]);
    }

    #[test]
    fn switches_go_back_and_forth() {
        let before = look();
        for action in [Action::Freeze, Action::Scale, Action::Help] {
            let mut look = before.clone();
            change(&mut look, action, 2);
            assert_ne!(look, before);
            change(&mut look, action, 2);
            assert_eq!(look, before);
        }
    }
}
