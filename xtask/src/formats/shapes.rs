//! Types by their names, as serde writes them.

use std::{collections::BTreeMap, rc::Rc};

use anyhow::{Context, Result, bail};
use syn::{
    Attribute, Expr, Fields, Item, Lit, LitStr, Meta, Token, Type, UseTree, meta::ParseNestedMeta,
    punctuated::Punctuated,
};

/// Every type of the sources.
#[derive(Default)]
pub(super) struct Shapes(BTreeMap<String, Vec<Shape>>);

/// A struct or an enum.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) name: String,
    /// `rtscope-model`.
    package: String,
    /// Its file's name, or its folder's.
    module: String,
    /// The modules from which its file imports names.
    imports: Rc<BTreeMap<String, String>>,
    /// Its first paragraph for people.
    pub(super) about: String,
    pub(super) kind: Kind,
    /// The number of its format, where its file has one.
    pub(super) format: Option<String>,
}

#[derive(Clone)]
pub(super) enum Kind {
    /// An object.
    Fields(Vec<Field>),
    /// What it is written as.
    Other(Box<Type>),
    /// One of several, and the key that says which.
    Variants(Vec<Variant>, Option<String>),
}

#[derive(Clone)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) about: String,
    pub(super) kind: Type,
    /// When it isn't there.
    pub(super) absent: Option<&'static str>,
    /// Whether its own keys stand in its place.
    pub(super) is_flat: bool,
}

#[derive(Clone)]
pub(super) struct Variant {
    pub(super) key: String,
    pub(super) about: String,
    pub(super) content: Content,
}

#[derive(Clone)]
pub(super) enum Content {
    Nothing,
    One(Box<Type>),
    Several(Vec<Type>),
    Fields(Vec<Field>),
}

/// What serde is told of a type, a field or a variant.
#[derive(Clone, Debug, Default)]
struct Told(BTreeMap<String, Option<String>>);

impl Told {
    fn of(attributes: &[Attribute]) -> Result<Told> {
        let mut told = Told::default();
        for attribute in attributes.iter().filter(|one| one.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| told.take(&meta))?;
        }
        Ok(told)
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let value = match meta.input.peek(Token![=]) {
            true => Some(meta.value()?.parse::<LitStr>()?.value()),
            false => None,
        };
        self.0.insert(name, value);
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// The key of a name under the rule of what it is in.
    fn key(&self, name: &str, rule: Option<&str>) -> Result<String> {
        match self.value("rename") {
            Some(key) => Ok(key.to_owned()),
            None => renamed(name.trim_start_matches("r#"), rule),
        }
    }

    fn absent(&self) -> Option<&'static str> {
        Some(match self.value("skip_serializing_if")? {
            "Option::is_none" => "absent if there is none",
            "std::ops::Not::not" => "absent if false",
            "is_zero" => "absent if 0",
            name if name.ends_with("::is_empty") => "absent if empty",
            _ => "absent if it is as usual",
        })
    }
}

/// A name under one of serde's rules.
fn renamed(name: &str, rule: Option<&str>) -> Result<String> {
    let words = || {
        let mut words: Vec<String> = Vec::new();
        for c in name.chars() {
            match words.last_mut() {
                Some(word) if !c.is_uppercase() => word.push(c),
                _ => words.push(c.to_lowercase().to_string()),
            }
        }
        words
    };
    Ok(match rule {
        None => name.to_owned(),
        Some("lowercase") => name.to_lowercase(),
        Some("UPPERCASE") => name.to_uppercase(),
        Some("kebab-case") if name.contains('_') => name.replace('_', "-"),
        Some("kebab-case") => words().join("-"),
        Some("snake_case") if name.starts_with(char::is_lowercase) => name.to_owned(),
        Some("snake_case") => words().join("_"),
        Some(other) => bail!("rename_all = {other:?} of {name} is not known here"),
    })
}

/// The first paragraph of what is said of something, for people who don't know the sources.
fn about(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join(" ").replace("[`", "`").replace("`]", "`")
}

