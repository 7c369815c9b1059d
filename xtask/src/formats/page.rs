//! The page's text.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
};

use anyhow::{Context, Result, bail};
use syn::{GenericArgument, PathArguments, Type};

use super::{
    List,
    shapes::{Content, Field, Kind, Shape, Shapes, Variant},
};
use crate::tidy::anchor;

/// The whole page.
pub(super) fn write(list: &List, shapes: &Shapes) -> Result<String> {
    let mut page = Page {
        list,
        shapes,
        text: String::new(),
        roots: BTreeMap::new(),
        told: BTreeSet::new(),
        open: VecDeque::new(),
    };
    let about = list.about.trim();
    page.text = format!(
        "<!-- Written by `cargo xtask formats` from xtask/formats.toml and the sources of the types. -->\n\
         # JSON documents\n\n{about}\n"
    );
    for document in &list.document {
        write!(page.text, "\n## {}\n\n{}\n", document.name, document.about.trim())?;
        let root = document.root.as_deref().map(|root| shapes.find(root, None)).transpose()?;
        let mut rows = Vec::new();
        if let Some(root) = root {
            page.roots.insert(root.name.clone(), anchor(&document.name));
            rows = page.rows_of(root).with_context(|| document.name.clone())?;
        }
        for [key, kind, about] in &document.keys {
            let kind = match kind.strip_prefix('=') {
                Some(kind) => page.words(&syn::parse_str(kind)?, None)?,
                None => kind.clone(),
            };
            rows.push([format!("`{key}`"), kind, about.clone()]);
        }
        page.table(&rows);
        while let Some(shape) = page.open.pop_front() {
            page.section(shape).with_context(|| format!("{}: {}", document.name, shape.name))?;
        }
    }
    Ok(page.text)
}

struct Page<'a> {
    list: &'a List,
    shapes: &'a Shapes,
    text: String,
    /// Types of whole documents, with the anchors of these.
    roots: BTreeMap<String, String>,
    /// Types that have their section, or will get it.
    told: BTreeSet<String>,
    /// Types that are still to get one.
    open: VecDeque<&'a Shape>,
}

type Row = [String; 3];

impl<'a> Page<'a> {
    fn table(&mut self, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        self.text += "\n| key | type | content |\n|---|---|---|\n";
        for [key, kind, about] in rows {
            let cell = |text: &str| text.replace('|', "\\|");
            self.text += &format!("| {} | {} | {} |\n", cell(key), cell(kind), cell(about));
        }
    }

    /// A type that others are made of.
    fn section(&mut self, shape: &'a Shape) -> Result<()> {
        write!(self.text, "\n### {}\n", shape.name)?;
        if !shape.about.is_empty() {
            write!(self.text, "\n{}\n", shape.about)?;
        }
        match &shape.kind {
            Kind::Variants(variants, tag) => self.variants(shape, variants, tag.as_deref())?,
            _ => {
                let rows = self.rows_of(shape)?;
                self.table(&rows);
            }
        }
        Ok(())
    }

    fn rows_of(&mut self, shape: &'a Shape) -> Result<Vec<Row>> {
        match &shape.kind {
            Kind::Fields(fields) => self.rows(shape, fields),
            Kind::Variants(variants, tag) => {
                // Its keys stand among those of what it is in.
                let mut rows = Vec::new();
                if let Some(tag) = tag.as_deref().filter(|tag| !tag.is_empty()) {
                    let words: Vec<String> =
                        variants.iter().map(|one| format!("`\"{}\"`", one.key)).collect();
                    rows.push([format!("`{tag}`"), "string".to_owned(), words.join(", ")]);
                }
                for variant in variants {
                    if let Content::Fields(fields) = &variant.content {
                        rows.extend(self.rows(shape, fields)?.into_iter().map(
                            |[key, kind, about]| {
                                [key, kind, format!("{about} (of `\"{}\"`)", variant.key)]
                            },
                        ));
                    }
                }
                Ok(rows)
            }
            Kind::Other(_) => bail!("{} has no keys", shape.name),
        }
    }

    fn rows(&mut self, shape: &'a Shape, fields: &'a [Field]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for field in fields {
            if field.is_flat {
                let inner = name_of(&field.kind).context("what is flattened has a name")?;
                let inner = self.shapes.find(&inner, Some(shape))?;
                rows.extend(self.rows_of(inner)?);
                continue;
            }
            let mut kind = self.words(&field.kind, Some(shape))?;
            let mut about = match (field.about.as_str(), &shape.format) {
                ("`FORMAT`.", Some(number)) => format!("version of this format: {number}"),
                (text, _) => text.to_owned(),
            };
            if let Some(absent) = field.absent {
                if let Some(bare) = kind.strip_suffix(" or null") {
                    kind = bare.to_owned();
                }
                let end = if about.is_empty() { "" } else { " " };
                about += &format!("{end}({absent})");
            }
            rows.push([format!("`{}`", field.key), kind, about]);
        }
        Ok(rows)
    }

