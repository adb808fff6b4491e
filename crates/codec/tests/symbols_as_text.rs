//! Goal: symbols written as lines come back as the block, and a bad line is named with its number.

mod common;

use std::io::Cursor;

use common::{Random, generated_block, shape};
use headwater_codec::text::{EsiRange, LineProblem, TextError, decode_block, write_symbols};
use headwater_codec::{BlockEncoder, CodecError, NeedMore};
use headwater_units::{BlockIndex, Bytes, Esi};

fn written(object: &[u8], block: u32, symbol_size: u16, esis: &str) -> Result<String, TextError> {
    let (mut out, esis) = (Vec::new(), esis.parse().unwrap());
    write_symbols(&mut Cursor::new(object), BlockIndex(block), symbol_size, esis, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn decoded(lines: &str, block_bytes: u64, symbol_size: u16) -> Result<Vec<u8>, TextError> {
    let mut out = Vec::new();
    let result = decode_block(lines.as_bytes(), Bytes::new(block_bytes), symbol_size, &mut out);
    assert!(result.is_ok() || out.is_empty(), "nothing is written but a whole block");
    result.map(|()| out)
}

fn problem(lines: &str) -> (u64, LineProblem) {
    match decoded(lines, 40, 4) {
        Err(TextError::Line { line, problem }) => (line, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_is_the_esi_and_the_bytes_in_hex() {
    let text = written(&generated_block(80), 0, 8, "0-1").unwrap();
    assert_eq!(text, "0 030b15212f3f5165\n1 7b93adc9e70c2e52\n");
    // As lcrq has it, see tests/vectors/README.md.
    assert_eq!(written(&generated_block(80), 0, 8, "10").unwrap(), "10 f43c36999c9b05da\n");
}

#[test]
fn a_block_comes_back_from_lines_in_any_order_whatever_the_symbol_size() {
    let object = generated_block((256 << 10) + 777);
    let last = &object[256 << 10..];
    for symbol_size in [1, 7, 10, 13, 776, 777, 1376] {
        let text = written(&object, 1, symbol_size, "1-900").unwrap();
        let lines = Random(symbol_size.into()).shuffled(text.lines()).join("\n");
        assert_eq!(decoded(&lines, 777, symbol_size).unwrap(), last, "T = {symbol_size}");
    }
    let text = written(&object, 0, 1376, "10-205").unwrap();
    assert!(decoded(&text, 256 << 10, 1376).unwrap() == object[..256 << 10]);
}

#[test]
fn blank_lines_duplicates_upper_case_and_crlf_are_fine() {
    let object = generated_block(40);
    let text = written(&object, 0, 4, "1-12").unwrap();
    let messy = format!("\r\n  \n{}\n\n\t{text}", text.to_uppercase().replace('\n', " \r\n"));
    assert_eq!(decoded(&messy, 40, 4).unwrap(), object);
    assert_eq!(decoded(text.trim_end(), 40, 4).unwrap(), object, "the last line needs no end");
}

#[test]
fn too_few_symbols_say_how_many_there_are_and_how_many_are_needed() {
    let text = written(&generated_block(40), 0, 4, "3-9").unwrap();
    let error = decoded(&format!("{text}{text}"), 40, 4).unwrap_err();
    assert!(matches!(error, TextError::NeedMore(NeedMore { have: 7, at_least: 3, source_symbols: 10 })));
    assert_eq!(
        error.to_string(),
        "7 symbols are too few for a block of 10 source symbols: at least 3 more are needed"
    );
}

#[test]
fn bad_lines_are_named_with_their_number() {
    let digits = |got| LineProblem::Length { got, symbol_size: 4 };
    assert_eq!(problem("0 00000000\n\nx 00000000"), (3, LineProblem::Esi("x".into())));
    assert_eq!(problem("16777216 00000000"), (1, LineProblem::Esi("16777216".into())));
    assert_eq!(problem("-1 00000000"), (1, LineProblem::Esi("-1".into())));
    assert_eq!(problem("+1 00000000"), (1, LineProblem::Esi("+1".into())));
    assert_eq!(problem("7"), (1, LineProblem::NoBytes));
    assert_eq!(problem("7 0011223"), (1, digits(7)));
    assert_eq!(problem("7 0011223344"), (1, digits(10)));
    assert_eq!(problem("7 00g12233"), (1, LineProblem::NotHex { character: 'g', digit: 3 }));
    assert_eq!(problem("7 00\u{e9}1223").1, LineProblem::NotHex { character: '\u{fffd}', digit: 3 });
    assert_eq!(problem("7 00112233 1"), (1, LineProblem::Trailing));
    assert_eq!(problem(&format!("1 00000000\n{}", "0".repeat(1 << 20))), (2, LineProblem::TooLong(72)));
    assert_eq!(problem("7 00112233\n7 00112234"), (2, LineProblem::Conflict(Esi(7))));
    let error = decoded("9 00000001", 38, 4).unwrap_err().to_string();
    assert_eq!(error, "line 1: the padding of source symbol 9 is not zero");
}

#[test]
fn symbols_beyond_all_use_are_read_past() {
    let encoder = BlockEncoder::new(shape(40, 4), generated_block(40)).unwrap();
    let text = written(encoder.block(), 0, 4, "10-300").unwrap();
    assert_eq!(decoded(&text, 40, 4).unwrap(), encoder.block());
}

#[test]
fn blocks_and_sizes_that_do_not_exist_are_errors() {
    let object = generated_block(100);
    assert!(matches!(written(&object, 1, 8, "0"), Err(TextError::NoSuchBlock { blocks: 1, .. })));
    assert!(matches!(written(&[], 0, 8, "0"), Err(TextError::NoSuchBlock { blocks: 0, .. })));
    assert!(matches!(written(&object, 0, 0, "0"), Err(TextError::Codec(CodecError::ZeroSymbolSize))));
    assert!(matches!(decoded("", 0, 8), Err(TextError::Codec(CodecError::EmptyBlock))));
    assert!(matches!(decoded("", 1 << 40, 8), Err(TextError::Codec(CodecError::TooManySymbols { .. }))));
}

#[test]
fn a_range_of_esis_includes_both_ends() {
    let esis =
        |text: &str| text.parse::<EsiRange>().map(|range| range.iter().map(|e| e.0).collect::<Vec<_>>());
    assert_eq!(esis("3-5"), Ok(vec![3, 4, 5]));
    assert_eq!(esis("16777215"), Ok(vec![16_777_215]));
    for bad in ["5-3", "0-16777216", "", "-", "1-", "a-b", "1-2-3"] {
        assert!(esis(bad).unwrap_err().to_string().contains("A-B"), "{bad}");
    }
}
