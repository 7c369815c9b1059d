//! A table of published figures as a file.

use super::{Published, PublishedTable};
use crate::{
    plan::mistakes,
    printable::printable,
    text::{Problem, TextError},
};

impl PublishedTable {
    /// Reads a table. `name` is how errors call the text.
    pub fn parse(name: &str, text: &str) -> Result<PublishedTable, TextError> {
        let fail = |mut problems: Vec<Problem>| {
            problems.sort_by_key(|problem| problem.line);
            TextError { name: name.to_owned(), problems }
        };
        let (read, mut problems) = mistakes::read::<PublishedTable>(text);
        let Some(mut read) = read else { return Err(fail(problems)) };
        // Any subject will do: a table doesn't know what will be measured.
        let named = read.published.clone();
        let subjects: Vec<&str> = named.iter().filter_map(|one| one.subject.as_deref()).collect();
        problems.extend(super::problems(text, "", &subjects, &problems));
        read.published.iter_mut().for_each(Published::make_printable);
        for text in [&mut read.name, &mut read.title] {
            *text = printable(text).into_owned();
        }
        if problems.is_empty() { Ok(read) } else { Err(fail(problems)) }
    }
}
