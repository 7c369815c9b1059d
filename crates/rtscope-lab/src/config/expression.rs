//! Conditions of options: read and evaluated.

use super::merge::{ConfigOptions, Value};

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// An option, or a constant.
    Name(String),
    /// A macro, or what wasn't understood: counts as met.
    Unknown(String),
    /// `!A`.
    Not(Box<Expression>),
    /// `A && B`.
    And(Box<Expression>, Box<Expression>),
    /// `A || B`.
    Or(Box<Expression>, Box<Expression>),
    /// `A = B`, `A != B`, `A < B` and so on.
    Compare(String, &'static str, String),
}

/// Signs and names of a condition. Each may nest one deeper, and the stack is finite.
const TOKENS_MAX: usize = 1_000;

pub(super) fn parse(text: &str) -> Expression {
    let tokens = tokens(text);
    let mut at = 0;
    let is_short = tokens.len() <= TOKENS_MAX;
    match is_short.then(|| either(&tokens, &mut at)).flatten() {
        Some(expression) if at == tokens.len() => expression,
        _ => Expression::Unknown(text.to_owned()),
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        let two: String = chars[i..].iter().take(2).collect();
        match chars[i] {
            '#' => break,
            c if c.is_whitespace() => i += 1,
            '$' if chars.get(i + 1) == Some(&'(') => {
                let start = i;
                let mut depth = 0;
                while i < chars.len() {
                    depth += i32::from(chars[i] == '(') - i32::from(chars[i] == ')');
                    i += 1;
                    if depth == 0 && i > start + 2 {
                        break;
                    }
                }
                tokens.push(chars[start..i].iter().collect());
            }
            _ if ["&&", "||", "!=", "<=", ">="].contains(&two.as_str()) => {
                tokens.push(two);
                i += 2;
            }
            '(' | ')' | '!' | '=' | '<' | '>' => {
                tokens.push(chars[i].to_string());
                i += 1;
            }
            quote @ ('"' | '\'') => {
                let end = chars[i + 1..]
                    .iter()
                    .position(|c| *c == quote)
                    .map_or(chars.len(), |n| i + 1 + n);
                tokens.push(chars[i..end].iter().collect::<String>() + "\"");
                i = end + 1;
            }
            _ => {
                let start = i;
                while i < chars.len() && (chars[i].is_alphanumeric() || "_-.".contains(chars[i])) {
                    i += 1;
                }
                if i == start {
                    i += 1;
                }
                tokens.push(chars[start..i].iter().collect());
            }
        }
    }
    tokens
}

fn either(tokens: &[String], at: &mut usize) -> Option<Expression> {
    let mut left = both(tokens, at)?;
    while tokens.get(*at).is_some_and(|token| token == "||") {
        *at += 1;
        left = Expression::Or(Box::new(left), Box::new(both(tokens, at)?));
    }
    Some(left)
}

fn both(tokens: &[String], at: &mut usize) -> Option<Expression> {
    let mut left = one(tokens, at)?;
    while tokens.get(*at).is_some_and(|token| token == "&&") {
        *at += 1;
        left = Expression::And(Box::new(left), Box::new(one(tokens, at)?));
    }
    Some(left)
}

fn one(tokens: &[String], at: &mut usize) -> Option<Expression> {
    let token = tokens.get(*at)?;
    *at += 1;
    if token == "!" {
        return one(tokens, at).map(|inner| Expression::Not(Box::new(inner)));
    }
    if token == "(" {
        let inner = either(tokens, at)?;
        return (tokens.get(*at)? == ")").then(|| {
            *at += 1;
            inner
        });
    }
    let compare = tokens
        .get(*at)
        .and_then(|token| ["=", "!=", "<", ">", "<=", ">="].into_iter().find(|sign| sign == token));
    if let Some(sign) = compare {
        let right = tokens.get(*at + 1)?.clone();
        *at += 2;
        return Some(Expression::Compare(token.clone(), sign, right));
    }
    if token.starts_with("$(") {
        return Some(Expression::Unknown(token.clone()));
    }
    Some(Expression::Name(token.clone()))
}

impl Expression {
    /// 0 is no, 1 module, 2 yes, as the kernel's tools count.
    pub(super) fn holds(&self, options: &ConfigOptions) -> u8 {
        match self {
            Expression::Name(name) => tristate(name, options),
            Expression::Unknown(_) => 2,
            Expression::Not(inner) => 2 - inner.holds(options),
            Expression::And(a, b) => a.holds(options).min(b.holds(options)),
            Expression::Or(a, b) => a.holds(options).max(b.holds(options)),
            Expression::Compare(a, sign, b) => {
                let (a, b) = (value(a, options), value(b, options));
                let order = match (number(&a), number(&b)) {
                    (Some(a), Some(b)) => a.cmp(&b),
                    _ => a.cmp(&b),
                };
                let holds = match *sign {
                    "=" => order.is_eq(),
                    "!=" => order.is_ne(),
                    "<" => order.is_lt(),
                    ">" => order.is_gt(),
                    "<=" => order.is_le(),
                    _ => order.is_ge(),
                };
                if holds { 2 } else { 0 }
            }
        }
    }

    /// The parts that don't hold, in words as `NET=n`.
    pub(super) fn unmet(&self, options: &ConfigOptions) -> Vec<String> {
        if self.holds(options) == 2 {
            return Vec::new();
        }
        match self {
            Expression::And(a, b) => [a.unmet(options), b.unmet(options)].concat(),
            Expression::Or(a, b) => {
                let sides = [a, b].map(|side| side.unmet(options).join(" and "));
                vec![format!("one of: {}; {}", sides[0], sides[1])]
            }
            Expression::Not(inner) => match &**inner {
                Expression::Name(name) => {
                    vec![format!("!{name}, but {name}={}", value(name, options))]
                }
                other => vec![format!("not ({})", other.text())],
            },
            Expression::Name(name) => vec![format!("{name} (now {})", value(name, options))],
            other => vec![other.text()],
        }
    }

    fn text(&self) -> String {
        match self {
            Expression::Name(name) | Expression::Unknown(name) => name.clone(),
            Expression::Not(inner) => format!("!{}", inner.text()),
            Expression::And(a, b) => format!("{} && {}", a.text(), b.text()),
            Expression::Or(a, b) => format!("({} || {})", a.text(), b.text()),
            Expression::Compare(a, sign, b) => format!("{a} {sign} {b}"),
        }
    }
}

pub(super) fn tristate(name: &str, options: &ConfigOptions) -> u8 {
    match value(name, options).as_str() {
        "y" => 2,
        "m" => 1,
        _ => 0,
    }
}

/// A constant as it is, an option as it is set.
fn value(name: &str, options: &ConfigOptions) -> String {
    if let Some(text) = name.strip_prefix(['"', '\'']) {
        return text.trim_end_matches(['"', '\'']).to_owned();
    }
    if ["y", "m", "n"].contains(&name) || number(name).is_some() {
        return name.to_owned();
    }
    options.get(name).map_or("n", Value::word).trim_matches('"').to_owned()
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
