//! The `headwater` command.

fn main() -> std::process::ExitCode {
    headwater_cli::main()
}
