//! A torrent file of one object, for peers that speak BitTorrent: bencoded, SHA-1 per piece, without a tracker (BEP 3).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha1::{Digest, Sha1};

use headwater_api::AppError;

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// The torrent of the file at `path`, which others will call `name`.
pub(super) fn torrent(path: &Path, name: &str) -> Result<Vec<u8>, AppError> {
    let failed = |error| AppError::io(format!("cannot read {}", path.display()), error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut length, mut pieces, mut piece) = (0, Vec::new(), Vec::new());
    loop {
        piece.clear();
        let read = file.by_ref().take(PIECE as u64).read_to_end(&mut piece).map_err(failed)?;
        if read == 0 {
            return Ok(bencode(name, length, &pieces));
        }
        length += read;
        pieces.extend_from_slice(&Sha1::digest(&piece));
    }
}

/// Keys of a dictionary stand in their order as bytes.
fn bencode(name: &str, length: usize, pieces: &[u8]) -> Vec<u8> {
    let mut text = format!("d4:infod6:lengthi{length}e4:name{}:{name}", name.len()).into_bytes();
    text.extend(format!("12:piece lengthi{PIECE}e6:pieces{}:", pieces.len()).into_bytes());
    text.extend_from_slice(pieces);
    text.extend(b"ee");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torrent_has_the_hash_of_every_piece_the_last_short_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut bytes = vec![7; PIECE];
        bytes.extend(b"abc");
        std::fs::write(&path, bytes).unwrap();
        let made = torrent(&path, "object.bin").unwrap();
        let begin = b"d4:infod6:lengthi1048579e4:name10:object.bin12:piece lengthi1048576e6:pieces40:";
        assert!(made.starts_with(begin), "{}", String::from_utf8_lossy(&made));
        let hashes = &made[begin.len()..made.len() - 2];
        assert_eq!(hashes.len(), 40);
        // SHA-1 of "abc", FIPS 180.
        assert_eq!(hashes[20..24], [0xa9, 0x99, 0x3e, 0x36]);
        assert!(made.ends_with(b"ee"));
    }
}
