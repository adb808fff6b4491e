//! One finished run on disk: its four tables, what they were made from, and a hash that notices damage.
//!
//! A file counts only if its format, its job and the code that made it are those of now, and all its bytes are those that
//! were written. Anything else is as good as no file: the job is run again.

use std::fs;
use std::io::{self, Cursor, Write};
use std::path::Path;

use headwater_experiment::table::Tables;

use super::columns::{read_run, write_run};
use super::files::write_whole;

/// Changes when the layout of these files does.
const FORMAT: &str = "1";
/// Under this name the footer has the hash of the file: of all its bytes, with [`BLANK`] in place of the hash. It is
/// checked before anything is parsed, so the Arrow reader never sees a damaged file.
const HASH: &str = "headwater.hash";
const MARK: &[u8] = b"blake3:";
const BLANK: [u8; 64] = [b'0'; 64];

/// Origin of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// [`Job::key`](headwater_experiment::experiment::Job::key): scenario, engine and seed.
    pub(super) key: String,
    /// The code that computes runs, as a hash of its sources.
    pub(super) code: String,
}

impl Origin {
    fn head(&self) -> [(&'static str, String); 3] {
        [
            ("headwater.format", FORMAT.to_owned()),
            ("headwater.job", self.key.clone()),
            ("headwater.code", self.code.clone()),
        ]
    }
}

/// Writes a finished run; whole or not at all.
pub(super) fn write(path: &Path, origin: &Origin, tables: &Tables) -> io::Result<()> {
    let bytes = encode(origin, tables)?;
    write_whole(path, |file| file.write_all(&bytes))
}

/// The tables of a finished run, or why there are none.
pub(super) fn read(path: &Path, origin: &Origin) -> Result<Tables, String> {
    decode(&mut fs::read(path).map_err(|error| error.to_string())?, origin)
}

fn encode(origin: &Origin, tables: &Tables) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let blank = [MARK, &BLANK].concat();
    let tail = (HASH, String::from_utf8_lossy(&blank).into_owned());
    write_run(&mut bytes, tables, &origin.head(), tail).map_err(io::Error::other)?;
    let hash = blake3::hash(&bytes);
    let place = hash_in(&mut bytes).ok_or_else(|| io::Error::other("the footer lost its hash"))?;
    place.copy_from_slice(hash.to_hex().as_bytes());
    Ok(bytes)
}

/// Leaves [`BLANK`] in the bytes where the hash was.
fn decode(bytes: &mut [u8], origin: &Origin) -> Result<Tables, String> {
    let place = hash_in(bytes).ok_or("there is no hash at its end")?;
    let said = std::mem::replace(place, BLANK);
    if blake3::hash(bytes).to_hex().as_bytes() != said {
        return Err("its bytes are not those that were written".to_owned());
    }
    let wanted = |get: &dyn Fn(&str) -> Option<String>| {
        let differs = |(name, value): &&(&str, String)| get(name).as_ref() != Some(value);
        match origin.head().iter().find(differs) {
            None => Ok(()),
            Some((name, value)) => {
                Err(format!("{name} is {} instead of {value}", get(name).unwrap_or_default()))
            }
        }
    };
    read_run(Cursor::new(bytes), wanted).map_err(|error| error.to_string())
}

/// Where the hash is: behind the last mark, since the footer comes last.
fn hash_in(bytes: &mut [u8]) -> Option<&mut [u8; 64]> {
    let mark = bytes.windows(MARK.len()).rposition(|window| window == MARK)?;
    bytes.get_mut(mark + MARK.len()..)?.first_chunk_mut()
}

#[cfg(test)]
mod tests {
    use headwater_experiment::table::{MeasureRow, SampleRow};

    use super::*;

    fn origin() -> Origin {
        Origin { key: "ppush11-s1-00ff".into(), code: "c0de".into() }
    }

    fn tables() -> Tables {
        let mut tables = Tables::default();
        for (name, value) in [("drops", 3.0), ("goodput", 1e5)] {
            MeasureRow { name: name.into(), value }.push(&mut tables.measures);
        }
        let (entity, quantity) = ("f1".to_owned(), "window".to_owned());
        SampleRow { t_s: 0.25, entity, quantity, value: 30.0 }.push(&mut tables.samples);
        tables
    }

    #[test]
    fn a_finished_run_is_read_back_only_for_the_same_job_and_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.arrow");
        write(&path, &origin(), &tables()).unwrap();
        assert_eq!(read(&path, &origin()).unwrap(), tables());
        let other_job = Origin { key: "ppush11-s2-00ff".into(), ..origin() };
        assert!(read(&path, &other_job).unwrap_err().contains("headwater.job is ppush11-s1-00ff"));
        let other_code = Origin { code: "beef".into(), ..origin() };
        assert!(read(&path, &other_code).unwrap_err().contains("headwater.code is c0de instead of beef"));
    }

    #[test]
    fn the_same_tables_are_the_same_bytes() {
        assert_eq!(encode(&origin(), &tables()).unwrap(), encode(&origin(), &tables()).unwrap());
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let whole = encode(&origin(), &tables()).unwrap();
        for length in 0..whole.len() {
            let cut = decode(&mut whole[..length].to_vec(), &origin());
            assert!(cut.is_err(), "{length} of {} bytes", whole.len());
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let whole = encode(&origin(), &tables()).unwrap();
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            assert!(decode(&mut damaged, &origin()).is_err(), "byte {place}");
        }
    }
}
