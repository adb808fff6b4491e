//! Order of casts, as people write it: a policy's name, or a number.

use std::str::FromStr;

use headwater_units::Rank;
use headwater_wire::TransferOrder;

use super::{ValueError, bad};

/// A policy (PAM Table I).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy(pub(crate) TransferOrder);

impl FromStr for Policy {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let order = match text {
            "srsf" => TransferOrder::SmallestRemaining,
            "edf" => TransferOrder::EarliestDeadline,
            "fifo" => TransferOrder::FirstCome,
            "fair" => TransferOrder::Fair,
            number => match number.parse::<u32>() {
                Ok(rank) if rank < Rank::LAST.get() => TransferOrder::Stated(Rank::new(rank)),
                _ => {
                    return bad(format!(
                        "'{text}' is no policy: srsf, edf, fifo, fair, or a number below {} (smaller goes first)",
                        Rank::LAST.get()
                    ));
                }
            },
        };
        Ok(Policy(order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_a_name_or_is_a_number() {
        let read = |text: &str| text.parse::<Policy>().map(|it| it.0).ok();
        assert_eq!(read("edf"), Some(TransferOrder::EarliestDeadline));
        assert_eq!(read("7"), Some(TransferOrder::Stated(Rank::new(7))));
        for wrong in ["", "EDF", "-1", "16777215", "1e3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
