//! Applications of this host and their outputs: who may read what, and how much each user may have.
//!
//! Flows wait for the registry's lock when they are opened, so a [`Registry`] neither asks nor closes a file: the last descriptor of one
//! that was deleted may take long to close. What it lets go of it gives to the caller.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use headwater_units::{Bytes, Duration};

use crate::client_frames::Range;
use crate::config::Quotas;
use crate::fields::Name;
use crate::refusal::Refusal;

/// Proof that somebody knows an application's token.
pub(crate) type Proof = blake3::Hash;

/// The proof of a token.
pub(crate) fn proof(token: &[u8]) -> Proof {
    blake3::hash(token)
}

/// A file that is ready to be fetched. It stays open, so that it outlives its name.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) file: File,
    ranges: Vec<Range>,
    stamp: u64,
    while_named: bool,
}

/// A part of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it begins in the file.
    pub(crate) start: u64,
    pub(crate) length: Bytes,
    pub(crate) info: u64,
    pub(crate) stamp: u64,
}

impl Output {
    /// # Errors
    /// [`Refusal::Truncated`] if the file ends before a range does; [`Refusal::Io`].
    pub(crate) fn new(file: File, ranges: Vec<Range>) -> Result<Output, Refusal> {
        let metadata = file.metadata().map_err(|_| Refusal::Io)?;
        let ends = ranges.iter().map(|range| range.offset.get() + range.length.get());
        if ends.max().is_some_and(|end| end > metadata.len()) {
            return Err(Refusal::Truncated);
        }
        Ok(Output { stamp: stamp(&metadata), file, ranges, while_named: false })
    }

    /// It is let go of by a [`Sweep`] when its file has no name any more.
    pub(crate) fn while_named(self) -> Output {
        Output { while_named: true, ..self }
    }

    /// Partitions that lie behind each other, as one.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if there are no such partitions, or others lie between; [`Refusal::Changed`] if the file was changed since it
    /// was registered; [`Refusal::Io`].
    pub(crate) fn part(&self, first: u32, count: u32) -> Result<Part, Refusal> {
        let metadata = self.file.metadata().map_err(|_| Refusal::Io)?;
        if stamp(&metadata) != self.stamp {
            return Err(Refusal::Changed);
        }
        let end = first.checked_add(count).filter(|_| count > 0).ok_or(Refusal::Unknown)?;
        let ranges = self.ranges.get(first as usize..end as usize).ok_or(Refusal::Unknown)?;
        let start = ranges[0].offset.get();
        let mut next = start;
        for range in ranges {
            if range.offset.get() != next {
                return Err(Refusal::Unknown);
            }
            next += range.length.get();
        }
        let (length, info) = (Bytes::new(next - start), ranges[0].info);
        Ok(Part { start, length, info, stamp: self.stamp })
    }
}

/// Tells a file from any other, and from itself after a change.
fn stamp(metadata: &std::fs::Metadata) -> u64 {
    let parts = [
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
    ];
    let hash = blake3::hash(&parts.map(u64::to_be_bytes).concat());
    u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[derive(Debug)]
struct Application {
    user: u32,
    proof: Proof,
    outputs: BTreeMap<Name, Arc<Output>>,
    /// Programs of it that are connected.
    programs: usize,
    /// Somebody has asked for an output of it since that was looked at last.
    is_used: bool,
    /// For how long it had no program, and nobody has asked for an output of it.
    unused: Duration,
}

/// All of an application that was forgotten: its name, and its outputs.
pub(crate) type Forgotten = (Name, BTreeMap<Name, Arc<Output>>);

/// A round through all outputs, [`SLICE`] at a time, for those whose files were deleted.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The application and the output that were looked at last.
    last: Option<(Name, Name)>,
}

/// Outputs that a sweep looks at before others get the registry.
const SLICE: usize = 256;

/// An output that ends with its file's name.
#[derive(Debug)]
pub(crate) struct Named {
    application: Name,
    name: Name,
    output: Arc<Output>,
}

