//! Content of the files, and what happens when they cannot be written.
#![allow(clippy::disallowed_methods, reason = "waits for the writer")]

use super::*;

fn start(folder: &Path, links: &[&str], snap: usize) -> (Capture, Recorder) {
    let (capture, mut recorder) =
        Capture::start(folder, links.iter().map(|it| it.to_string()), snap).unwrap();
    recorder.begin(1_700_000_000_999_999_999);
    (capture, recorder)
}

#[test]
fn a_file_is_what_the_format_says_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, mut recorder) = start(folder.path(), &["a-b", "b-a"], 4);
    recorder.keep(LinkId(1), Time::from_nanos(3), &[7, 8, 9, 10, 11, 12]);
    recorder.keep(LinkId(1), Time::from_nanos(3_000_000_001), &[1]);
    assert_eq!(recorder.counts(), CaptureCounts { frames: 2, missed: 0 });
    drop(recorder);
    capture.finish().unwrap();
    // draft-ietf-opsawg-pcap, figures 1 and 2: 0xa1b23c4d, 2.4, 0, 0, 4 bytes at most, Ethernet.
    let head = [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0];
    let mut wanted = head.to_vec();
    // 1,700,000,000.999999999 s and 3 ns; 0x6553f101 is the second after it.
    wanted.extend([0x01, 0xf1, 0x53, 0x65, 2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 7, 8, 9, 10]);
    wanted.extend([0x04, 0xf1, 0x53, 0x65, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(fs::read(folder.path().join("b-a.pcap")).unwrap(), wanted);
    assert_eq!(fs::read(folder.path().join("a-b.pcap")).unwrap(), head);
}

#[test]
fn what_is_old_is_written_in_a_quiet_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (_capture, mut recorder) = start(folder.path(), &["a-b"], 64);
    recorder.keep(LinkId(0), Time::ZERO, &[0; 60]);
    let len = || fs::metadata(folder.path().join("a-b.pcap")).unwrap().len();
    recorder.idle(Time::ZERO + Duration::from_millis(99));
    thread::sleep(LOOK * 10);
    assert_eq!(len(), 24);
    recorder.idle(Time::ZERO + Duration::from_millis(100));
    while len() != 24 + 16 + 60 {
        thread::sleep(LOOK);
    }
}

/// Goal: a writer that does not get on costs frames, which are counted, and neither memory nor time.
#[test]
fn what_finds_no_room_is_missed_and_counted() {
    let (full, inbox) = sync_channel(CHUNKS);
    let (empties, empty) = sync_channel(CHUNKS);
    empties.send(Chunk { bytes: Vec::with_capacity(CHUNK), since: Time::ZERO }).unwrap();
    let counts = CaptureCounts::default();
    let mut recorder = Recorder { snap: 128, zero_ns: 0, chunk: None, full, empty, counts };
    let fit = (CHUNK / (LINK + RECORD + 128)) as u64;
    (0..fit + 10).for_each(|_| recorder.keep(LinkId(0), Time::ZERO, &[0; 1500]));
    assert_eq!(recorder.counts(), CaptureCounts { frames: fit, missed: 10 });
    let mut chunk = inbox.try_recv().unwrap();
    assert_eq!((chunk.bytes.len(), chunk.bytes.capacity()), (fit as usize * 148, CHUNK));
    chunk.bytes.clear();
    empties.send(chunk).unwrap();
    recorder.keep(LinkId(0), Time::ZERO, &[0; 1500]);
    assert_eq!(recorder.counts(), CaptureCounts { frames: fit + 1, missed: 10 });
}

/// Goal: a file that cannot be written is an error in the end, and meanwhile frames are counted as missed.
#[test]
fn a_failed_write_is_told_and_what_follows_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, mut recorder) = start(folder.path(), &["a-b"], 64);
    fs::remove_file(folder.path().join("a-b.pcap")).unwrap();
    while recorder.counts().missed == 0 {
        recorder.keep(LinkId(0), Time::ZERO, &[0; 60]);
    }
    drop(recorder);
    assert_eq!(capture.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn links_of_one_name_and_names_that_are_paths_get_files_of_their_own() {
    let names = ["s-t", "s-t", "s-t-2", "../x-/y", "ä b-c"].map(str::to_owned);
    let wanted = ["s-t", "s-t-2", "s-t-2-2", ".._x-_y", "ä_b-c"].map(|it| format!("{it}.pcap"));
    assert_eq!(file_names(names), wanted);
}
