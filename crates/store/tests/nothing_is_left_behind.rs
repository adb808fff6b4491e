//! Folders and their files, what failed, what was received: it goes when nothing needs it, and not before.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_store::{
    BlockHashes, FolderListing, Gathering, GcOptions, NameFacts, NameStanding, Partial, Placed, PutOptions,
    Store, StoreError, StoreOptions, Stored,
};
use headwater_units::{BlockIndex, Bytes, ObjectId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tempfile::TempDir;

const NOW: u64 = 1_800_000_000;
const EXPLICIT: GcOptions = GcOptions { dry_run: false, now_unix_secs: NOW, keep_unfinished_secs: 0 };
const BY_ITSELF: GcOptions = GcOptions { keep_unfinished_secs: 86_400, ..EXPLICIT };

struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        Sandbox { folder: tempfile::tempdir().unwrap() }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn open(&self) -> Store {
        Store::open(&self.path("store"), StoreOptions::default()).unwrap()
    }
    /// A folder with files of these contents.
    fn folder(&self, name: &str, contents: &[&str]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        for (n, content) in contents.iter().enumerate() {
            fs::write(path.join(format!("file{n}")), content).unwrap();
        }
        path
    }
    /// Number of files in the store's folders, beside the index.
    fn files(&self) -> usize {
        let count = |sub: &str| fs::read_dir(self.path("store").join(sub)).unwrap().count();
        ["objects", "tmp", "incoming"].into_iter().map(count).sum()
    }
    fn rot(&self, id: ObjectId) {
        let path = self.path("store/objects").join(id.to_string());
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
}

fn id_of(content: &str) -> ObjectId {
    BlockHashes::of_bytes(content.as_bytes()).root()
}

fn named(name: &str) -> PutOptions<'_> {
    PutOptions { name: Some(name), added_unix_secs: NOW, ..PutOptions::default() }
}

fn put(store: &Store, path: &Path, options: &PutOptions<'_>) -> Stored {
    store.put(path, options, &mut |_| {}).unwrap()
}

/// Puts the files of a folder, and gives its manifest.
fn put_files(store: &Store, folder: &Path, gathering: &Gathering) -> Vec<u8> {
    let part = PutOptions { part_of: Some(gathering), added_unix_secs: NOW, ..PutOptions::default() };
    let mut each = |path: &Path, _: &mut dyn FnMut(Bytes)| Ok(put(store, path, &part).hashes);
    let listing = FolderListing::of(folder).unwrap();
    listing.scan(false, &mut each, &mut |_| {}).unwrap().encode()
}

fn put_folder(store: &Store, folder: &Path, name: &str) -> ObjectId {
    let gathering = store.gather(false);
    let manifest = put_files(store, folder, &gathering);
    let put = store.put_reader(&mut manifest.as_slice(), folder, &named(name), &mut |_| {});
    put.unwrap().hashes.root()
}

#[test]
fn a_folder_goes_with_those_of_its_files_that_nothing_else_needs() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    put_folder(&store, &sandbox.folder("a", &["only a", "both", "also by itself"]), "a");
    put_folder(&store, &sandbox.folder("b", &["both", "only b"]), "b");
    let file = sandbox.path("by itself");
    fs::write(&file, "also by itself").unwrap();
    put(&store, &file, &named("itself"));
    assert_eq!(sandbox.files(), 6);
    let removed = store.rm("a").unwrap();
    assert_eq!(removed.objects.len(), 2, "its manifest, and one file");
    assert!(removed.objects.contains(&id_of("only a")));
    assert!(store.open_object(id_of("both")).is_ok() && store.lookup("itself").is_ok());
    let used = store.used();
    let removed = store.rm("b").unwrap();
    assert_eq!(removed.freed, Some(used - Bytes::new("also by itself".len() as u64)));
    store.rm("itself").unwrap();
    assert_eq!((sandbox.files(), store.used()), (0, Bytes::ZERO));
}

