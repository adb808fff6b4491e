//! The files that programs may name: beneath the agent's roots, reached without links, and their own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::refusal::Refusal;
use crate::status::AgentError;

/// Folders beneath which files may be named, open since the agent began.
#[derive(Debug)]
pub(crate) struct Roots {
    roots: Vec<(PathBuf, OwnedFd)>,
}

impl Roots {
    /// # Errors
    /// [`AgentError::Root`] if one of them is no absolute path of a folder.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Roots, AgentError> {
        let open = |path: &PathBuf| {
            let failed = |source| AgentError::Root { path: path.clone(), source };
            if !path.is_absolute() {
                return Err(failed(std::io::Error::other("a root is an absolute path")));
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
            Ok((path.clone(), root))
        };
        Ok(Roots { roots: paths.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Opens the regular file of this user at an absolute path, for reading. The kernel follows no link, nor leaves the root.
    ///
    /// # Errors
    /// [`Refusal::OutsideRoots`], [`Refusal::NotOwner`], [`Refusal::Unknown`], [`Refusal::Io`].
    pub(crate) fn file(&self, user: u32, path: &str) -> Result<File, Refusal> {
        let path = Path::new(path);
        let is_plain = path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)));
        let found = self.roots.iter().find_map(|(root, fd)| Some((fd, path.strip_prefix(root).ok()?)));
        let (root, beneath) = found.filter(|_| is_plain).ok_or(Refusal::OutsideRoots)?;
        // A FIFO would make the open wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file =
            rustix::fs::openat2(root, beneath, flags, Mode::empty(), resolve).map_err(
                |error| match error {
                    Errno::LOOP | Errno::XDEV => Refusal::OutsideRoots,
                    Errno::NOENT | Errno::NOTDIR => Refusal::Unknown,
                    Errno::ACCESS | Errno::PERM => Refusal::NotOwner,
                    _ => Refusal::Io,
                },
            )?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(|_| Refusal::Io)?;
        match metadata.is_file() && metadata.uid() == user {
            true => Ok(file),
            false => Err(Refusal::NotOwner),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_own_regular_files_beneath_a_root_are_opened_and_no_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("job/map")).unwrap();
        std::fs::write(at("job/map/file.out"), b"here").unwrap();
        std::fs::write(outside.path().join("secret"), b"there").unwrap();
        symlink(outside.path().join("secret"), at("job/link")).unwrap();
        symlink(outside.path(), at("folder")).unwrap();
        symlink(at("job/map/file.out"), at("inside")).unwrap();
        let roots = Roots::open(&[root.path().to_owned()]).unwrap();
        let user = std::fs::metadata(at("job")).unwrap().uid();
        let open = |path: &Path| roots.file(user, path.to_str().unwrap()).map(drop);
        assert_eq!(open(&at("job/map/file.out")), Ok(()));
        assert_eq!(open(&at("job/link")), Err(Refusal::OutsideRoots));
        assert_eq!(open(&at("inside")), Err(Refusal::OutsideRoots), "not even to a file beneath the root");
        assert_eq!(open(&at("folder/secret")), Err(Refusal::OutsideRoots));
        assert_eq!(open(&at("job/../job/map/file.out")), Err(Refusal::OutsideRoots));
        assert_eq!(open(&outside.path().join("secret")), Err(Refusal::OutsideRoots));
        assert_eq!(open(Path::new("job/map/file.out")), Err(Refusal::OutsideRoots));
        assert_eq!(open(&at("job/none")), Err(Refusal::Unknown));
        assert_eq!(open(&at("job")), Err(Refusal::NotOwner), "a folder is no file");
        let path = at("job/map/file.out");
        let other = roots.file(user + 1, path.to_str().unwrap());
        assert_eq!(other.map(drop), Err(Refusal::NotOwner));
    }
}
