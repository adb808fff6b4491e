//! Labels of nodes, as people write them: `zone=eu`, and several with commas between.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use headwater_wire::{MAX_LABEL, MAX_LABELS};

use super::{ValueError, bad};

/// One label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Label {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (key, value) = text.split_once('=').unwrap_or_default();
        let (key, value) = (key.trim(), value.trim());
        let is_word = |word: &str| {
            let fits = (1..=MAX_LABEL).contains(&word.len());
            fits && !word.contains(|c: char| c.is_control() || c.is_whitespace() || c == ',' || c == '=')
        };
        if !is_word(key) || !is_word(value) {
            return bad(format!(
                "'{text}' is no label: KEY=VALUE expected, as in zone=eu, without blanks and commas, each of at most {MAX_LABEL} bytes"
            ));
        }
        Ok(Label { key: key.to_owned(), value: value.to_owned() })
    }
}

/// Labels of a node, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(pub(crate) Vec<Label>);

impl Labels {
    /// By key.
    ///
    /// # Errors
    /// A key has two values, or there are too many.
    pub(crate) fn by_key(&self) -> Result<BTreeMap<String, String>, ValueError> {
        let mut all = BTreeMap::new();
        for Label { key, value } in &self.0 {
            match all.insert(key.clone(), value.clone()) {
                Some(other) if other != *value => {
                    return bad(format!("the label '{key}' cannot be both '{other}' and '{value}'"));
                }
                _ => {}
            }
        }
        match all.len() {
            0..=MAX_LABELS => Ok(all),
            more => bad(format!("a node carries at most {MAX_LABELS} labels, not {more}")),
        }
    }
}

impl FromStr for Labels {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Label { key, value }) in self.0.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_and_written() {
        let read = |text: &str| text.parse::<Labels>().map(|it| it.to_string()).map_err(|e| e.to_string());
        for (text, written) in [
            ("zone=eu", "zone=eu"),
            ("zone=eu, rack=r1", "zone=eu,rack=r1"),
            ("disk=NVMe/2.0", "disk=NVMe/2.0"),
        ] {
            assert_eq!(read(text), Ok(written.to_owned()), "{text}");
        }
        for text in ["", "zone", "=eu", "zone=", "a=b=c", "a b=c", "a=b,", &format!("{}=x", "k".repeat(129))]
        {
            assert!(read(text).is_err_and(|e| e.contains("KEY=VALUE")), "{text}");
        }
    }

    #[test]
    fn a_key_has_one_value() {
        let by_key = |text: &str| text.parse::<Labels>().unwrap().by_key().map_err(|e| e.to_string());
        assert_eq!(by_key("a=b,a=b").map(|all| all.len()), Ok(1));
        assert!(by_key("a=b,a=c").unwrap_err().contains("both 'b' and 'c'"));
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        assert!(by_key(&many.join(",")).unwrap_err().contains("at most 32"));
    }
}