#[test]
fn a_file_that_a_folder_needs_loses_its_name_and_stays_until_the_folder_goes() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let folder = sandbox.folder("a", &["content"]);
    let file = put(&store, &folder.join("file0"), &named("file")).hashes.root();
    let folder = put_folder(&store, &folder, "a");
    let removed = store.rm("file").unwrap();
    assert_eq!((removed.freed, removed.names, removed.objects.len()), (None, vec!["file".to_owned()], 0));
    assert!(store.open_object(file).is_ok());
    let refused = store.rm(&file.to_string()).unwrap_err();
    assert!(matches!(refused, StoreError::PartOfFolder { id, folder: of } if (id, of) == (file, folder)));
    store.rm("a").unwrap();
    assert_eq!(sandbox.files(), 0);
}

#[test]
fn what_was_put_or_kept_by_itself_is_no_garbage_though_it_has_no_name() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let file = sandbox.path("file");
    fs::write(&file, "content").unwrap();
    put(&store, &file, &PutOptions::default());
    // And what came first as part of a folder, if it is kept by its id later.
    let folder = sandbox.folder("a", &["part", "other"]);
    put_folder(&store, &folder, "a");
    put(&store, &folder.join("file0"), &PutOptions::default());
    store.rm("a").unwrap();
    assert_eq!(store.gc(EXPLICIT, &|_| false).unwrap().objects, []);
    let left: Vec<ObjectId> = store.ls().unwrap().into_iter().map(|o| o.id).collect();
    let mut expected = [id_of("content"), id_of("part")];
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn files_of_a_folder_that_came_to_nothing_go_and_those_that_others_need_stay() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    put_folder(&store, &sandbox.folder("a", &["shared"]), "a");
    let gathering = store.gather(false);
    put_files(&store, &sandbox.folder("b", &["shared", "new"]), &gathering);
    assert_eq!(store.gc(EXPLICIT, &|_| false).unwrap().objects, [], "nothing that is being gathered");
    assert_eq!(store.give_up(gathering).unwrap(), [id_of("new")]);
    assert!(store.open_object(id_of("shared")).is_ok());
}

#[test]
fn a_folder_that_is_being_put_keeps_files_that_another_removal_frees() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let folder = sandbox.folder("a", &["shared"]);
    put_folder(&store, &folder, "a");
    let gathering = store.gather(false);
    let manifest = put_files(&store, &sandbox.folder("b", &["shared"]), &gathering);
    store.rm("a").unwrap();
    store.put_reader(&mut manifest.as_slice(), &folder, &named("b"), &mut |_| {}).unwrap();
    drop(gathering);
    store.gc(EXPLICIT, &|_| false).unwrap();
    assert!(store.open_object(id_of("shared")).is_ok());
}

#[test]
fn after_a_crash_the_files_of_a_put_go_at_once_and_those_of_a_transfer_only_when_it_is_old() {
    let sandbox = Sandbox::new();
    let (put, fetched) = (sandbox.folder("a", &["put"]), sandbox.folder("b", &["fetched"]));
    {
        let store = sandbox.open();
        // Killed before their manifests: nobody gives them up.
        put_files(&store, &put, &store.gather(false));
        put_files(&store, &fetched, &store.gather(true));
    }
    let store = sandbox.open();
    let dry = GcOptions { dry_run: true, ..EXPLICIT };
    assert_eq!(store.gc(dry, &|_| false).unwrap().objects.len(), 2);
    assert_eq!(sandbox.files(), 2, "it was only asked");
    assert_eq!(store.gc(BY_ITSELF, &|_| false).unwrap().objects, [id_of("put")]);
    let later = GcOptions { now_unix_secs: NOW + 86_400, ..BY_ITSELF };
    assert_eq!(store.gc(later, &|id| id == id_of("fetched")).unwrap().objects, [], "it is being sent");
    assert_eq!(store.gc(later, &|_| false).unwrap().objects, [id_of("fetched")]);
    assert_eq!((sandbox.files(), store.used()), (0, Bytes::ZERO));
}