    /// What one of several can be.
    fn variants(
        &mut self,
        shape: &'a Shape,
        variants: &'a [Variant],
        tag: Option<&str>,
    ) -> Result<()> {
        let are_words = variants.iter().all(|one| matches!(one.content, Content::Nothing));
        let mut lines = Vec::new();
        for variant in variants {
            let key = &variant.key;
            let form = match (&variant.content, tag) {
                (Content::Nothing, None) => format!("`\"{key}\"`"),
                (Content::Nothing, Some("")) => "null".to_owned(),
                (Content::Nothing, Some(tag)) => format!("`{{\"{tag}\": \"{key}\"}}`"),
                (Content::One(kind), Some("")) => self.words(kind, Some(shape))?,
                (Content::One(kind), None) => {
                    format!("`{{\"{key}\": ...}}` with {}", self.words(kind, Some(shape))?)
                }
                (Content::One(kind), Some(tag)) => {
                    format!(
                        "`{{\"{tag}\": \"{key}\", ...}}` with the keys of {}",
                        self.words(kind, Some(shape))?
                    )
                }
                (Content::Several(kinds), _) => {
                    let kinds = kinds.iter().map(|kind| self.words(kind, Some(shape)));
                    let kinds: Vec<String> = kinds.collect::<Result<_>>()?;
                    format!("`{{\"{key}\": [...]}}` with {}", kinds.join(", "))
                }
                (Content::Fields(fields), tag) => {
                    let rows = self.rows(shape, fields)?;
                    let keys = rows.iter().map(|[key, kind, about]| match about.as_str() {
                        "" => format!("{key} ({kind})"),
                        about => format!("{key} ({kind}): {}", about.trim_end_matches('.')),
                    });
                    let keys = keys.collect::<Vec<_>>().join("; ");
                    match tag {
                        None => format!("`{{\"{key}\": {{...}}}}` with {keys}"),
                        Some("") => format!("an object with {keys}"),
                        Some(tag) => format!("`{{\"{tag}\": \"{key}\", ...}}` with {keys}"),
                    }
                }
            };
            lines.push((form, variant.about.clone()));
        }
        self.text += if are_words { "\nOne of the words\n\n" } else { "\nOne of\n\n" };
        for (form, about) in lines {
            let about = if about.is_empty() { about } else { format!(": {about}") };
            writeln!(self.text, "- {form}{about}")?;
        }
        Ok(())
    }

    /// A type in words.
    fn words(&mut self, kind: &Type, user: Option<&'a Shape>) -> Result<String> {
        Ok(match kind {
            Type::Reference(one) => self.words(&one.elem, user)?,
            Type::Slice(one) => format!("list of {}", self.words(&one.elem, user)?),
            Type::Array(one) => format!("list of {}", self.words(&one.elem, user)?),
            Type::Tuple(several) => {
                let kinds = several.elems.iter().map(|kind| self.words(kind, user));
                format!("list `[...]` of {}", kinds.collect::<Result<Vec<_>>>()?.join(", "))
            }
            Type::Path(path) => {
                let last = path.path.segments.last().context("a path has a name")?;
                let inner: Vec<&Type> = match &last.arguments {
                    PathArguments::AngleBracketed(all) => {
                        let types = all.args.iter().filter_map(|one| match one {
                            GenericArgument::Type(kind) => Some(kind),
                            _ => None,
                        });
                        types.collect()
                    }
                    _ => Vec::new(),
                };
                self.named(&last.ident.to_string(), &inner, user)?
            }
            _ => bail!("no words for a type of {}", user.map_or("a document", |user| &user.name)),
        })
    }

