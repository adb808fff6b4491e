//! Completion scripts and manual pages, generated from the definitions of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::args::Cli;

/// The name of the binary in scripts and pages, whatever this file is called.
const NAME: &str = "headwater";

/// The completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    script
}

/// The main page.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(built()).render(&mut page)?;
    Ok(page)
}

/// Writes a page for the program and one for each command that is not hidden; says which files, sorted.
pub(crate) fn pages(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fn write(command: &clap::Command, dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
        let man = Man::new(command.clone());
        let path = dir.join(man.get_filename());
        let mut page = Vec::new();
        man.render(&mut page)?;
        fs::write(&path, page)?;
        files.push(path);
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.into_iter().try_for_each(|command| write(command, dir, files))
    }
    fs::create_dir_all(dir)?;
    let mut files = Vec::new();
    write(&built(), dir, &mut files)?;
    files.sort();
    Ok(files)
}

/// With full names of commands, and without a page for `help`.
fn built() -> clap::Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}
