//! A Parquet file with a row for each bucket that holds a latency, by cell and thread: the table of
//! `csv-histogram` with types. Behind the cargo feature `parquet`.
//!
//! `to_ns` is null for a bucket without an end. Latencies that another tool counted and gave no bucket
//! to are a row from where they begin to the maximum.

use std::sync::Arc;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};

use super::{Exported, Format};

pub(super) const FORMAT: Format = Format {
    name: "parquet",
    what: "Parquet: a row for each bucket that holds a latency, by cell and thread",
    ending: "parquet",
    write: |subject| file(subject).map_err(|e| e.to_string()),
};

const SCHEMA: &str = "message histogram {
    REQUIRED BYTE_ARRAY cell (UTF8);
    REQUIRED BYTE_ARRAY thread (UTF8);
    OPTIONAL INT32 cpu;
    REQUIRED INT64 from_ns;
    OPTIONAL INT64 to_ns;
    REQUIRED INT64 count;
}";

/// The table, column by column.
#[derive(Debug, Default)]
struct Columns {
    cell: Vec<ByteArray>,
    thread: Vec<ByteArray>,
    cpu: Vec<Option<i32>>,
    from_ns: Vec<i64>,
    to_ns: Vec<Option<i64>>,
    count: Vec<i64>,
}

/// Parquet's integers are signed; a latency of 292 years is none.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Columns {
    fn new(subject: &Exported<'_>) -> Columns {
        let mut columns = Columns::default();
        for cell in &subject.judgement.cells {
            for row in &cell.threads {
                let (layout, unplaced) = (row.histogram.layout(), row.histogram.unplaced());
                let mut push = |from_ns: u64, to_ns: Option<u64>, count: u64| {
                    columns.cell.push(cell.name.as_str().into());
                    columns.thread.push(row.label.as_str().into());
                    columns.cpu.push(row.cpu.and_then(|cpu| i32::try_from(cpu).ok()));
                    columns.from_ns.push(signed(from_ns));
                    columns.to_ns.push(to_ns.map(signed));
                    columns.count.push(signed(count));
                };
                for (index, count) in row.histogram.bins() {
                    let to_ns = Some(layout.upper_ns(index)).filter(|ns| *ns < u64::MAX);
                    push(layout.lower_ns(index), to_ns, count);
                }
                if !unplaced.is_empty() {
                    push(unplaced.from_ns, row.histogram.max_ns(), unplaced.count);
                }
            }
        }
        columns
    }
}

fn file(subject: &Exported<'_>) -> Result<Vec<u8>, ParquetError> {
    let columns = Columns::new(subject);
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let (version, _) = subject.started();
    let properties = WriterProperties::builder().set_created_by(format!("rtscope {version}"));
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    required::<ByteArrayType>(&mut group, &columns.cell)?;
    required::<ByteArrayType>(&mut group, &columns.thread)?;
    optional::<Int32Type>(&mut group, &columns.cpu)?;
    required::<Int64Type>(&mut group, &columns.from_ns)?;
    optional::<Int64Type>(&mut group, &columns.to_ns)?;
    required::<Int64Type>(&mut group, &columns.count)?;
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// Writes the next column, of which every value is known.
fn required<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    column::<T>(group, values, None)
}

/// Writes the next column, of which some values are not known.
fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[Option<T::T>],
) -> Result<(), ParquetError> {
    let known: Vec<T::T> = values.iter().flatten().cloned().collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    column::<T>(group, &known, Some(&levels))
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let no_column = || ParquetError::General("the schema has no such column".to_owned());
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::Field,
    };

    use super::*;
    use crate::{judge, test_support::Run};

    const PLAN: &str = "name = \"p\"\n[[phase]]\nname = \"rest\"\nduration = \"2s\"";

    #[test]
    fn the_library_reads_every_bucket_back() {
        let mut late = vec![5_000u64; 1_000];
        late[77] = 12_003_004;
        let record = Run::new(PLAN, 2).cell(0, &[&[4_000, 4_100, 7_000], &late]).end().record();
        let subject = Exported::new(&record, &judge(&record, &[]), None).expect("a subject");
        let bytes = bytes::Bytes::from(FORMAT.write(&subject).expect("written"));
        let reader = SerializedFileReader::new(bytes).expect("a file");
        let rows = reader.get_row_iter(None).expect("rows");
        let rows: Vec<Vec<Field>> = rows
            .map(|row| {
                row.expect("a row").get_column_iter().map(|(_, field)| field.clone()).collect()
            })
            .collect();
        let row = |thread: &str, cpu: i32, from_ns: i64, to_ns: i64, count: i64| {
            let text = |text: &str| Field::Str(text.to_owned());
            let numbers = [from_ns, to_ns, count].map(Field::Long);
            [vec![text("rest"), text(thread), Field::Int(cpu)], numbers.to_vec()].concat()
        };
        let expected = [
            row("CPU 0", 0, 4_000, 4_999, 2),
            row("CPU 0", 0, 7_000, 7_999, 1),
            row("CPU 1", 1, 5_000, 5_999, 999),
            row("CPU 1", 1, 11_776_000, 12_031_999, 1),
        ];
        assert_eq!(rows, expected);
    }
}
