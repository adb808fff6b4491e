//! Results as columns: what every engine writes and every claim reads.
//!
//! A run gives four [`Tables`]: tasks, flows, time series and scalars. The rows are those of [`TaskRow`], [`FlowRow`],
//! [`SampleRow`] and [`MeasureRow`], so that all engines write the same columns under the same names. When the runs of
//! an experiment are put together, coordinate columns (`scheme`, `seed`, one per axis) say which run a row is of. No
//! files here: who stores a table chooses the format.

use thiserror::Error;

mod rows;

pub use rows::{FlowRow, MeasureRow, SampleRow, TaskRow};

/// One column: values of one kind, a row each.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers; NaN where there is none.
    F64(Vec<f64>),
    /// Counts and indices.
    U64(Vec<u64>),
    /// Names.
    Text(Vec<String>),
}

/// One value, for a column that is the same in every row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number.
    F64(f64),
    /// A count or an index.
    U64(u64),
    /// A name.
    Text(String),
}

/// Columns of equal length, each with a name; no name twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// In the order in which they are shown.
    pub columns: Vec<(String, Column)>,
}

/// Everything that one run, or all runs of an experiment, recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// A row per task: [`TaskRow`].
    pub tasks: Table,
    /// A row per flow: [`FlowRow`].
    pub flows: Table,
    /// Time series: [`SampleRow`].
    pub samples: Table,
    /// Scalars of a run: [`MeasureRow`].
    pub measures: Table,
}

/// Which of the four tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// [`Tables::tasks`].
    Tasks,
    /// [`Tables::flows`].
    Flows,
    /// [`Tables::samples`].
    Samples,
    /// [`Tables::measures`].
    Measures,
}

/// Tables that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The other table has other columns.
    #[error("cannot join a table with columns [{theirs}] to one with columns [{ours}]")]
    Columns {
        /// Names in the table that grows.
        ours: String,
        /// Names in the table that is joined to it.
        theirs: String,
    },
    /// The same column holds another kind of value.
    #[error("column '{column}' holds {ours} here and {theirs} there")]
    Kind {
        /// Its name.
        column: String,
        /// Type in the table that grows.
        ours: &'static str,
        /// Type in the other.
        theirs: &'static str,
    },
    /// No column of that name.
    #[error("there is no column '{0}'")]
    NoColumn(String),
    /// A column of that name is there already.
    #[error("there is a column '{0}' already")]
    ColumnTwice(String),
}

impl Column {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::F64(v) => v.len(),
            Column::U64(v) => v.len(),
            Column::Text(v) => v.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value in `row` as a number, if the column holds numbers and the row exists.
    pub fn number(&self, row: usize) -> Option<f64> {
        match self {
            Column::F64(v) => v.get(row).copied(),
            Column::U64(v) => v.get(row).map(|n| *n as f64),
            Column::Text(_) => None,
        }
    }

    /// The value in `row` as text; empty if there is no such row.
    pub fn text(&self, row: usize) -> String {
        match self {
            Column::F64(v) => v.get(row).map(f64::to_string).unwrap_or_default(),
            Column::U64(v) => v.get(row).map(u64::to_string).unwrap_or_default(),
            Column::Text(v) => v.get(row).cloned().unwrap_or_default(),
        }
    }

    /// Whether `row` reads as `text`, without allocating for names.
    pub fn is(&self, row: usize, text: &str) -> bool {
        match self {
            Column::Text(v) => v.get(row).is_some_and(|t| t == text),
            _ => row < self.len() && self.text(row) == text,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Column::F64(_) => "numbers",
            Column::U64(_) => "counts",
            Column::Text(_) => "text",
        }
    }

    fn filled(cell: &Cell, rows: usize) -> Column {
        match cell {
            Cell::F64(x) => Column::F64(vec![*x; rows]),
            Cell::U64(n) => Column::U64(vec![*n; rows]),
            Cell::Text(t) => Column::Text(vec![t.clone(); rows]),
        }
    }

    fn picked(&self, rows: &[usize]) -> Column {
        match self {
            Column::F64(v) => Column::F64(rows.iter().map(|r| v[*r]).collect()),
            Column::U64(v) => Column::U64(rows.iter().map(|r| v[*r]).collect()),
            Column::Text(v) => Column::Text(rows.iter().map(|r| v[*r].clone()).collect()),
        }
    }
}

