//! Tables as Apache Arrow: `f64`, `u64` and `utf8` columns, none of them nullable.
//!
//! Two layouts of the Arrow IPC *file* format. A table of an experiment is a plain file, one record batch per run. A run
//! is one file with one row and a column per table, each a list of structs, so that all of it appears or none of it.

use std::io::{Read, Seek, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Fields, Metadata, Schema, SchemaRef};
use headwater_experiment::table::{Column, Table, Tables};

/// The names of the four tables, in the order of a run's file.
pub(super) const TABLES: [&str; 4] = ["tasks", "flows", "samples", "measures"];

/// The tables in the order of [`TABLES`].
pub(super) fn in_order(tables: &Tables) -> [&Table; 4] {
    [&tables.tasks, &tables.flows, &tables.samples, &tables.measures]
}

fn fields(table: &Table) -> Fields {
    let field = |(name, column): &(String, Column)| {
        let kind = match column {
            Column::F64(_) => DataType::Float64,
            Column::U64(_) => DataType::UInt64,
            Column::Text(_) => DataType::Utf8,
        };
        Field::new(name, kind, false)
    };
    table.columns.iter().map(field).collect()
}

fn arrays(table: &Table) -> Vec<ArrayRef> {
    let array = |(_, column): &(String, Column)| -> ArrayRef {
        match column {
            Column::F64(values) => Arc::new(Float64Array::from(values.clone())),
            Column::U64(values) => Arc::new(UInt64Array::from(values.clone())),
            Column::Text(values) => Arc::new(StringArray::from_iter_values(values)),
        }
    };
    table.columns.iter().map(array).collect()
}

/// The table that an Arrow struct holds.
fn table_of(rows: &StructArray) -> Result<Table, ArrowError> {
    let columns = rows.fields().iter().zip(rows.columns()).map(|(field, array)| {
        let column = match field.data_type() {
            DataType::Float64 => Column::F64(array.as_primitive::<Float64Type>().values().to_vec()),
            DataType::UInt64 => Column::U64(array.as_primitive::<UInt64Type>().values().to_vec()),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>().iter();
                Column::Text(texts.map(|text| text.unwrap_or_default().to_owned()).collect())
            }
            other => {
                let reason = format!("column {} has type {other}", field.name());
                return Err(ArrowError::SchemaError(reason));
            }
        };
        Ok((field.name().clone(), column))
    });
    Ok(Table { columns: columns.collect::<Result<_, _>>()? })
}

/// Writes the tables of one run: `head` can be read without the rows, `tail` stands behind them.
pub(super) fn write_run(
    out: impl Write,
    tables: &Tables,
    head: &[(&str, String)],
    tail: (&str, String),
) -> Result<(), ArrowError> {
    let lists = in_order(tables).map(|table| {
        let (fields, rows) = (fields(table), table.rows());
        let structs = StructArray::try_new_with_length(fields.clone(), arrays(table), None, rows)?;
        let item = Arc::new(Field::new("item", DataType::Struct(fields), false));
        ListArray::try_new(item, OffsetBuffer::from_lengths([rows]), Arc::new(structs), None)
    });
    let mut columns: Vec<ArrayRef> = Vec::new();
    let mut schema = Vec::new();
    for (name, list) in TABLES.iter().zip(lists) {
        let list = list?;
        schema.push(Field::new(*name, list.data_type().clone(), false));
        columns.push(Arc::new(list));
    }
    let schema = Arc::new(Schema::new_with_metadata(schema, metadata(head)));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let mut writer = FileWriter::try_new(out, &schema)?;
    writer.write(&batch)?;
    writer.write_metadata(tail.0, tail.1);
    writer.finish()
}

/// Reads the tables of one run, unless `wanted` does not like what the head says under its names.
pub(super) fn read_run(
    file: impl Read + Seek,
    wanted: impl FnOnce(&dyn Fn(&str) -> Option<String>) -> Result<(), String>,
) -> Result<Tables, ArrowError> {
    let mut reader = FileReader::try_new(file, None)?;
    let schema = reader.schema();
    wanted(&|name| schema.metadata().get(name).cloned()).map_err(ArrowError::SchemaError)?;
    let missing = |what: &str| ArrowError::SchemaError(format!("there is no {what}"));
    let row = reader.next().ok_or_else(|| missing("row"))??;
    let table = |name: &str| {
        let list = row.column_by_name(name).and_then(|column| column.as_list_opt::<i32>());
        let list = list.filter(|list| list.len() == 1).ok_or_else(|| missing(name))?;
        let rows = list.value(0);
        table_of(rows.as_struct_opt().ok_or_else(|| missing(name))?)
    };
    let [tasks, flows, samples, measures] = TABLES.map(table);
    Ok(Tables { tasks: tasks?, flows: flows?, samples: samples?, measures: measures? })
}