#[test]
fn while_a_folder_cannot_be_read_no_file_of_a_folder_goes() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let folder = sandbox.folder("a", &["content"]);
    let id = put_folder(&store, &folder, "a");
    put_files(&store, &sandbox.folder("b", &["left over"]), &store.gather(false));
    sandbox.rot(id);
    let collected = store.gc(EXPLICIT, &|_| false).unwrap();
    assert_eq!((collected.objects.len(), collected.unreadable), (0, vec![id]));
    assert_eq!(put_folder(&store, &folder, "a"), id, "putting it again heals it");
    assert_eq!(store.gc(EXPLICIT, &|_| false).unwrap().objects, [id_of("left over")]);
}

#[test]
fn transfers_that_nobody_goes_on_with_are_removed_and_those_under_way_are_not() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let begun = |content: &[u8]| {
        let hashes = BlockHashes::of_bytes(content);
        let first = hashes.layout().len(BlockIndex(0)).get() as usize;
        let partial = Partial::open_or_create(store.incoming(hashes).unwrap(), &mut |_| {}).unwrap();
        partial.write_block(BlockIndex(0), &content[..first]).unwrap();
        partial
    };
    drop(begun(&[1; 500_000]));
    let under_way = begun(&[2; 500_000]);
    fs::write(sandbox.path("store/incoming/.nobody.knows.partial"), [3; 10_000]).unwrap();
    // Their files are of today, which lies before NOW.
    assert_eq!(
        store.gc(GcOptions { keep_unfinished_secs: NOW, ..EXPLICIT }, &|_| false).unwrap().partials,
        0
    );
    let dry = store.gc(GcOptions { dry_run: true, now_unix_secs: u64::MAX, ..EXPLICIT }, &|_| false).unwrap();
    let collected = store.gc(GcOptions { now_unix_secs: u64::MAX, ..EXPLICIT }, &|_| false).unwrap();
    assert_eq!(dry, collected);
    assert_eq!(collected.partials, 2);
    assert!(collected.partial_bytes >= Bytes::new(64 << 10));
    assert_eq!(sandbox.files(), 2, "data and record of the one under way");
    assert_eq!(under_way.have().count(), 1);
}

#[test]
fn a_rotten_copy_is_healed_by_putting_the_object_again() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("file");
    fs::write(&file, "content").unwrap();
    let small = StoreOptions { quota: Some(Bytes::new(10)) };
    for options in [StoreOptions::default(), small] {
        let store = Store::open(&sandbox.path("store"), options).unwrap();
        let id = put(&store, &file, &named("it")).hashes.root();
        store.verify(id).unwrap();
        sandbox.rot(id);
        assert!(matches!(store.verify(id), Err(StoreError::ObjectDamaged { .. })));
        let stored = put(&store, &file, &named("it"));
        assert!(stored.healed && stored.placed != Placed::AlreadyHere, "{stored:?}");
        store.verify(id).unwrap();
        let again = put(&store, &file, &named("it"));
        assert!(!again.healed && again.placed == Placed::AlreadyHere);
        assert_eq!((store.used(), store.lookup("it").unwrap().id), (Bytes::new(7), id));
    }
}

