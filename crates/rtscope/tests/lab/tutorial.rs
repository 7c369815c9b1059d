//! The step of the tutorial that boots guests; the others are run by `tests/it/book`.

use crate::{
    blocks::{blocks_of, commands, pages},
    ready_or_skip, room, rtscope, text,
};

#[test]
fn the_tutorial_s_step_in_the_lab_runs() {
    if !ready_or_skip("the_tutorial_s_step_in_the_lab_runs") {
        return;
    }
    let (room, mut ran) = (room(), 0);
    let is_step = |page: &&String| page.starts_with("docs/tutorial/7-");
    for block in pages().iter().filter(is_step).flat_map(|page| blocks_of(page)) {
        for command in commands(&block) {
            if command.starts_with("rtscope lab explain ") {
                // A minute of replay: the tests in `explain.rs` do so with a smaller record.
                continue;
            }
            let words: Vec<&str> = command.split_whitespace().collect();
            let Some(("rtscope", arguments)) =
                words.split_first().map(|(first, rest)| (*first, rest))
            else {
                panic!("{}:{}: {command} doesn't call rtscope", block.page, block.line);
            };
            let output = rtscope(room.path(), arguments).output().expect("starts");
            // A verdict is no failure.
            let is_fine = matches!(output.status.code(), Some(0 | 2 | 3));
            assert!(is_fine, "{command}: {}\n{}", output.status, text(&output));
            ran += 1;
        }
    }
    assert!(ran > 1, "{ran} commands");
}
