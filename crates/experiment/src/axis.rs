//! Axes of an experiment, and their points.

use headwater_fabric::LinkRate;

/// Something that varies from job to job.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name in claims, plots and the column of the tables.
    pub name: String,
    /// In the order of the file; labels differ.
    pub points: Vec<AxisPoint>,
}

/// One point of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisPoint {
    /// How it is written: `0.9`, `leaf-spine`.
    pub label: String,
    /// The number that it stands for, for axes that have an order.
    pub number: Option<f64>,
    /// Dotted keys of the scenario and their values.
    pub set: Vec<(String, toml::Value)>,
}

impl Axis {
    /// The point of that label.
    pub fn point(&self, label: &str) -> Option<&AxisPoint> {
        self.points.iter().find(|point| point.label == label)
    }

    /// All labels, for messages.
    pub(crate) fn labels(&self) -> String {
        self.points.iter().map(|p| p.label.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// How a TOML value is written as a label: numbers shortest, so that `0.50` and `0.5` are one point.
pub(crate) fn label(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// The number that a label stands for: itself, or the number a quantity starts with in its base unit.
pub(crate) fn number(value: &toml::Value) -> Option<f64> {
    match value {
        toml::Value::Integer(n) => Some(*n as f64),
        toml::Value::Float(x) => Some(*x),
        toml::Value::String(text) => quantity(text),
        _ => None,
    }
}

/// Seconds, packets per second, bits per second or packets, as the text says.
fn quantity(text: &str) -> Option<f64> {
    if let Some(packets) = text.strip_suffix("packets") {
        return packets.trim().parse().ok();
    }
    if let Ok(duration) = text.parse::<headwater_units::Duration>() {
        return Some(duration.as_secs_f64());
    }
    match text.parse::<LinkRate>() {
        Ok(LinkRate::Packets(rate)) => Some(rate),
        Ok(LinkRate::Bits(rate)) => Some(rate.get() as f64),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_quantities_have_numbers() {
        assert_eq!(label(&toml::Value::Float(0.50)), "0.5");
        assert_eq!(label(&toml::Value::Integer(3)), "3");
        assert_eq!(label(&"40 us".into()), "40 us");
        assert_eq!(number(&"40 us".into()), Some(4e-5));
        assert_eq!(number(&"200000 pps".into()), Some(2e5));
        assert_eq!(number(&"10 Gbit/s".into()), Some(1e10));
        assert_eq!(number(&"100 packets".into()), Some(100.0));
        assert_eq!(number(&"leaf-spine".into()), None);
        assert_eq!(number(&toml::Value::Integer(3)), Some(3.0));
    }
}