#[test]
fn a_name_counts_how_often_it_was_given_and_a_copy_counts_for_less() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let file = sandbox.path("file");
    let given = |content: &str, naming| {
        fs::write(&file, content).unwrap();
        put(&store, &file, &PutOptions { naming, ..named("prod") });
        let facts = store.name_facts("prod").unwrap().unwrap();
        assert_eq!(facts.object, id_of(content));
        (facts.generation, facts.standing)
    };
    assert_eq!(given("1", NameStanding::Given), (1, NameStanding::Given));
    assert_eq!(given("2", NameStanding::Given), (2, NameStanding::Given));
    assert_eq!(given("2", NameStanding::Given), (2, NameStanding::Given), "the same again is the same");
    let facts = NameFacts { object: id_of("2"), generation: 7, owner: None, standing: NameStanding::Granted };
    store.set_name("prod", &facts).unwrap();
    assert_eq!(given("2", NameStanding::Replacing), (7, NameStanding::Granted));
    assert_eq!(given("3", NameStanding::Replacing), (8, NameStanding::Replacing));
    assert_eq!(given("4", NameStanding::Copied), (1, NameStanding::Copied));
    assert_eq!(given("4", NameStanding::Given), (1, NameStanding::Given));
    assert!(!store.unname("prod", id_of("3")).unwrap(), "it points elsewhere");
    assert!(store.unname("prod", id_of("4")).unwrap());
    assert!(store.lookup("prod").is_err() && store.open_object(id_of("4")).is_ok());
}

#[test]
fn sixty_four_hex_digits_are_an_id_and_no_name() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let file = sandbox.path("file");
    fs::write(&file, "content").unwrap();
    let other = id_of("other").to_string();
    let refused = store.put(&file, &named(&other), &mut |_| {});
    assert!(matches!(refused, Err(StoreError::BadName { .. })), "{refused:?}");
    put(&store, &file, &named("20261124"));
    assert!(store.lookup("20261124").is_ok(), "digits that may begin an id are a name");
    assert!(matches!(store.lookup(&other), Err(StoreError::NotFound { .. })));
}

#[test]
fn a_store_of_an_older_version_keeps_its_names_and_learns_what_belongs_to_its_folders() {
    const OLD: TableDefinition<&str, [u8; 32]> = TableDefinition::new("names 1");
    const NEW: TableDefinition<&str, &[u8]> = TableDefinition::new("names 2");
    let sandbox = Sandbox::new();
    let folder = {
        let store = sandbox.open();
        let file = sandbox.path("file");
        fs::write(&file, "by itself").unwrap();
        put(&store, &file, &named("it"));
        put(&store, &file, &named("it too"));
        fs::write(&file, "nameless").unwrap();
        put(&store, &file, &PutOptions::default());
        put_folder(&store, &sandbox.folder("a", &["part"]), "a")
    };
    let database = Database::open(sandbox.path("store/index.redb")).unwrap();
    let names: Vec<String> = {
        let table = database.begin_read().unwrap().open_table(NEW).unwrap();
        table.iter().unwrap().map(|row| row.unwrap().0.value().to_owned()).collect()
    };
    let write = database.begin_write().unwrap();
    for name in &names {
        let id = if name == "a" { folder } else { id_of("by itself") };
        write.open_table(OLD).unwrap().insert(&name[..], id.0).unwrap();
    }
    write.delete_table(TableDefinition::<[u8; 32], bool>::new("parts 1")).unwrap();
    write.delete_table(TableDefinition::<[u8; 32], ()>::new("folders 1")).unwrap();
    write.delete_table(NEW).unwrap();
    write.commit().unwrap();
    drop(database);

    for _ in 0..2 {
        let store = sandbox.open();
        let found: Vec<String> = store.names().unwrap().into_keys().collect();
        assert_eq!(found, ["a", "it", "it too"]);
        assert_eq!(store.lookup("it").unwrap().id, id_of("by itself"));
        let facts = store.name_facts("a").unwrap().unwrap();
        assert_eq!((facts.object, facts.generation, facts.standing), (folder, 1, NameStanding::Copied));
    }
    let store = sandbox.open();
    assert_eq!(store.rm("a").unwrap().objects.len(), 2, "the folder's file goes with it");
    store.gc(EXPLICIT, &|_| false).unwrap();
    assert!(store.open_object(id_of("nameless")).is_ok(), "nobody knows that it is garbage");
}
