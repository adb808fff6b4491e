//! A network as an operator writes it down for a controller: `--topology FILE`.

use std::path::Path;

use headwater_controller::NetworkSpec;

use super::usage::UsageError;

/// Reads it.
///
/// # Errors
/// The file cannot be read, is no such thing, or cannot be; with what is wrong.
pub(crate) fn read(path: &Path) -> Result<NetworkSpec, UsageError> {
    let wrong = |reason: &dyn std::fmt::Display| {
        UsageError::Options(format!("--topology {}: {}", path.display(), reason.to_string().trim_end()))
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    let spec: NetworkSpec = toml::from_str(&text).map_err(|e| wrong(&e))?;
    spec.check().map_err(|e| wrong(&e))?;
    Ok(spec)
}
