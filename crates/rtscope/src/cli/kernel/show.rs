//! `rtscope kernel show`: what a kernel is made of, or which package of Debian's it is.

use std::process::ExitCode;

use rtscope_lab::{
    prebuilt::{Description, Prebuilt},
    spec::{self, Spec},
};

use super::{KernelArgs, print, print_json};
use crate::{exit, output::shown};

pub(super) fn show(asked: &KernelArgs) -> anyhow::Result<ExitCode> {
    if let Some(prebuilt) = Prebuilt::find(&asked.name) {
        let found = prebuilt.describe(&asked.kept.cache());
        if asked.kept.json {
            return print_json(&serde_json::to_value(&found)?);
        }
        print(&prebuilt_in_words(&found))?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let spec = spec::find(&asked.name)?;
    if asked.kept.json {
        return print_json(&serde_json::to_value(&spec)?);
    }
    print(&in_words(&spec))?;
    Ok(ExitCode::from(exit::PASS))
}

fn in_words(spec: &Spec) -> String {
    let source = match &spec.source {
        spec::SpecSource::Debian { package, version, .. } => {
            format!(
                "Debian's package {package}{}",
                version.as_ref().map_or(String::new(), |v| format!(" {v}"))
            )
        }
        spec::SpecSource::Archive { from, .. } => from.clone(),
        spec::SpecSource::Git { from, reference, .. } => format!("{from}, {reference}"),
        spec::SpecSource::Vendor { vendor, reference } => {
            format!("the vendor's tree ({vendor}), branch {reference}; give it with --from")
        }
        spec::SpecSource::Folder { path } => shown(path),
    };
    let patches = match spec.patches.as_slice() {
        [] => "none".to_owned(),
        patches => format!("{}", patches.len()),
    };
    let base = match &spec.base {
        spec::Base::Target(name) => name.clone(),
        spec::Base::File(path) => shown(path),
    };
    let fragments: Vec<&str> = spec.fragments.iter().map(|f| f.name.as_str()).collect();
    let compiler = spec.cross_here().map_or("gcc".to_owned(), |prefix| format!("{prefix}gcc"));
    format!(
        "{}: {}\n{}\n\nsource         {source}\npatches        {patches}\nconfiguration  {base} + {}\n\
         architecture   {}, compiler {compiler}\nmakes          {}{}{}\ntried          {}\n",
        spec.name,
        spec.title,
        spec.about.trim_end(),
        fragments.join(" + "),
        spec.arch,
        spec.image,
        if spec.modules { ", modules" } else { "" },
        if spec.dtbs { ", device trees" } else { "" },
        if spec.tried.is_empty() { "no information" } else { &spec.tried },
    )
}

fn prebuilt_in_words(found: &Description) -> String {
    let Description { name, title, package, arch, .. } = found;
    let suite =
        found.suite.as_ref().map_or(String::new(), |suite| format!(", from the suite {suite}"));
    let newest = match &found.newest {
        Some(version) => format!("{version}, according to this machine's package lists"),
        None => "not known here; it is looked up when the kernel is fetched".to_owned(),
    };
    let kept = match (&found.kept, &found.release) {
        (Some((image, version)), Some(release)) => format!("{release} ({image} {version})"),
        _ => "none; the lab fetches it when it is first used".to_owned(),
    };
    format!(
        "{name}: {title}\nDebian built it, so rtscope compiles nothing. `rtscope lab run --kernel {name}` boots \
         it in an emulator.\n\nsource         Debian's package {package}{suite}, fetched by apt\n\
         architecture   {arch}\nnewest         {newest}\nin the cache   {kept}\n"
    )
}
