//! Goal: our repair symbols are those of RFC 6330, bit by bit, and another implementation's symbols decode here.
//! Where the numbers come from is told in `vectors/README.md`.

mod common;

use std::path::Path;

use common::{Random, generated_block, generated_encoder, shape, symbol};
use headwater_codec::{Assembler, BlockShape, Decoder, Inserted, text};
use headwater_units::Esi;

struct Vector {
    name: String,
    shape: BlockShape,
    repair: Vec<(u32, Vec<u8>)>,
    text: String,
}

fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt"))
        .collect();
    names.sort();
    names.into_iter().map(|name| read(&folder, name)).collect()
}

fn read(folder: &Path, name: String) -> Vector {
    let [k, bytes, size] = ["k", "bytes", "symbol"].map(|key| {
        let part = name.trim_end_matches(".txt").split('-').find_map(|part| part.strip_prefix(key));
        part.unwrap().parse::<u64>().unwrap()
    });
    let shape = shape(bytes, size as u16);
    assert_eq!(u64::from(shape.source_symbols()), k, "{name}");
    let text = std::fs::read_to_string(folder.join(&name)).unwrap();
    let repair = text.lines().map(|line| {
        let (esi, hex) = line.split_once(' ').unwrap();
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (esi.parse().unwrap(), (0..hex.len()).step_by(2).map(byte).collect())
    });
    Vector { repair: repair.collect(), name, shape, text }
}

#[test]
fn every_k_of_the_vectors_is_there() {
    let ks: Vec<u32> = vectors().iter().map(|vector| vector.shape.source_symbols()).collect();
    assert_eq!(ks, [10, 100, 1000, 11, 185, 256, 26, 51]);
}

#[test]
fn repair_symbols_are_bit_equal_to_another_implementations() {
    for vector in vectors() {
        let encoder = generated_encoder(vector.shape);
        for (esi, expected) in &vector.repair {
            assert_eq!(&symbol(&encoder, *esi), expected, "{} ESI {esi}", vector.name);
        }
    }
}

#[test]
fn another_implementations_repair_symbols_fill_in_for_lost_source_symbols() {
    let mut random = Random(1);
    for vector in vectors() {
        let (shape, encoder) = (vector.shape, generated_encoder(vector.shape));
        let k = shape.source_symbols();
        for lost in [1, 5, (vector.repair.len() as u32).min(k) - 2] {
            let mut assembler = Assembler::new(shape);
            for &esi in &random.shuffled(0..k)[lost as usize..] {
                assert_eq!(assembler.insert(Esi(esi), &symbol(&encoder, esi)), Ok(Inserted::New));
            }
            // Two more than lost: fails once in a million times, and the seed is fixed.
            for (esi, bytes) in random.shuffled(&vector.repair).into_iter().take(lost as usize + 2) {
                assert_eq!(assembler.insert(Esi(*esi), bytes), Ok(Inserted::New));
            }
            let block = assembler.finish();
            assert_eq!(block, Ok(&*generated_block(shape.block_bytes().get())), "{} - {lost}", vector.name);
        }
    }
}

#[test]
fn repair_symbols_alone_give_the_block_through_the_text_form_too() {
    for vector in vectors().iter().filter(|v| v.repair.len() as u32 > v.shape.source_symbols()) {
        let (bytes, size) = (vector.shape.block_bytes(), vector.shape.symbol_size());
        let mut block = Vec::new();
        text::decode_block(vector.text.as_bytes(), bytes, size, &mut block).unwrap();
        assert!(block == generated_block(bytes.get()), "{}", vector.name);
    }
}
