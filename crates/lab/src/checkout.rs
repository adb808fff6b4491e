//! The checkout of Headwater that a command runs in, if it does: where results are stored, and which commit it is at.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that has the experiments and their history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// The checkout that `from` is in: the nearest folder at or above it with `.git` and `experiments`.
    pub fn around(from: &Path) -> Option<Checkout> {
        let is_one = |folder: &&Path| folder.join(".git").exists() && folder.join("experiments").is_dir();
        from.ancestors().find(is_one).map(|root| Checkout { root: root.to_owned() })
    }

    /// Where results at paper scale are kept.
    pub fn results(&self) -> PathBuf {
        self.root.join("experiments/results")
    }

    /// Where documents are.
    pub fn docs(&self) -> PathBuf {
        self.root.join("docs")
    }

    /// The commit that is checked out, as far as its files say; without running git, which may not be there.
    pub fn commit(&self) -> Option<String> {
        let git = self.root.join(".git");
        // In a linked worktree `.git` is a file that names the folder, and branches are kept in the common one.
        let folder = match fs::read_to_string(&git) {
            Ok(text) => self.root.join(text.strip_prefix("gitdir:")?.trim()),
            Err(_) => git,
        };
        let common = match fs::read_to_string(folder.join("commondir")) {
            Ok(text) => folder.join(text.trim()),
            Err(_) => folder.clone(),
        };
        let head = fs::read_to_string(folder.join("HEAD")).ok()?;
        let Some(branch) = head.trim().strip_prefix("ref: ") else { return id(&head) };
        let loose = [&folder, &common].into_iter().find_map(|f| fs::read_to_string(f.join(branch)).ok());
        loose.as_deref().and_then(id).or_else(|| {
            let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
            packed.lines().find_map(|line| id(line.strip_suffix(branch)?.strip_suffix(' ')?))
        })
    }
}

/// A commit's id: 40 hex digits, or 64.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn checkout(files: &[(&str, &str)]) -> (tempfile::TempDir, Checkout) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("experiments")).unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let below = folder.path().join("experiments");
        let found = Checkout::around(&below).expect("it is one");
        (folder, found)
    }

    #[test]
    fn the_commit_is_read_wherever_git_keeps_it() {
        let loose = [(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/main", ID)];
        assert_eq!(checkout(&loose).1.commit().as_deref(), Some(ID));
        assert_eq!(checkout(&[(".git/HEAD", ID)]).1.commit().as_deref(), Some(ID), "detached");
        let packed = format!("# pack-refs\n{} refs/heads/main2\n{ID} refs/heads/main\n", "f".repeat(40));
        let packed = [(".git/HEAD", "ref: refs/heads/main\n"), (".git/packed-refs", &packed)];
        assert_eq!(checkout(&packed).1.commit().as_deref(), Some(ID));
        let linked = [
            (".git", "gitdir: elsewhere/worktrees/w\n"),
            ("elsewhere/worktrees/w/HEAD", "ref: refs/heads/topic\n"),
            ("elsewhere/worktrees/w/commondir", "../..\n"),
            ("elsewhere/refs/heads/topic", ID),
        ];
        assert_eq!(checkout(&linked).1.commit().as_deref(), Some(ID), "a linked worktree");
        assert_eq!(checkout(&[(".git/HEAD", "ref: refs/heads/unborn")]).1.commit(), None);
    }

    #[test]
    fn a_folder_without_history_or_experiments_is_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        assert_eq!(Checkout::around(folder.path()), None);
    }
}
