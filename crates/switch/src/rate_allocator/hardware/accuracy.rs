//! How exact the means of a programmable switch are: of divisions by shifts, and of filters that count transfers (PAM §IV-A, §IV-B).
//!
//! For those who judge them. No data plane calls this.

use headwater_units::FlowId;

use super::division::{Division, EXACT};
use super::filter::{self, Filter, HashUnit, Place};
use super::register::Pass;

/// The largest error of a division's coefficient over the divisors 1 to 1,024, as a part, when `shifts` right shifts
/// are added up (PAM Fig. 7).
pub fn division_error(shifts: u8) -> f64 {
    let table = Division::new(shifts);
    (1..=EXACT).map(|it| 1.0 - table.coefficient(it) * f64::from(it)).fold(0.0, f64::max)
}

/// The chance that a transfer is taken for one that is in a filter of three hashes, with `entries` entries in `cells`
/// cells in all: (1 - e^(-kn/m))^k (PAM §IV-B).
pub fn false_positives(entries: f64, cells: f64) -> f64 {
    filter::false_positives(entries, cells)
}

/// The same, measured: `transfers` transfers are in one filter of three arrays, of `cells` cells each, a power of two,
/// for every one of `ports` ports; then `others` others are looked for at the first port.
///
/// # Panics
/// If `cells` is no power of two of at least 64.
pub fn measured_false_positives(ports: u32, transfers: u64, cells: u32, others: u64) -> f64 {
    assert!(cells.is_power_of_two() && cells >= 64, "{cells} cells are no power of two of at least 64");
    let mut filter = Filter::new(cells);
    let mut pass = Pass::NONE;
    for port in 0..ports {
        let unit = HashUnit::new(port, cells);
        for transfer in 0..transfers {
            pass = pass.next();
            filter.insert(pass, &unit.place(FlowId(transfer)));
        }
    }
    let unit = HashUnit::new(0, cells);
    let place = |transfer| -> Place { unit.place(FlowId(transfer)) };
    let mistaken = (transfers..transfers + others).filter(|it| filter.has(place(*it))).count();
    mistaken as f64 / others as f64
}