fn metadata(pairs: &[(&str, String)]) -> Metadata {
    pairs.iter().fold(Metadata::default(), |all, (name, value)| all.with(*name, value))
}

/// A plain Arrow file that is written one table after the other.
pub(super) struct TableFile<W: Write> {
    writer: FileWriter<W>,
    schema: SchemaRef,
}

impl<W: Write> TableFile<W> {
    /// Begins a file whose columns are those of `first`, which is not written yet.
    pub(super) fn new(out: W, first: &Table, head: &[(&str, String)]) -> Result<Self, ArrowError> {
        let schema = Arc::new(Schema::new_with_metadata(fields(first), metadata(head)));
        Ok(TableFile { writer: FileWriter::try_new(out, &schema)?, schema })
    }

    /// Adds rows; the columns must be those of the first table.
    pub(super) fn write(&mut self, table: &Table) -> Result<(), ArrowError> {
        if table.rows() == 0 {
            return Ok(());
        }
        // Checks number, kind and length of the columns, but not their names.
        let named = |(field, (name, _)): (&Arc<Field>, &(String, Column))| field.name() == name;
        if !self.schema.fields().iter().zip(&table.columns).all(named) {
            return Err(ArrowError::SchemaError("columns have other names or another order".to_owned()));
        }
        self.writer.write(&RecordBatch::try_new(self.schema.clone(), arrays(table))?)
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Result<(), ArrowError> {
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use headwater_experiment::table::{Cell, MeasureRow, SampleRow};

    use super::*;

    fn tables() -> Tables {
        let mut tables = Tables::default();
        for step in 0..3 {
            let (entity, quantity) = ("f1".to_owned(), "window".to_owned());
            let value = if step == 1 { f64::NAN } else { 30.5 };
            SampleRow { t_s: f64::from(step), entity, quantity, value }.push(&mut tables.samples);
        }
        MeasureRow { name: "drops \u{3b8}".into(), value: -0.0 }.push(&mut tables.measures);
        tables
    }

    /// Equal to the last bit: NaN equals itself and 0 is not -0.
    fn shown(tables: &Tables) -> String {
        format!("{tables:?}")
    }

    #[test]
    fn a_run_survives_being_written_and_read_to_the_last_bit() {
        let mut bytes = Vec::new();
        write_run(&mut bytes, &tables(), &[("key", "k".to_owned())], ("sum", "s".to_owned())).unwrap();
        let mut head = None;
        let look = |get: &dyn Fn(&str) -> Option<String>| {
            head = get("key");
            Ok(())
        };
        let read = read_run(Cursor::new(&bytes), look).unwrap();
        assert_eq!(shown(&read), shown(&tables()));
        assert_eq!(head.as_deref(), Some("k"));
        let footer = FileReader::try_new(Cursor::new(&bytes), None).unwrap();
        assert_eq!(footer.custom_metadata().get("sum").map(String::as_str), Some("s"));
    }

    #[test]
    fn a_run_that_is_not_wanted_is_not_read() {
        let mut bytes = Vec::new();
        write_run(&mut bytes, &tables(), &[], ("sum", String::new())).unwrap();
        let read = read_run(Cursor::new(&bytes), |_| Err("made by other code".to_owned()));
        assert!(read.err().unwrap().to_string().contains("made by other code"));
    }

    #[test]
    fn a_table_is_a_plain_arrow_file_with_one_batch_per_run() {
        let mut samples = tables().samples;
        samples.add_constant("seed", &Cell::U64(7)).unwrap();
        let mut bytes = Vec::new();
        let mut file = TableFile::new(&mut bytes, &samples, &[("engine", "packet".to_owned())]).unwrap();
        file.write(&samples).unwrap();
        file.write(&samples).unwrap();
        file.finish().unwrap();
        let reader = FileReader::try_new(Cursor::new(&bytes), None).unwrap();
        let kinds: Vec<_> = reader.schema().fields().iter().map(|f| f.data_type().clone()).collect();
        let text = DataType::Utf8;
        assert_eq!(kinds, [DataType::Float64, text.clone(), text, DataType::Float64, DataType::UInt64]);
        assert_eq!(reader.schema().metadata().get("engine").map(String::as_str), Some("packet"));
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [3, 3]);
        let seeds = batches[1].column_by_name("seed").unwrap().as_primitive::<UInt64Type>();
        assert_eq!(seeds.value(2), 7);
        let times = batches[1].column_by_name("t_s").unwrap().as_primitive::<Float64Type>();
        assert_eq!(times.values(), &[0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_table_with_other_columns_is_refused() {
        let measures = tables().measures;
        let mut file = TableFile::new(Vec::new(), &measures, &[]).unwrap();
        let mut other = measures.clone();
        other.columns[0].0 = "title".into();
        assert!(file.write(&other).is_err());
        assert!(file.write(&tables().samples).is_err());
        file.write(&measures).unwrap();
    }
}
