//! A map for what is looked up with every packet: the sorted entries lie side by side, and the one used last is tried
//! first.
//!
//! Packets of one flow or block mostly follow each other, and both are few, so this costs a comparison where a tree
//! costs a walk. Inserting and removing moves what lies behind: values are small, or boxed where the map may grow large.

use core::ops::Index;

/// Entries by ascending key. The methods are those of `BTreeMap`.
#[derive(Clone, Debug)]
pub struct SortedMap<K, V> {
    entries: Vec<(K, V)>,
    /// Where the entry used last was.
    recent: usize,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap { entries: Vec::new(), recent: 0 }
    }
}

impl<K: Ord + Copy, V> SortedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is an entry of this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// The value of this key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    /// The value of this key, which is tried first from now on.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.recent = self.find(key).ok()?;
        Some(&mut self.entries[self.recent].1)
    }

    /// The value of this key, made if there is none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// The value of this key, made this way if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.recent = self.find(&key).unwrap_or_else(|at| {
            self.entries.insert(at, (key, make()));
            at
        });
        &mut self.entries[self.recent].1
    }

    /// Puts in a value and returns the one that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// Keeps the entries for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Takes everything out, by ascending key.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + '_ {
        self.entries.drain(..)
    }

    /// The entries by ascending key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The same, to change the values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The values by ascending key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Where the key is, or where it would go.
    fn find(&self, key: &K) -> Result<usize, usize> {
        match self.entries.get(self.recent) {
            Some((recent, _)) if recent == key => Ok(self.recent),
            _ => self.entries.binary_search_by_key(key, |&(key, _)| key),
        }
    }
}

impl<K: Ord + Copy, V> Index<&K> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the caller knows the key")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_tree(steps in proptest::collection::vec((0u8..6, 0u32..12), 0..200)) {
            let (mut map, mut tree) = (SortedMap::default(), BTreeMap::new());
            for (i, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(map.insert(key, i), tree.insert(key, i)),
                    1 => prop_assert_eq!(map.remove(&key), tree.remove(&key)),
                    2 => *map.get_or_default(key) += i,
                    3 => prop_assert_eq!(map.get_mut(&key), tree.get_mut(&key)),
                    4 => map.retain(|k, _| k % 3 != key % 3),
                    _ => prop_assert_eq!(map.get(&key), tree.get(&key)),
                }
                match step {
                    2 => *tree.entry(key).or_default() += i,
                    4 => tree.retain(|k, _| k % 3 != key % 3),
                    _ => {}
                }
                prop_assert!(map.iter().eq(tree.iter()));
            }
        }
    }
}
