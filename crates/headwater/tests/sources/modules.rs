//! Which modules of a crate name which others, and which do so in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{paths, rust_files, tokens, without_tests};

/// The way from a crate's root to a module, or further to what is in it. The path of the root is empty.
pub(crate) type Way = Vec<String>;

/// Modules and those that they name.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// By parent, which of the modules below it (files, or folders with all that is in them) names which other. A parent may know
/// those below it, and they may know it.
pub(crate) fn module_arrows(src: &Path) -> BTreeMap<Way, Arrows> {
    let files = rust_files(src);
    let way = |file: &Path| way_of(file.strip_prefix(src).unwrap());
    let sources: Vec<_> =
        files.iter().map(|file| (way(file), std::fs::read_to_string(file).unwrap())).collect();
    arrows_between(sources.iter().map(|(way, source)| (way.clone(), source.as_str())))
}

fn arrows_between<'a>(sources: impl Iterator<Item = (Way, &'a str)>) -> BTreeMap<Way, Arrows> {
    let modules: BTreeMap<Way, Named> =
        sources.map(|(way, source)| (way.clone(), named(&way, source))).collect();
    let mut arrows = BTreeMap::<Way, Arrows>::new();
    for (from, Named { all, .. }) in &modules {
        for to in all.iter().flat_map(|way| passed(way, &modules)) {
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let below = arrows.entry(from[..shared].to_vec()).or_default();
                below.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    arrows
}

/// `a/b.rs` and `a/b/mod.rs` are the same module.
fn way_of(file: &Path) -> Way {
    let file = file.with_extension("");
    let mut way: Way = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let at_root = way.len() == 1;
    way.pop_if(|last| last == "mod" || at_root && (last == "lib" || last == "main"));
    way
}

/// Names that a module uses within its crate.
struct Named {
    all: BTreeSet<Way>,
    /// Of these, what stands in a `use`: other modules find it in the module, too.
    taken: BTreeSet<Way>,
}

/// Reads what `source` names by `crate::`, by `super::`, or in a `use`. Modules that a file has within it are taken for the file.
fn named(module: &[String], source: &str) -> Named {
    let tokens = without_tests(tokens(source));
    let is = |at: usize, what: &str| tokens.get(at).is_some_and(|it| it == what);
    let (mut all, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for at in (0..tokens.len()).filter(|at| *at == 0 || !is(at - 1, "::")) {
        let in_use = is(at, "use");
        let begin = if in_use { at + 1 } else { at };
        let (mut base, mut rest) = (module.len(), begin);
        if is(rest, "crate") && is(rest + 1, "::") {
            (base, rest) = (0, rest + 2);
        }
        while base > 0 && is(rest, "super") && is(rest + 1, "::") {
            (base, rest) = (base - 1, rest + 2);
        }
        if rest > at {
            let ways = paths(&tokens[rest..]).into_iter().map(|path| [&module[..base], &path].concat());
            all.extend(ways.clone());
            taken.extend(ways.filter(|_| in_use));
        }
    }
    Named { all, taken }
}

/// The modules on a way, also where one has the next name from another.
fn passed(way: &[String], modules: &BTreeMap<Way, Named>) -> BTreeSet<Way> {
    let (mut way, mut at, mut passed) = (way.to_vec(), 0, BTreeSet::new());
    let mut tried = BTreeSet::new();
    while at < way.len() {
        if modules.contains_key(&way[..=at]) {
            at += 1;
            passed.insert(way[..at].to_vec());
            continue;
        }
        let Some(Named { taken, .. }) = modules.get(&way[..at]) else { break };
        let Some(from) = taken.iter().find(|it| it.last() == way.get(at) && tried.insert((*it).clone()))
        else {
            break;
        };
        way = [from, &way[at + 1..]].concat();
        at = 0;
    }
    passed
}

/// The sets of modules of which each reaches all others.
pub(crate) fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            open.extend(arrows.get(module).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|from| (from, reach(from))).collect();
    let each_other =
        |a: &String, b: &String| reached[a].contains(b) && reached.get(b).is_some_and(|it| it.contains(a));
    let circle = |from: &String| reached[from].iter().filter(|to| each_other(from, to)).cloned().collect();
    arrows.keys().map(circle).filter(|circle: &BTreeSet<String>| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> Way {
        text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// `parent: from -> to`, of modules and their sources.
    fn arrows(sources: &[(&str, &str)]) -> Vec<String> {
        let all = arrows_between(sources.iter().map(|(module, source)| (way(module), *source)));
        let shown = |(parent, arrows): (&Way, &Arrows)| {
            let arrows = arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
            arrows.map(|(from, to)| format!("{}: {from} -> {to}", parent.join("::"))).collect::<Vec<_>>()
        };
        all.iter().flat_map(shown).collect()
    }

    #[test]
    fn what_a_module_names_is_found_however_it_is_reached() {
        for (source, module, expected) in [
            ("use crate::a::B;", "x::y::z", vec!["a::B"]),
            ("use super::{a::B, C};", "x", vec!["C", "a::B"]),
            ("use super::super::{a, c::d};", "x::y", vec!["a", "c::d"]),
            ("use super::a; fn f() { super::super::b::g() }", "x::y", vec!["b::g", "x::a"]),
            (
                "use super::a; use super_fine::b; pub(crate) fn f() {}",
                "x::y",
                vec!["x::a", "x::y::super_fine::b"],
            ),
            (
                "#[cfg(test)] mod tests { use crate::a; } fn f() -> crate::b::B { crate::c() }",
                "x",
                vec!["b::B", "c"],
            ),
        ] {
            let expected: BTreeSet<Way> = expected.into_iter().map(way).collect();
            assert_eq!(named(&way(module), source).all, expected, "{source}");
        }
    }

    #[test]
    fn arrows_go_between_neighbours_at_every_depth() {
        let sources = [
            ("", "mod a; mod b;"),
            ("a", ""),
            ("a::one", "use super::two::T; use crate::b::B;"),
            ("a::two", ""),
            ("b", ""),
        ];
        assert_eq!(arrows(&sources), [": a -> b", "a: one -> two"]);
    }

    #[test]
    fn what_is_had_from_a_parent_is_of_the_module_that_the_parent_has_it_from() {
        let sources = [
            ("", "mod a; mod b; pub use b::B;"),
            ("a", "mod one; mod two; pub use two::{T, U}; use std::fmt;"),
            ("a::one", "use super::{T, Own}; use crate::B; use super::fmt;"),
            ("a::two", "use crate::a::Own;"),
            ("b", ""),
        ];
        assert_eq!(arrows(&sources), [": a -> b", "a: one -> two"]);
    }

    #[test]
    fn what_is_had_from_a_neighbour_is_of_it_and_of_the_one_behind() {
        let sources = [("a", "use crate::b::C;"), ("b", "pub use crate::c::C;"), ("c", "")];
        assert_eq!(arrows(&sources), [": a -> b", ": a -> c", ": b -> c"]);
    }

    #[test]
    fn circle_of_modules_is_found_and_a_line_is_none() {
        let circles = |arrows: &[(&str, &str)]| {
            let mut all = Arrows::new();
            for (from, to) in arrows {
                all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            let circles = circles(&all).into_iter();
            circles.map(|it| it.into_iter().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(circles(&[("a", "b"), ("b", "c"), ("a", "c")]), Vec::<String>::new());
        assert_eq!(
            circles(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("d", "e"), ("e", "d")]),
            ["a b c", "d e"]
        );
    }
}