impl Table {
    /// The number of rows; that of the first column.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(n, _)| n == name).map(|(_, column)| column)
    }

    /// Puts the rows of `other` under these; columns are matched by name. An empty table without columns takes on those
    /// of `other`.
    ///
    /// # Errors
    /// [`TableError`] if names or kinds differ; nothing is changed then.
    pub fn append(&mut self, other: Table) -> Result<(), TableError> {
        if self.columns.is_empty() {
            *self = other;
            return Ok(());
        }
        if other.columns.is_empty() {
            return Ok(());
        }
        let names = |t: &Table| t.columns.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
        let differ = || TableError::Columns { ours: names(self), theirs: names(&other) };
        if self.columns.len() != other.columns.len() {
            return Err(differ());
        }
        for (name, ours) in &self.columns {
            let theirs = other.column(name).ok_or_else(differ)?;
            if ours.kind() != theirs.kind() {
                let (ours, theirs) = (ours.kind(), theirs.kind());
                return Err(TableError::Kind { column: name.clone(), ours, theirs });
            }
        }
        for (name, theirs) in other.columns {
            let ours = self.columns.iter_mut().find(|(n, _)| *n == name).map(|(_, column)| column);
            match (ours, theirs) {
                (Some(Column::F64(a)), Column::F64(b)) => a.extend(b),
                (Some(Column::U64(a)), Column::U64(b)) => a.extend(b),
                (Some(Column::Text(a)), Column::Text(b)) => a.extend(b),
                _ => unreachable!("names and kinds were compared above"),
            }
        }
        Ok(())
    }

    /// The rows for which `keep` says yes, in their order.
    pub fn filter(&self, mut keep: impl FnMut(usize) -> bool) -> Table {
        let rows: Vec<usize> = (0..self.rows()).filter(|row| keep(*row)).collect();
        Table { columns: self.columns.iter().map(|(n, c)| (n.clone(), c.picked(&rows))).collect() }
    }

    /// These columns only, in this order.
    ///
    /// # Errors
    /// [`TableError::NoColumn`].
    pub fn select(&self, names: &[&str]) -> Result<Table, TableError> {
        let columns = names.iter().map(|name| {
            let column = self.column(name).ok_or_else(|| TableError::NoColumn((*name).to_owned()))?;
            Ok(((*name).to_owned(), column.clone()))
        });
        Ok(Table { columns: columns.collect::<Result<_, _>>()? })
    }

    /// Adds a column with the same value in every row.
    ///
    /// # Errors
    /// [`TableError::ColumnTwice`].
    pub fn add_constant(&mut self, name: &str, cell: &Cell) -> Result<(), TableError> {
        if self.column(name).is_some() {
            return Err(TableError::ColumnTwice(name.to_owned()));
        }
        self.columns.push((name.to_owned(), Column::filled(cell, self.rows())));
        Ok(())
    }
}

impl Default for Tables {
    /// Four tables with their columns and no rows.
    fn default() -> Self {
        Tables {
            tasks: TaskRow::table(),
            flows: FlowRow::table(),
            samples: SampleRow::table(),
            measures: MeasureRow::table(),
        }
    }
}

impl Tables {
    /// Four tables without columns: where the tables of many runs, with their coordinates, are gathered.
    pub fn gathering() -> Self {
        Tables {
            tasks: Table::default(),
            flows: Table::default(),
            samples: Table::default(),
            measures: Table::default(),
        }
    }

    /// The table of that name.
    pub fn get(&self, which: Which) -> &Table {
        match which {
            Which::Tasks => &self.tasks,
            Which::Flows => &self.flows,
            Which::Samples => &self.samples,
            Which::Measures => &self.measures,
        }
    }

    /// Puts the rows of `other` under these, table by table.
    ///
    /// # Errors
    /// [`TableError`] as [`Table::append`].
    pub fn append(&mut self, other: Tables) -> Result<(), TableError> {
        self.tasks.append(other.tasks)?;
        self.flows.append(other.flows)?;
        self.samples.append(other.samples)?;
        self.measures.append(other.measures)
    }

    /// Adds a column with the same value in every row of all four tables.
    ///
    /// # Errors
    /// [`TableError::ColumnTwice`].
    pub fn add_constant(&mut self, name: &str, cell: &Cell) -> Result<(), TableError> {
        for table in [&mut self.tasks, &mut self.flows, &mut self.samples, &mut self.measures] {
            table.add_constant(name, cell)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_rows() -> Table {
        Table {
            columns: vec![
                ("name".into(), Column::Text(vec!["a".into(), "b".into()])),
                ("x".into(), Column::F64(vec![1.0, 2.0])),
            ],
        }
    }

    #[test]
    fn rows_are_joined_by_column_name_not_by_place() {
        let mut ours = two_rows();
        let mut theirs = two_rows();
        theirs.columns.reverse();
        ours.append(theirs).unwrap();
        assert_eq!(ours.column("x"), Some(&Column::F64(vec![1.0, 2.0, 1.0, 2.0])));
        assert_eq!(ours.rows(), 4);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused_and_nothing_changes() {
        let mut ours = two_rows();
        let before = ours.clone();
        let mut other = two_rows();
        other.columns[1].0 = "y".into();
        assert!(ours.append(other).unwrap_err().to_string().contains("[name, y]"));
        let mut other = two_rows();
        other.columns[1].1 = Column::U64(vec![1, 2]);
        assert!(matches!(ours.append(other), Err(TableError::Kind { .. })));
        assert_eq!(ours, before);
    }

    #[test]
    fn rows_are_filtered_and_columns_selected_and_added() {
        let mut table = two_rows().filter(|row| row == 1);
        assert_eq!(table.rows(), 1);
        assert!(table.column("name").unwrap().is(0, "b"));
        table.add_constant("seed", &Cell::U64(7)).unwrap();
        assert_eq!(table.add_constant("seed", &Cell::U64(7)), Err(TableError::ColumnTwice("seed".into())));
        let seed = table.select(&["seed"]).unwrap();
        assert_eq!(seed.columns, vec![("seed".to_owned(), Column::U64(vec![7]))]);
        assert!(table.select(&["no"]).is_err());
    }

    #[test]
    fn every_record_lands_in_the_columns_it_names() {
        let mut tables = Tables::default();
        SampleRow { t_s: 0.5, entity: "f1".into(), quantity: "window".into(), value: 30.0 }
            .push(&mut tables.samples);
        MeasureRow { name: "drops".into(), value: 2.0 }.push(&mut tables.measures);
        assert_eq!(tables.samples.column("value").unwrap().number(0), Some(30.0));
        assert!(tables.samples.column("entity").unwrap().is(0, "f1"));
        assert_eq!(tables.measures.column("value").unwrap().number(0), Some(2.0));
        assert_eq!(tables.tasks.rows(), 0);
        assert!(tables.tasks.column("tct_s").is_some());
    }
}
