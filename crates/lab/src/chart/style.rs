//! Which colour, mark and dashes a line has: the same for a scheme in every plot.
//!
//! Colours are those of Okabe and Ito (a grey and an olive for their black and yellow, which hide whiskers or vanish on
//! white), which people with any common colour blindness tell apart; marks and dashes differ too, so that a plot reads
//! in grey.

use plotters::style::RGBColor;

use super::canvas::{Dashes, Mark};

pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const GREY: RGBColor = RGBColor(0x77, 0x77, 0x77);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) mark: Mark,
    pub(super) dashes: Dashes,
    /// Whether it lies over another line of its name.
    pub(super) layered: bool,
}

const LOOKS: [(RGBColor, Mark); 8] = [
    (RGBColor(0x00, 0x72, 0xb2), Mark::Disc),
    (RGBColor(0xd5, 0x5e, 0x00), Mark::Square),
    (RGBColor(0x00, 0x9e, 0x73), Mark::Up),
    (RGBColor(0xcc, 0x79, 0xa7), Mark::Diamond),
    (RGBColor(0xe6, 0x9f, 0x00), Mark::Down),
    (RGBColor(0x56, 0xb4, 0xe9), Mark::Ring),
    (RGBColor(0x5b, 0x5b, 0x5b), Mark::Cross),
    (RGBColor(0x99, 0x99, 0x33), Mark::Plus),
];

const SOLID: Dashes = &[];
const DASHES: [Dashes; 4] = [SOLID, &[7.0, 3.0], &[2.0, 2.5], &[8.0, 2.5, 2.0, 2.5]];

/// The schemes' places among the looks.
const SCHEMES: [&str; 8] =
    ["ppush(1,1)", "ppush(0,0)", "ppush(1,0)", "ppush(0,1)", "dccp", "reno", "dctcp", "scdp"];

/// The looks of lines by their names; `layer` tells apart lines of one name that lie over each other, such as those of
/// two engines.
pub(super) fn looks(names: &[(&str, usize)]) -> Vec<Look> {
    let mut order: Vec<&str> = Vec::new();
    for (name, _) in names {
        if !order.contains(name) {
            order.push(name);
        }
    }
    let layered = names.iter().any(|(_, layer)| *layer > 0);
    let schemes = order.iter().all(|name| SCHEMES.contains(name));
    let look = |(name, layer): &(&str, usize)| {
        let list: &[&str] = if schemes { &SCHEMES } else { &order };
        let number = list.iter().position(|other| other == name).unwrap_or(0);
        let (colour, mark) = LOOKS[number % LOOKS.len()];
        // With layers the dashes belong to these. Otherwise the second half of the looks is broken.
        let dashes = if layered { *layer } else { number / 4 + number / LOOKS.len() };
        Look { colour, mark, dashes: DASHES[dashes % DASHES.len()], layered: *layer > 0 }
    };
    names.iter().map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_looks_the_same_whatever_is_beside_it() {
        let alone = looks(&[("dctcp", 0)])[0];
        assert_eq!(looks(&[("ppush(1,1)", 0), ("dctcp", 0)])[1], alone);
    }

    #[test]
    fn no_two_lines_look_alike() {
        let names: Vec<String> = (0..16).map(|i| format!("line {i}")).collect();
        let all = looks(&names.iter().map(|n| (n.as_str(), 0)).collect::<Vec<_>>());
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn engines_share_a_colour_and_differ_in_dashes() {
        let both = looks(&[("dctcp", 0), ("dctcp", 1)]);
        assert_eq!(both[0].colour, both[1].colour);
        assert_ne!(both[0].dashes, both[1].dashes);
    }
}
