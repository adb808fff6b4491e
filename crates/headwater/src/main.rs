//! The `headwater` command.

fn main() -> std::process::ExitCode {
    headwater::cli::main()
}
