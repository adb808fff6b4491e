//! Applications of this host and their outputs: who may read what, and how much each user may have.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use headwater_units::Bytes;

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

    /// It is let go of by [`Registry::sweep`] when its file has no name any more.
    pub(crate) fn while_named(self) -> Output {
        Output { while_named: true, ..self }
    }

    fn is_over(&self) -> bool {
        self.while_named && self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
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
                let application = Application { user, proof, outputs: BTreeMap::new(), programs: 1 };
                self.applications.insert(name.clone(), application);
            }
        }
        Ok(())
    }

    /// A program goes. An application without programs and outputs is forgotten.
    pub(crate) fn leave(&mut self, name: &Name) {
        let Some(application) = self.applications.get_mut(name) else { return };
        application.programs = application.programs.saturating_sub(1);
        if application.programs == 0 && application.outputs.is_empty() {
            self.applications.remove(name);
        }
    }

    /// An output of an application, whose program this is. The same name again replaces it: a task that runs anew writes anew.
    ///
    /// # Errors
    /// [`Refusal::Quota`]; [`Refusal::Unknown`] if the application is gone.
    pub(crate) fn register(&mut self, name: &Name, output: Name, file: Output) -> Result<(), Refusal> {
        let user = self.applications.get(name).ok_or(Refusal::Unknown)?.user;
        let own = self.applications.values().filter(|it| it.user == user);
        let outputs: usize = own.map(|it| it.outputs.len()).sum();
        let application = self.applications.get_mut(name).expect("it was found");
        if outputs >= self.quotas.outputs && !application.outputs.contains_key(&output) {
            return Err(Refusal::Quota);
        }
        application.outputs.insert(output, Arc::new(file));
        Ok(())
    }

    /// Drops an output; a running read goes on.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub(crate) fn unregister(&mut self, name: &Name, output: &Name) -> Result<(), Refusal> {
        let application = self.applications.get_mut(name).ok_or(Refusal::Unknown)?;
        application.outputs.remove(output).map(drop).ok_or(Refusal::Unknown)
    }

    /// All outputs of an application are let go of.
    pub(crate) fn drop_outputs(&mut self, name: &Name) {
        if let Some(application) = self.applications.get_mut(name) {
            application.outputs.clear();
        }
    }

    /// Lets go of outputs that end with their file's name and whose file was deleted, and of applications that have nothing else here.
    pub(crate) fn sweep(&mut self) {
        for application in self.applications.values_mut() {
            application.outputs.retain(|_, output| !output.is_over());
        }
        self.applications.retain(|_, it| it.programs > 0 || !it.outputs.is_empty());
    }

    /// The output that somebody asks for who proves that he knows the token.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], also for a wrong proof: a peer without one learns no names.
    pub(crate) fn find(&self, name: &Name, proof: Proof, output: &Name) -> Result<Arc<Output>, Refusal> {
        let application = self.applications.get(name).filter(|it| it.proof == proof);
        let output = application.and_then(|it| it.outputs.get(output));
        output.cloned().ok_or(Refusal::Unknown)
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

    fn output(ranges: &[(u64, u64)]) -> Output {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        Output::new(file, ranges.iter().map(|(offset, length)| range(*offset, *length)).collect()).unwrap()
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
        registry.drop_outputs(&job);
        registry.leave(&job);
        assert_eq!(registry.count(), (0, 0));
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
        assert_eq!(registry.register(&name("b"), name("two"), output(&[])), Err(Refusal::Quota));
        registry.register(&name("c"), name("two"), output(&[])).unwrap();
    }

    #[test]
    fn an_output_that_ends_with_its_name_is_let_go_of_when_the_file_is_deleted() {
        let mut registry = Registry::new(Quotas::default());
        let (job, token) = (name("job"), proof(b"t"));
        registry.enter(1, &job, token).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.out");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = || Output::new(std::fs::File::open(&path).unwrap(), vec![range(0, 100)]).unwrap();
        registry.register(&job, name("hadoop"), file().while_named()).unwrap();
        registry.register(&job, name("other"), file()).unwrap();
        registry.leave(&job);
        registry.sweep();
        assert_eq!(registry.count(), (1, 2), "the file is there");
        let reading = registry.find(&job, token, &name("hadoop")).unwrap();
        std::fs::remove_file(&path).unwrap();
        registry.sweep();
        assert_eq!(registry.count(), (1, 1));
        assert!(registry.find(&job, token, &name("other")).is_ok(), "others outlive their names");
        assert_eq!(reading.part(0, 1).map(|it| it.length.get()), Ok(100), "whoever reads it reads on");
        registry.unregister(&job, &name("other")).unwrap();
        registry.sweep();
        assert_eq!(registry.count(), (0, 0));
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
