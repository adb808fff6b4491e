//! Checks of the output before anything is fetched.

use std::path::{Path, PathBuf};

use headwater_store::StoreError;
use rustix::fs::{Access, access};

use super::stream;
use crate::{AppError, Output};

/// Sees to it that the output can be written, as far as that can be known without knowing the object. `-o NEW/` makes that folder if its
/// own is there, as its name says that it is to be one: returned is what [`undo`] removes again.
///
/// # Errors
/// The problem, and what to do.
pub(super) fn check(output: &Output, overwrite: bool) -> Result<Option<PathBuf>, AppError> {
    let path = match output {
        Output::Default => return check_folder(Path::new(".")).map(|()| None),
        Output::File(path) if !stream::is_stream(output) => path,
        Output::File(_) | Output::Stdout | Output::Store => return Ok(None),
    };
    if path.is_dir() {
        return check_folder(path).map(|()| None);
    }
    let names_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        None => return Err(cannot(path, "it has no name; name a file or a folder with -o")),
    };
    if !folder.is_dir() {
        return Err(cannot(
            path,
            &format!("its folder does not exist; create it first: mkdir -p {}", folder.display()),
        ));
    }
    let there =
        path.symlink_metadata().is_ok() || (names_folder && without_slash(path).symlink_metadata().is_ok());
    if names_folder && there {
        return Err(cannot(path, "it is no folder; name a file without / at its end, or another folder"));
    }
    check_folder(folder)?;
    if names_folder {
        std::fs::create_dir(path)
            .map_err(|e| AppError::io(format!("cannot create {}", path.display()), e))?;
        return Ok(Some(path.clone()));
    }
    if there && !overwrite {
        return Err(StoreError::DestinationExists { path: path.clone() }.into());
    }
    Ok(None)
}

/// Removes the folder that [`check`] made, if nothing came into it.
pub(super) fn undo(created: Option<PathBuf>) {
    if let Some(path) = created {
        // With something unfinished in it, it stays for the next run.
        let _ = std::fs::remove_dir(path);
    }
}

fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

fn check_folder(folder: &Path) -> Result<(), AppError> {
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => Err(AppError::io(
            format!(
                "cannot write into {}, name another place with -o",
                std::path::absolute(folder).as_deref().unwrap_or(folder).display()
            ),
            error.into(),
        )),
    }
}

fn cannot(path: &Path, reason: &str) -> AppError {
    AppError::Usage(format!("cannot write to {}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> Result<Option<PathBuf>, String> {
        check(&Output::File(path.to_owned()), false).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_that_is_named_as_one_is_made_and_goes_again_if_nothing_comes() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new/");
        let created = refusal(&new).unwrap();
        assert!(new.is_dir() && created.is_some());
        assert_eq!(refusal(&new), Ok(None), "it is there");
        undo(created);
        assert!(!new.exists());
        std::fs::create_dir(&new).unwrap();
        std::fs::write(new.join("unfinished"), "").unwrap();
        undo(Some(new.clone()));
        assert!(new.is_dir());
    }

    #[test]
    fn what_cannot_be_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        for (path, advice) in [
            (folder.path().join("no/such/out"), "mkdir -p"),
            (folder.path().join("no/such/"), "mkdir -p"),
            (folder.path().join("file/"), "no folder"),
            (file.clone(), "exists already"),
        ] {
            let error = refusal(&path).unwrap_err();
            assert!(error.contains(advice), "{error}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    }
}
