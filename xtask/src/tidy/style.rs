//! Sizes and names: what keeps a file readable in one sitting.

use super::{
    Problem,
    source::{Source, Word},
};

/// Lines from a function's `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// Lines of a file, its tests included.
const FILE_LINES: usize = 600;

/// Files and functions (as `path::function`) that may be longer, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Last words of a type's name that say nothing about it.
const EMPTY_ENDINGS: [&str; 8] =
    ["Manager", "Data", "Info", "Helper", "Helpers", "Util", "Utils", "Result"];

/// Macros of unfinished work.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Marks of unfinished work, put together here so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// All of a file's problems of style.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let checks = [long_functions, long_file, empty_names, unfinished_code, marks];
    checks.iter().flat_map(|check| check(source)).collect()
}

fn is_excepted(name: &str) -> bool {
    EXCEPTIONS.iter().any(|(excepted, _)| *excepted == name)
}

fn long_functions(source: &Source) -> Vec<Problem> {
    let long = functions(&source.words).into_iter().filter(|f| f.lines() > FUNCTION_LINES);
    let unexcused = long.filter(|f| !is_excepted(&format!("{}::{}", source.path, f.name)));
    let say = |f: Function<'_>| {
        let lines = f.lines();
        source.problem(f.first, format!("{} has {lines} lines: at most {FUNCTION_LINES}", f.name))
    };
    unexcused.map(say).collect()
}

fn long_file(source: &Source) -> Vec<Problem> {
    let lines = source.text.lines().count();
    if lines <= FILE_LINES || is_excepted(&source.path) {
        return Vec::new();
    }
    vec![source.problem(FILE_LINES, format!("the file has {lines} lines: split it"))]
}

fn empty_names(source: &Source) -> Vec<Problem> {
    let declares = ["struct", "enum", "union", "trait", "type"];
    let named = source.pairs().filter(|(keyword, _)| declares.contains(&keyword.text.as_str()));
    let empty = named.filter(|(_, name)| {
        EMPTY_ENDINGS.iter().any(|ending| name.text.ends_with(ending))
            || name.text.starts_with("Result")
    });
    let say = |(_, name): (&Word, &Word)| {
        source.problem(name.line, format!("{} says nothing: name what it is", name.text))
    };
    empty.map(say).collect()
}

fn unfinished_code(source: &Source) -> Vec<Problem> {
    let calls = source
        .pairs()
        .filter(|(name, bang)| bang.is("!") && UNFINISHED.contains(&name.text.as_str()));
    calls.map(|(name, _)| source.problem(name.line, format!("{}! is left", name.text))).collect()
}

fn marks(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (i, line) in source.text.lines().enumerate() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        let found = MARKS.iter().filter(|mark| words.contains(mark));
        problems.extend(found.map(|mark| source.problem(i + 1, format!("{mark} is left"))));
    }
    problems
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function<'a> {
    name: &'a str,
    /// Line of its `fn`.
    first: usize,
    /// Line of its closing brace.
    last: usize,
}

impl Function<'_> {
    fn lines(&self) -> usize {
        self.last + 1 - self.first
    }
}

/// The functions among the words, in macros too; inner ones count for themselves and for the outer.
fn functions(words: &[Word]) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (i, pair) in words.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        // `fn(` is the type of a pointer.
        if !keyword.is("fn") || !name.is_name() {
            continue;
        }
        // The body is the first brace beside the `fn`; a declaration ends with a semicolon instead.
        let mut beside = words[i..].iter().filter(|word| word.depth == keyword.depth);
        let opens = beside.find(|word| word.is("{") || word.is(";"));
        let closes = beside.next().filter(|_| opens.is_some_and(|word| word.is("{")));
        if let Some(closes) = closes {
            found.push(Function { name: &name.text, first: keyword.line, last: closes.line });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::source::tests::source, *};

    fn messages(text: &str) -> Vec<String> {
        check(&source("a.rs", text)).into_iter().map(|problem| problem.message).collect()
    }

    fn spans(text: &str) -> Vec<(String, usize, usize)> {
        let source = source("a.rs", text);
        let span = |f: &Function<'_>| (f.name.to_owned(), f.first, f.last);
        functions(&source.words).iter().map(span).collect()
    }

    fn expect(spans: &[(String, usize, usize)], expected: &[(&str, usize, usize)]) {
        let spans: Vec<_> = spans.iter().map(|(name, a, b)| (name.as_str(), *a, *b)).collect();
        assert_eq!(spans, expected);
    }

    #[test]
    fn functions_are_found_wherever_they_hide() {
        expect(
            &spans("fn a() {}\npub const fn b(x: [u8; { 3 }])\n{\n    1;\n}"),
            &[("a", 1, 1), ("b", 2, 5)],
        );
        expect(
            &spans("trait T {\n    fn declared();\n    fn given() {\n    }\n}"),
            &[("given", 3, 4)],
        );
        expect(
            &spans("fn outer() {\n    fn inner() {\n    }\n}"),
            &[("outer", 1, 4), ("inner", 2, 3)],
        );
        expect(&spans("macro_rules! m { () => { fn made() {\n} } }"), &[("made", 1, 2)]);
        expect(&spans("let f: fn(u8) = g; // fn no() {\nlet s = \"fn no() {\"; "), &[]);
        expect(
            &spans("fn w<T>() -> u8\nwhere\n    T: Fn() -> u8,\n{\n    '{'; \"}\"; 1\n}"),
            &[("w", 1, 6)],
        );
    }

    #[test]
    fn a_function_may_have_just_so_many_lines() {
        let of = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        assert_eq!(messages(&of(FUNCTION_LINES)), [""; 0]);
        assert_eq!(messages(&of(FUNCTION_LINES + 1)).len(), 1);
    }

    #[test]
    fn a_file_may_have_just_so_many_lines() {
        assert_eq!(messages(&"// a\n".repeat(FILE_LINES)), [""; 0]);
        assert_eq!(messages(&"// a\n".repeat(FILE_LINES + 1)).len(), 1);
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        assert_eq!(
            messages("struct LoadManager;\ntype ParseResult<T> = T;\nenum Info {}").len(),
            3
        );
        assert_eq!(
            messages("struct Datagram;\nenum Information {}\nfn f() -> Result<()> {}"),
            [""; 0]
        );
    }

    #[test]
    fn unfinished_work_is_found() {
        let mark = MARKS[0];
        assert_eq!(messages(&format!("// {mark}: later\nfn f() {{ todo!() }}")).len(), 2);
        assert_eq!(messages("let x = dbg!(y);").len(), 1);
        assert_eq!(messages(&format!("// {mark}S\nfn todo() {{ dbg(1) }}")), [""; 0]);
    }
}