    fn named(&mut self, name: &str, inner: &[&Type], user: Option<&'a Shape>) -> Result<String> {
        if let Some(form) = self.list.forms.get(name) {
            return Ok(form.clone());
        }
        Ok(match (name, inner) {
            ("u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "u128", _) => {
                "integer".to_owned()
            }
            ("f32" | "f64", _) => "number".to_owned(),
            ("bool", _) => "boolean".to_owned(),
            ("String" | "str" | "PathBuf" | "Path" | "char", _) => "string".to_owned(),
            ("Value", _) => "any".to_owned(),
            ("Cow", [.., kind]) | ("Box" | "Rc" | "Arc", [kind]) => self.words(kind, user)?,
            ("Option", [kind]) => format!("{} or null", self.words(kind, user)?),
            ("Vec" | "VecDeque" | "BTreeSet" | "HashSet", [kind]) => {
                format!("list of {}", self.words(kind, user)?)
            }
            ("BTreeMap" | "HashMap" | "Map", [key, kind]) => {
                format!("object: {} → {}", self.words(key, user)?, self.words(kind, user)?)
            }
            _ => {
                let shape = self.shapes.find(name, user)?;
                if let Kind::Other(kind) = &shape.kind {
                    return self.words(kind, Some(shape));
                }
                if let Some(anchor) = self.roots.get(&shape.name) {
                    return Ok(format!("[{name}](#{anchor})"));
                }
                if self.told.insert(shape.name.clone()) {
                    self.open.push_back(shape);
                }
                format!("[{name}](#{})", anchor(name))
            }
        })
    }
}

/// The name of a type without what it is made of; of an `Option`, that of what is in it.
fn name_of(kind: &Type) -> Option<String> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        PathArguments::AngleBracketed(all) if last.ident == "Option" => match all.args.first()? {
            GenericArgument::Type(kind) => name_of(kind),
            _ => None,
        },
        _ => Some(last.ident.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(types: &str, root: &str) -> String {
        let mut shapes = Shapes::default();
        shapes.add("crates/one/src/a.rs", types).expect("Rust");
        let list: List = toml::from_str(&format!(
            "about = 'About.'\n[forms]\nNanos = 'string such as `1ms`'\n\
             [[document]]\nname = '`a.json`'\nabout = 'Of a test.'\ntype = '{root}'\nkeys = [['own', 'any', 'added']]"
        ))
        .expect("a list");
        write(&list, &shapes).expect("a page")
    }

    #[test]
    fn keys_types_and_what_is_said_of_them_become_tables() {
        let page = written(
            "pub const FORMAT: u32 = 2;\n#[derive(Serialize)] pub struct Root {\n/// [`FORMAT`].\nformat: u32,\n\
             /// How long.\nlook: Option<Nanos>, all: Vec<Part>, by_cpu: BTreeMap<u32, f64>,\n\
             #[serde(skip_serializing_if = \"Option::is_none\")] word: Option<Word> }\n\
             /// A part.\n#[derive(Serialize)] struct Part { word: Word, pair: (u64, String) }\n\
             #[derive(Serialize)] #[serde(rename_all = \"kebab-case\")] enum Word {\n/// None.\nNotAtAll, Some }",
            "Root",
        );
        for line in [
            "| `format` | integer | version of this format: 2 |",
            "| `look` | string such as `1ms` or null | How long. |",
            "| `all` | list of [Part](#part) |  |",
            "| `by_cpu` | object: integer → number |  |",
            "| `word` | [Word](#word) | (absent if there is none) |",
            "| `own` | any | added |",
            "### Part",
            "| `pair` | list `[...]` of integer, string |  |",
            "- `\"not-at-all\"`: None.",
            "- `\"some\"`",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
        }
        assert_eq!(page.matches("### Word").count(), 1);
    }

    #[test]
    fn variants_with_content_are_told_by_their_form() {
        let page = written(
            "#[derive(Serialize)] struct Root { a: Tagged, b: Plain }\n\
             #[derive(Serialize)] #[serde(tag = \"what\", rename_all = \"lowercase\")] enum Tagged { Begin { at_ns: u64 }, End }\n\
             #[derive(Serialize)] enum Plain { One(u64), Two(u64, String) }",
            "Root",
        );
        for line in [
            "- `{\"what\": \"begin\", ...}` with `at_ns` (integer)",
            "- `{\"what\": \"end\"}`",
            "- `{\"One\": ...}` with integer",
            "- `{\"Two\": [...]}` with integer, string",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
        }
    }

    #[test]
    fn a_type_that_is_never_written_is_a_mistake() {
        let mut shapes = Shapes::default();
        shapes
            .add("crates/one/src/a.rs", "#[derive(Serialize)] struct Root { a: Gone }")
            .expect("Rust");
        let list: List = toml::from_str(
            "about = ''\n[forms]\n[[document]]\nname = 'a'\nabout = ''\ntype = 'Root'",
        )
        .expect("a list");
        assert!(format!("{:#}", write(&list, &shapes).expect_err("unknown")).contains("Gone"));
    }
}