impl Named {
    /// Whether the file was deleted. Asks the file, so it may take long.
    pub(crate) fn is_deleted(&self) -> bool {
        self.output.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

/// All applications of this host.
#[derive(Debug)]
pub(crate) struct Registry {
    quotas: Quotas,
    applications: BTreeMap<Name, Application>,
}

impl Registry {
    pub(crate) fn new(quotas: Quotas) -> Self {
        Registry { quotas, applications: BTreeMap::new() }
    }

    /// A program of this user comes. The first one of an application defines its token and owner.
    ///
    /// # Errors
    /// [`Refusal::NotYours`] if token or owner are others; [`Refusal::Quota`].
    pub(crate) fn enter(&mut self, user: u32, name: &Name, proof: Proof) -> Result<(), Refusal> {
        let own = self.applications.values().filter(|it| it.user == user);
        let (applications, programs) =
            own.fold((0, 0), |(all, programs), it| (all + 1, programs + it.programs));
        if programs >= self.quotas.programs {
            return Err(Refusal::Quota);
        }
        match self.applications.get_mut(name) {
            // The hashes are compared in constant time.
            Some(it) if it.user == user && it.proof == proof => it.programs += 1,
            Some(_) => return Err(Refusal::NotYours),
            None if applications >= self.quotas.applications => return Err(Refusal::Quota),
            None => {
                let (outputs, is_used, unused) = Default::default();
                let application = Application { user, proof, outputs, programs: 1, is_used, unused };
                self.applications.insert(name.clone(), application);
            }
        }
        Ok(())
    }

    /// A program goes. An application without programs and outputs is forgotten.
    pub(crate) fn leave(&mut self, name: &Name) {
        if let Some(application) = self.applications.get_mut(name) {
            application.programs = application.programs.saturating_sub(1);
            self.forget_if_unused(name);
        }
    }

    fn forget_if_unused(&mut self, name: &Name) {
        if self.applications.get(name).is_some_and(|it| it.programs == 0 && it.outputs.is_empty()) {
            self.applications.remove(name);
        }
    }

    /// An output of an application, whose program this is. The same name again replaces it, and gives back the one that had it: a task that
    /// runs anew writes anew.
    ///
    /// # Errors
    /// [`Refusal::Quota`]; [`Refusal::Unknown`] if the application is gone.
    pub(crate) fn register(
        &mut self,
        name: &Name,
        output: Name,
        file: Arc<Output>,
    ) -> Result<Option<Arc<Output>>, Refusal> {
        let user = self.applications.get(name).ok_or(Refusal::Unknown)?.user;
        let own = self.applications.values().filter(|it| it.user == user);
        let outputs: usize = own.map(|it| it.outputs.len()).sum();
        let application = self.applications.get_mut(name).expect("it was found");
        if outputs >= self.quotas.outputs && !application.outputs.contains_key(&output) {
            return Err(Refusal::Quota);
        }
        Ok(application.outputs.insert(output, file))
    }

    /// Gives an output back; a running read goes on.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub(crate) fn unregister(&mut self, name: &Name, output: &Name) -> Result<Arc<Output>, Refusal> {
        let application = self.applications.get_mut(name).ok_or(Refusal::Unknown)?;
        let output = application.outputs.remove(output).ok_or(Refusal::Unknown)?;
        self.forget_if_unused(name);
        Ok(output)
    }

    /// Gives all outputs of an application back.
    pub(crate) fn drop_outputs(&mut self, name: &Name) -> BTreeMap<Name, Arc<Output>> {
        let application = self.applications.get_mut(name);
        let outputs = application.map(|it| std::mem::take(&mut it.outputs)).unwrap_or_default();
        self.forget_if_unused(name);
        outputs
    }

    /// Those of a sweep's next [`SLICE`] outputs that end with their files' names; `None` when it has been through all.
    pub(crate) fn next_slice(&self, sweep: &mut Sweep) -> Option<Vec<Named>> {
        let last = sweep.last.take();
        let from = last.as_ref().map_or(Unbounded, |(application, _)| Included(application));
        let outputs =
            self.applications.range::<Name, _>((from, Unbounded)).flat_map(|(name, application)| {
                let after = last.as_ref().filter(|(of, _)| of == name);
                let after = after.map_or(Unbounded, |(_, output)| Excluded(output));
                application.outputs.range::<Name, _>((after, Unbounded)).map(move |it| (name, it))
            });
        let (mut slice, mut looked_at) = (Vec::new(), None);
        for (application, (name, output)) in outputs.take(SLICE) {
            if output.while_named {
                let (application, name) = (application.clone(), name.clone());
                slice.push(Named { application, name, output: output.clone() });
            }
            looked_at = Some((application, name));
        }
        let (application, name) = looked_at?;
        sweep.last = Some((application.clone(), name.clone()));
        Some(slice)
    }

    /// Forgets these outputs, except where others have taken their names, and applications that have nothing else here.
    pub(crate) fn forget(&mut self, outputs: &[Named]) {
        for Named { application, name, output } in outputs {
            let Some(it) = self.applications.get_mut(application) else { continue };
            if it.outputs.get(name).is_some_and(|it| Arc::ptr_eq(it, output)) {
                it.outputs.remove(name);
                self.forget_if_unused(application);
            }
        }
    }

    /// The output that somebody asks for who proves that he knows the token.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], also for a wrong proof: a peer without one learns no names.
    pub(crate) fn find(&mut self, name: &Name, proof: Proof, output: &Name) -> Result<Arc<Output>, Refusal> {
        let application = self.applications.get_mut(name).filter(|it| it.proof == proof);
        let application = application.ok_or(Refusal::Unknown)?;
        let output = application.outputs.get(output).cloned().ok_or(Refusal::Unknown)?;
        application.is_used = true;
        Ok(output)
    }

    /// Forgets applications that nobody has used for this long, after `passed` since the last call, and gives their outputs back: whoever
    /// was to drop them was killed, or the application ended when none of its programs was left here.
    pub(crate) fn forget_unused(&mut self, passed: Duration, most: Duration) -> Vec<Forgotten> {
        for application in self.applications.values_mut() {
            let is_used = std::mem::take(&mut application.is_used) || application.programs > 0;
            application.unused = if is_used { Duration::ZERO } else { application.unused + passed };
        }
        let over = self.applications.iter().filter(|(_, application)| application.unused >= most);
        let over: Vec<Name> = over.map(|(name, _)| name.clone()).collect();
        let forget =
            |name: Name| self.applications.remove(&name).map(|application| (name, application.outputs));
        over.into_iter().filter_map(forget).collect()
    }

    /// How many applications, and outputs of all of them.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.applications.len(), self.applications.values().map(|it| it.outputs.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn range(offset: u64, length: u64) -> Range {
        Range { offset: Bytes::new(offset), length: Bytes::new(length), info: length }
    }

