//! Joins the rows of an experiment's runs: as tables to judge by, and in the four files that people read.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use headwater_experiment::experiment::Scale;
use headwater_experiment::table::{Table, Tables};

use super::super::columns::{TABLES, TableFile, in_order};
use super::super::pool::Outcome;
use super::super::results::Means;
use super::super::{LabError, run_file};
use super::Batch;

/// The rows of all runs, in the order of the runs: as tables, and in the four files that people read.
pub(super) fn join(batch: &Batch, scale: Scale) -> Result<(Tables, Vec<Means>), LabError> {
    let id = &batch.experiment.id;
    let head = [
        ("headwater.experiment", id.clone()),
        ("headwater.engine", batch.engine.to_string()),
        ("headwater.scale", scale.to_string()),
        ("headwater.code", batch.code.clone()),
    ];
    let mut all = Tables::gathering();
    let mut means = Vec::new();
    let mut files: Vec<Joined> = Vec::new();
    for (task, outcome) in batch.tasks.iter().zip(&batch.outcomes) {
        if !matches!(outcome, Some(Outcome::Ran(_) | Outcome::Kept)) {
            continue;
        }
        let lost = |reason| LabError::Lost { path: task.path.clone(), reason };
        let mut tables = run_file::read(&task.path, &task.origin).map_err(lost)?;
        means.push(Means::of(&task.job, &tables));
        let differ = |source| LabError::Tables { experiment: id.clone(), source };
        task.job.coordinate(&mut tables).map_err(differ)?;
        if files.is_empty() {
            for (name, table) in TABLES.iter().zip(in_order(&tables)) {
                files.push(Joined::begin(&batch.folder, name, table, &head)?);
            }
        }
        for (file, table) in files.iter_mut().zip(in_order(&tables)) {
            file.add(table)?;
        }
        all.append(tables).map_err(differ)?;
    }
    files.into_iter().try_for_each(Joined::end)?;
    Ok((all, means))
}

/// One of the four files while it is written; it gets its name at the end.
struct Joined {
    file: TableFile<BufWriter<File>>,
    unfinished: PathBuf,
    path: PathBuf,
}

impl Joined {
    fn begin(folder: &Path, name: &str, first: &Table, head: &[(&str, String)]) -> Result<Joined, LabError> {
        // An unfinished file of a killed process is removed by the next.
        let unfinished = folder.join(format!(".{name}.arrow.tmp"));
        let path = folder.join(format!("{name}.arrow"));
        let failed = |source| LabError::write(&path, "--out", source);
        let file = BufWriter::new(File::create(&unfinished).map_err(failed)?);
        let file = TableFile::new(file, first, head).map_err(|e| failed(of_arrow(e)))?;
        Ok(Joined { file, unfinished, path })
    }

    fn add(&mut self, table: &Table) -> Result<(), LabError> {
        self.file.write(table).map_err(|e| LabError::write(&self.path, "--out", of_arrow(e)))
    }

    fn end(self) -> Result<(), LabError> {
        let failed = |source| LabError::write(&self.path, "--out", source);
        self.file.finish().map_err(|e| failed(of_arrow(e)))?;
        fs::rename(&self.unfinished, &self.path).map_err(failed)
    }
}

fn of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, source) => source,
        other => io::Error::other(other),
    }
}
