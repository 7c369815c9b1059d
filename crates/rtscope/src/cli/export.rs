//! `rtscope export`: a record in the forms that other programs read.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::builder::PossibleValue;
use rtscope_analyse::export::{Exported, FORMATS, Format};
use rtscope_model::verdict::Requirement;

use super::{Refused, compare::split, print_bytes};
use crate::{
    exit,
    record::{self, Additions},
};

/// Write a record for other programs: CSV, JUnit, OpenMetrics...
///
/// The formats are CSV, JSON, those of cyclictest and OSADL, JUnit, KTAP, LAVA, OpenMetrics and more; --format lists
/// them.
///
/// FOLDER@CELL is one cell of a record; the formats of cyclictest and OSADL and the percentile table
/// can hold only one cell. A single format goes to standard output or to --out, several formats go to
/// files in the folder --out. rtscope writes a file under another name and renames it, so that no
/// reader sees half of it. The exit code is 0, whatever the verdict. `rtscope plot` draws SVG and PNG.
///
/// Examples:
///   rtscope export run --format junit --out results.xml
///   rtscope export run -f openmetrics --out /var/lib/node_exporter/rtscope.prom
///   rtscope export run@rest --format cyclictest | grep 'Max Latencies'
///   rtscope export run --format csv,csv-histogram,markdown --out results
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The record's folder, or FOLDER@CELL
    run: String,
    /// Format to write; several separated by commas
    #[arg(short, long, required = true, value_delimiter = ',', value_parser = Names)]
    format: Vec<&'static Format>,
    /// Write to this file, or with several formats to this folder; - is standard output, as is the default
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Requirement besides those of the plan; repeatable
    #[arg(short, long, value_name = "REQUIREMENT")]
    require: Vec<Requirement>,
    /// Ignore this finding when computing the verdict; repeatable
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (folder, cell) = split(&args.run);
    let additions = Additions { require: args.require.clone(), accept: args.accept.clone() };
    // Each wake-up takes memory: only where it is asked for.
    let judged = match args.format.iter().any(|format| format.name == "csv-samples") {
        true => record::open_with_samples(&folder, &additions)?,
        false => record::open(&folder, &additions)?,
    };
    let subject =
        Exported::new(&judged.record, &judged.judgement, cell.as_deref()).map_err(Refused)?;
    let mut documents = Vec::new();
    for format in &args.format {
        let document = format.write(&subject);
        let document = document.map_err(|why| Refused(format!("{}: {why}", format.name)))?;
        documents.push((*format, document));
    }
    match (documents.as_slice(), &args.out) {
        ([(_, document)], None) => print_bytes(document)?,
        ([(_, document)], Some(file)) if file.as_os_str() == "-" => print_bytes(document)?,
        ([(_, document)], Some(file)) => write(file, document)?,
        (_, None) => {
            let text = "several formats: name a folder for their files, as with --out results";
            return Err(Refused(text.to_owned()).into());
        }
        (several, Some(folder)) => {
            record::make_folder(folder)?;
            for (format, document) in several {
                write(&folder.join(format!("{}.{}", format.name, format.ending)), document)?;
            }
        }
    }
    Ok(ExitCode::from(exit::PASS))
}

/// Writes a file whole, and says which on standard error: standard output is for documents.
fn write(path: &Path, document: &[u8]) -> anyhow::Result<()> {
    record::write(path, document)?;
    note!("{}", path.display());
    Ok(())
}

/// Reads a format's name, and lists all of them with what they are.
#[derive(Clone, Debug)]
struct Names;

impl clap::builder::TypedValueParser for Names {
    type Value = &'static Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|f| f.name));
        let name = names.parse_ref(command, argument, value)?;
        Format::named(&name)
            .map_err(|why| command.clone().error(clap::error::ErrorKind::InvalidValue, why))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(FORMATS.iter().map(|f| PossibleValue::new(f.name).help(f.what))))
    }
}