    fn output(ranges: &[(u64, u64)]) -> Arc<Output> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        let ranges = ranges.iter().map(|(offset, length)| range(*offset, *length));
        Arc::new(Output::new(file, ranges.collect()).unwrap())
    }

    #[test]
    fn another_token_or_another_user_is_not_let_into_an_application() {
        let mut registry = Registry::new(Quotas::default());
        let (job, right, wrong) = (name("job"), proof(b"right"), proof(b"wrong"));
        registry.enter(1, &job, right).unwrap();
        assert_eq!(registry.enter(1, &job, wrong), Err(Refusal::NotYours));
        assert_eq!(registry.enter(2, &job, right), Err(Refusal::NotYours));
        registry.register(&job, name("map"), output(&[(0, 100)])).unwrap();
        assert!(registry.find(&job, right, &name("map")).is_ok());
        assert_eq!(registry.find(&job, wrong, &name("map")).map(drop), Err(Refusal::Unknown));
        registry.leave(&job);
        assert!(registry.find(&job, right, &name("map")).is_ok(), "outputs outlive their programs");
        registry.enter(1, &job, right).unwrap();
        assert_eq!(registry.drop_outputs(&job).len(), 1);
        registry.leave(&job);
        assert_eq!(registry.count(), (0, 0));
    }

    #[test]
    fn an_application_is_forgotten_that_has_no_program_and_that_nobody_asks_for_long_enough() {
        let mut registry = Registry::new(Quotas::default());
        let (job, token, map) = (name("job"), proof(b"t"), name("map"));
        let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(24 * 3_600));
        let pass = |registry: &mut Registry, hours: u32| {
            (0..hours).flat_map(|_| registry.forget_unused(hour, day)).collect::<Vec<_>>()
        };
        registry.enter(1, &job, token).unwrap();
        registry.register(&job, map.clone(), output(&[])).unwrap();
        assert!(pass(&mut registry, 100).is_empty(), "a program is here");
        registry.leave(&job);
        assert!(pass(&mut registry, 23).is_empty());
        registry.find(&job, token, &map).unwrap();
        assert!(pass(&mut registry, 24).is_empty(), "it was asked for");
        assert!(registry.find(&job, proof(b"wrong"), &map).is_err());
        let forgotten = pass(&mut registry, 1);
        assert!(forgotten.len() == 1 && forgotten[0].0 == job);
        assert!(
            forgotten[0].1.values().all(|output| Arc::strong_count(output) == 1),
            "whoever asked closes them"
        );
        assert_eq!(registry.count(), (0, 0));

        // A program that comes back counts from anew.
        registry.enter(1, &job, token).unwrap();
        registry.register(&job, map.clone(), output(&[])).unwrap();
        registry.leave(&job);
        assert!(pass(&mut registry, 23).is_empty());
        registry.enter(1, &job, token).unwrap();
        assert!(pass(&mut registry, 1).is_empty());
        registry.leave(&job);
        assert!(pass(&mut registry, 23).is_empty());
        assert_eq!(pass(&mut registry, 1).len(), 1);
    }

    #[test]
    fn quotas_bound_each_user_alone() {
        let quotas = Quotas { applications: 2, outputs: 1, programs: 3, ..Quotas::default() };
        let mut registry = Registry::new(quotas);
        let token = proof(b"t");
        registry.enter(1, &name("a"), token).unwrap();
        registry.enter(1, &name("b"), token).unwrap();
        assert_eq!(registry.enter(1, &name("c"), token), Err(Refusal::Quota));
        registry.enter(2, &name("c"), token).unwrap();
        registry.enter(1, &name("a"), token).unwrap();
        assert_eq!(registry.enter(1, &name("a"), token), Err(Refusal::Quota));
        registry.register(&name("a"), name("one"), output(&[])).unwrap();
        registry.register(&name("a"), name("one"), output(&[])).unwrap();
        let refused = registry.register(&name("b"), name("two"), output(&[]));
        assert_eq!(refused.map(drop), Err(Refusal::Quota));
        registry.register(&name("c"), name("two"), output(&[])).unwrap();
    }

    #[test]
    fn what_the_registry_lets_go_of_is_closed_by_who_asked_for_that() {
        let mut registry = Registry::new(Quotas::default());
        let (job, map) = (name("job"), name("map"));
        registry.enter(1, &job, proof(b"t")).unwrap();
        let is_last = |output: &Arc<Output>| Arc::strong_count(output) == 1;
        assert!(registry.register(&job, map.clone(), output(&[])).unwrap().is_none());
        assert!(is_last(&registry.register(&job, map.clone(), output(&[])).unwrap().unwrap()));
        assert!(is_last(&registry.unregister(&job, &map).unwrap()));
        assert!(registry.register(&job, map.clone(), output(&[])).unwrap().is_none());
        assert!(registry.drop_outputs(&job).values().all(is_last));
        assert!(registry.register(&job, map, Arc::new(named_output().1)).unwrap().is_none());
        let slice = registry.next_slice(&mut Sweep::default()).unwrap();
        registry.forget(&slice);
        assert!(slice.len() == 1 && is_last(&slice[0].output));
    }

    /// An output that ends with its file's name, and that file's folder.
    fn named_output() -> (tempfile::TempDir, Output) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.out");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = std::fs::File::open(path).unwrap();
        (folder, Output::new(file, vec![range(0, 100)]).unwrap().while_named())
    }

    fn sweep(registry: &mut Registry) {
        let mut sweep = Sweep::default();
        while let Some(mut slice) = registry.next_slice(&mut sweep) {
            slice.retain(Named::is_deleted);
            registry.forget(&slice);
        }
    }

    #[test]
    fn an_output_that_ends_with_its_name_is_let_go_of_when_the_file_is_deleted() {
        let mut registry = Registry::new(Quotas::default());
        let (job, token) = (name("job"), proof(b"t"));
        registry.enter(1, &job, token).unwrap();
        let (folder, hadoop) = named_output();
        let (_, other) = named_output();
        registry.register(&job, name("hadoop"), Arc::new(hadoop)).unwrap();
        registry.register(&job, name("other"), Arc::new(Output { while_named: false, ..other })).unwrap();
        registry.leave(&job);
        sweep(&mut registry);
        assert_eq!(registry.count(), (1, 2), "the file is there");
        let reading = registry.find(&job, token, &name("hadoop")).unwrap();
        std::fs::remove_file(folder.path().join("file.out")).unwrap();
        sweep(&mut registry);
        assert_eq!(registry.count(), (1, 1));
        assert!(registry.find(&job, token, &name("other")).is_ok(), "others outlive their names");
        assert_eq!(reading.part(0, 1).map(|it| it.length.get()), Ok(100), "whoever reads it reads on");
        registry.unregister(&job, &name("other")).unwrap();
        assert_eq!(registry.count(), (0, 0));
    }

    #[test]
    fn an_output_that_has_taken_the_name_of_a_deleted_one_stays() {
        let mut registry = Registry::new(Quotas::default());
        let (job, map) = (name("job"), name("map"));
        registry.enter(1, &job, proof(b"t")).unwrap();
        registry.register(&job, map.clone(), Arc::new(named_output().1)).unwrap();
        let slice = registry.next_slice(&mut Sweep::default()).unwrap();
        assert!(slice[0].is_deleted());
        registry.register(&job, map, output(&[])).unwrap();
        registry.forget(&slice);
        assert_eq!(registry.count(), (1, 1));
    }

    #[test]
    fn a_sweep_looks_at_a_slice_at_a_time_and_at_each_output_once_whatever_comes_and_goes_meanwhile() {
        const EACH: usize = 1_000;
        let mut registry = Registry::new(Quotas::default());
        // All are one open file.
        let (_folder, named) = named_output();
        let (named, other) = (Arc::new(named), output(&[]));
        let jobs = ["a", "b", "c"].map(name);
        let map = |at: usize| name(&format!("map_{at:04}"));
        for job in &jobs {
            registry.enter(1, job, proof(b"t")).unwrap();
            for at in 0..EACH {
                let output = if at % 4 == 0 { &other } else { &named };
                registry.register(job, map(at), output.clone()).unwrap();
            }
        }
        let seen = |registry: &mut Registry, between: &dyn Fn(&mut Registry, usize)| {
            let (mut sweep, mut slices, mut seen) = (Sweep::default(), 0, Vec::new());
            while let Some(slice) = registry.next_slice(&mut sweep) {
                assert!(slice.len() <= SLICE);
                seen.extend(slice.into_iter().map(|it| (it.application, it.name)));
                slices += 1;
                between(registry, slices);
            }
            (slices, seen)
        };
        let is_named = |at: &usize| !at.is_multiple_of(4);
        let all = |jobs: &[Name]| -> Vec<(Name, Name)> {
            let maps = || (0..EACH).filter(is_named).map(map);
            jobs.iter().flat_map(|job| maps().map(|map| (job.clone(), map))).collect()
        };
        assert_eq!(
            seen(&mut registry, &|_, _| {}),
            ((3 * EACH).div_ceil(SLICE), all(&jobs)),
            "those that are not looked for count as well"
        );
        // What has been looked at last, and the rest of its application, goes; something comes where the sweep has been.
        let (_, left) = seen(&mut registry, &|registry, slices| match slices {
            1 => drop(registry.drop_outputs(&jobs[0])),
            2 => drop(registry.register(&jobs[0], map(0), named.clone())),
            _ => {}
        });
        let first = all(&jobs[..1]).into_iter().take(SLICE / 4 * 3);
        assert_eq!(left, first.chain(all(&jobs[1..])).collect::<Vec<_>>());
    }

    #[test]
    fn partitions_behind_each_other_are_one_part_and_others_are_not() {
        let output = output(&[(0, 10), (10, 0), (10, 30), (50, 50)]);
        let part = |first, count| output.part(first, count).map(|it| (it.start, it.length.get()));
        assert_eq!(part(0, 3), Ok((0, 40)));
        assert_eq!(part(3, 1), Ok((50, 50)));
        for (first, count) in [(2, 2), (0, 0), (4, 1), (0, 5), (u32::MAX, 2)] {
            assert_eq!(part(first, count), Err(Refusal::Unknown), "{first} {count}");
        }
    }

    #[test]
    fn a_file_that_changes_or_is_too_short_is_refused() {
        let output = output(&[(0, 100)]);
        output.file.set_len(99).unwrap();
        assert_eq!(output.part(0, 1).map(drop), Err(Refusal::Changed));
        let short = tempfile::tempfile().unwrap();
        assert_eq!(Output::new(short, vec![range(0, 1)]).map(drop), Err(Refusal::Truncated));
    }
}