impl Shapes {
    /// Adds what a file defines.
    pub(super) fn add(&mut self, path: &str, text: &str) -> Result<()> {
        let file = syn::parse_file(text).with_context(|| format!("{path} is no Rust"))?;
        let package = path.split('/').nth(1).unwrap_or_default();
        let parts = path.trim_end_matches(".rs").trim_end_matches("/mod").rsplit('/');
        let module = parts.into_iter().next().unwrap_or_default();
        let mut imports = BTreeMap::new();
        for item in &file.items {
            if let Item::Use(one) = item {
                import(&one.tree, "", &mut imports);
            }
        }
        let imports = Rc::new(imports);
        let format = file.items.iter().find_map(|item| match item {
            Item::Const(one) if one.ident == "FORMAT" => match &*one.expr {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Int(number) => Some(number.base10_digits().to_owned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
        for item in &file.items {
            let (name, attributes) = match item {
                Item::Struct(one) => (&one.ident, &one.attrs),
                Item::Enum(one) => (&one.ident, &one.attrs),
                _ => continue,
            };
            if !is_written(attributes) {
                continue;
            }
            let shape = Shape {
                name: name.to_string(),
                package: package.to_owned(),
                module: module.to_owned(),
                imports: Rc::clone(&imports),
                about: about(attributes),
                kind: kind(item).with_context(|| format!("{path}: {name}"))?,
                format: format.clone(),
            };
            self.0.entry(shape.name.clone()).or_default().push(shape);
        }
        Ok(())
    }

    /// A type by its name, `CounterRecord`, or `rtscope-model::CounterRecord` where several have it; of several, one of the
    /// package that it is used in.
    pub(super) fn find(&self, name: &str, user: Option<&Shape>) -> Result<&Shape> {
        let (package, bare) = match name.split_once("::") {
            Some((package, bare)) => (Some(package), bare),
            None => (None, name),
        };
        let all = self.0.get(bare).map(Vec::as_slice).unwrap_or_default();
        if let [one] = all {
            return Ok(one);
        }
        let module = user.map(|user| user.imports.get(bare).unwrap_or(&user.module));
        let package = package.or(user.map(|user| user.package.as_str()));
        let of_module = |one: &&Shape| Some(&one.module) == module;
        let of_package = |one: &&Shape| Some(one.package.as_str()) == package;
        let only = |some: &dyn Fn(&&Shape) -> bool| {
            let mut found = all.iter().filter(some);
            found.next().filter(|_| found.next().is_none())
        };
        let both = |one: &&Shape| of_module(one) && of_package(one);
        only(&both).or_else(|| only(&of_package)).or_else(|| only(&of_module)).with_context(|| {
            format!(
                "{} types that are written as JSON are called {name}: give one a form in formats.toml",
                all.len()
            )
        })
    }
}

/// Names that a `use` brings, with the last module of each.
fn import(tree: &UseTree, module: &str, found: &mut BTreeMap<String, String>) {
    match tree {
        UseTree::Path(path) => import(&path.tree, &path.ident.to_string(), found),
        UseTree::Group(group) => group.items.iter().for_each(|one| import(one, module, found)),
        UseTree::Name(name) => {
            found.insert(name.ident.to_string(), module.to_owned());
        }
        UseTree::Rename(_) | UseTree::Glob(_) => {}
    }
}

fn is_written(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("derive")).any(|one| {
        let paths = one.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        paths.is_ok_and(|paths| {
            paths
                .iter()
                .any(|path| path.segments.last().is_some_and(|end| end.ident == "Serialize"))
        })
    })
}

fn kind(item: &Item) -> Result<Kind> {
    match item {
        Item::Struct(one) => {
            let told = Told::of(&one.attrs)?;
            if let Some(other) = told.value("into") {
                return Ok(Kind::Other(Box::new(syn::parse_str(other)?)));
            }
            match &one.fields {
                Fields::Named(_) => {
                    let fields = fields(&one.fields, told.value("rename_all"))?;
                    match (told.has("transparent"), fields.as_slice()) {
                        (true, [only]) => Ok(Kind::Other(Box::new(only.kind.clone()))),
                        _ => Ok(Kind::Fields(fields)),
                    }
                }
                Fields::Unnamed(all) => {
                    let kinds: Vec<&Type> = all.unnamed.iter().map(|field| &field.ty).collect();
                    match kinds.as_slice() {
                        [only] => Ok(Kind::Other(Box::new((*only).clone()))),
                        several => Ok(Kind::Other(Box::new(syn::parse_quote!((#(#several),*))))),
                    }
                }
                Fields::Unit => bail!("nothing is written of it"),
            }
        }
        Item::Enum(one) => {
            let told = Told::of(&one.attrs)?;
            if let Some(other) = told.value("into") {
                return Ok(Kind::Other(Box::new(syn::parse_str(other)?)));
            }
            let mut variants = Vec::new();
            for variant in &one.variants {
                let own = Told::of(&variant.attrs)?;
                if own.has("skip") {
                    continue;
                }
                let rule = told.value("rename_all");
                let content = content(&variant.fields, told.value("rename_all_fields"))?;
                variants.push(Variant {
                    key: own.key(&variant.ident.to_string(), rule)?,
                    about: about(&variant.attrs),
                    content,
                });
            }
            let tag = match told.has("untagged") {
                true => Some(String::new()),
                false => told.value("tag").map(str::to_owned),
            };
            Ok(Kind::Variants(variants, tag))
        }
        _ => bail!("this is no type"),
    }
}

fn content(of: &Fields, rule: Option<&str>) -> Result<Content> {
    let kinds = || of.iter().map(|field| field.ty.clone());
    Ok(match of {
        Fields::Unit => Content::Nothing,
        Fields::Named(_) => Content::Fields(fields(of, rule)?),
        Fields::Unnamed(all) if all.unnamed.len() == 1 => {
            Content::One(Box::new(kinds().next().context("one field")?))
        }
        Fields::Unnamed(_) => Content::Several(kinds().collect()),
    })
}

fn fields(of: &Fields, rule: Option<&str>) -> Result<Vec<Field>> {
    let mut found = Vec::new();
    for field in of {
        let told = Told::of(&field.attrs)?;
        if told.has("skip") || told.has("skip_serializing") {
            continue;
        }
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        found.push(Field {
            key: told.key(&name, rule)?,
            about: about(&field.attrs),
            kind: field.ty.clone(),
            absent: told.absent(),
            is_flat: told.has("flatten"),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_type() {
        let renamed = |name, rule| renamed(name, rule).expect("a known rule");
        assert_eq!(renamed("TaskClockNs", Some("snake_case")), "task_clock_ns");
        assert_eq!(renamed("RaspberryPi", Some("kebab-case")), "raspberry-pi");
        assert_eq!(renamed("wall_clock", Some("kebab-case")), "wall-clock");
        assert_eq!(renamed("Tcp", Some("lowercase")), "tcp");
        assert_eq!(renamed("span_ns", None), "span_ns");
        assert!(super::renamed("A", Some("SCREAMING")).is_err());
    }

    #[test]
    fn what_serde_is_told_is_heard() {
        let mut shapes = Shapes::default();
        let text = "pub const FORMAT: u32 = 3;\n\
            /// What was seen.\n///\n/// More.\n#[derive(Debug, Serialize)]\npub struct Seen {\n\
            /// The [`Other`].\n#[serde(rename = \"of\")] a: u64,\n\
            #[serde(skip)] b: u64,\n\
            #[serde(default, skip_serializing_if = \"Option::is_none\")] c: Option<u64>,\n\
            #[serde(flatten)] d: Other }\n\
            #[derive(Serialize)] #[serde(into = \"(u64, u64)\")] struct Other { x: u64, y: u64 }\n\
            struct Untold { z: u64 }";
        shapes.add("crates/one/src/a.rs", text).expect("Rust");
        let seen = shapes.find("Seen", None).expect("known");
        assert_eq!((seen.about.as_str(), seen.format.as_deref()), ("What was seen.", Some("3")));
        let Kind::Fields(fields) = &seen.kind else { panic!("it has fields") };
        let keys: Vec<(&str, Option<&str>, bool)> =
            fields.iter().map(|one| (one.key.as_str(), one.absent, one.is_flat)).collect();
        assert_eq!(
            keys,
            [("of", None, false), ("c", Some("absent if there is none"), false), ("d", None, true)]
        );
        assert_eq!(fields[0].about, "The `Other`.");
        let Kind::Other(kind) = &shapes.find("Other", None).expect("known").kind else {
            panic!("it is written as another type")
        };
        assert!(matches!(**kind, Type::Tuple(_)));
        assert!(shapes.find("Untold", None).is_err(), "it is never written");
    }

    #[test]
    fn of_two_types_in_one_package_the_imported_one_counts() {
        let mut shapes = Shapes::default();
        for (path, text) in [
            ("crates/one/src/a.rs", "#[derive(Serialize)] struct Same(u8);"),
            ("crates/one/src/b/mod.rs", "#[derive(Serialize)] struct Same(u16);"),
            (
                "crates/one/src/c.rs",
                "use crate::{a::Other, b::{Same}};\n#[derive(Serialize)] struct User { a: Same }",
            ),
        ] {
            shapes.add(path, text).expect("Rust");
        }
        let user = shapes.find("User", None).expect("known");
        assert_eq!(shapes.find("Same", Some(user)).expect("imported").module, "b");
        assert!(shapes.find("Same", None).is_err());
    }

    #[test]
    fn of_two_types_with_one_name_that_of_the_package_counts() {
        let mut shapes = Shapes::default();
        for (path, kind) in [("crates/one/src/a.rs", "u8"), ("crates/two/src/a.rs", "String")] {
            let text = format!(
                "#[derive(Serialize)] struct Same(pub {kind});\n#[derive(Serialize)] struct User{kind} {{ same: Same }}"
            );
            shapes.add(path, &text).expect("Rust");
        }
        assert!(shapes.find("Same", None).is_err());
        let user = shapes.find("UserString", None).expect("known");
        assert_eq!(shapes.find("Same", Some(user)).expect("found").package, "two");
        assert_eq!(shapes.find("one::Same", Some(user)).expect("found").package, "one");
    }
}
