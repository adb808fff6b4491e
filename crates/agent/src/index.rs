//! Where the partitions of an output lie, from the index files of Hadoop and Spark.

use headwater_units::Bytes;

use crate::client_frames::Range;
use crate::refusal::Refusal;

/// The longest index file: a million partitions of Hadoop.
pub(crate) const LONGEST: u64 = 24 << 20;

/// Hadoop's `file.out.index` (`SpillRecord`): of each partition its offset, raw length and length, 64 bits each, big-endian; then a
/// checksum of 64 bits, which is not looked at here: the reader checks the bytes themselves.
///
/// # Errors
/// [`Refusal::BadIndex`].
pub(crate) fn hadoop(bytes: &[u8]) -> Result<Vec<Range>, Refusal> {
    let records = bytes.len().checked_sub(8).filter(|len| len.is_multiple_of(24)).ok_or(Refusal::BadIndex)?;
    let numbers = numbers(&bytes[..records]);
    let range = |of: &[u64]| Range { offset: Bytes::new(of[0]), length: Bytes::new(of[2]), info: of[1] };
    let ranges: Vec<Range> = numbers.chunks_exact(3).map(range).collect();
    bounded(ranges)
}

/// Spark's `shuffle_*.index`: the offset of each partition and the end of the last, 64 bits each, big-endian.
///
/// # Errors
/// [`Refusal::BadIndex`].
pub(crate) fn spark(bytes: &[u8]) -> Result<Vec<Range>, Refusal> {
    if bytes.len() < 8 || !bytes.len().is_multiple_of(8) {
        return Err(Refusal::BadIndex);
    }
    let offsets = numbers(bytes);
    let range = |pair: &[u64]| {
        let length = pair[1].checked_sub(pair[0]).ok_or(Refusal::BadIndex)?;
        Ok(Range { offset: Bytes::new(pair[0]), length: Bytes::new(length), info: length })
    };
    bounded(offsets.windows(2).map(range).collect::<Result<_, Refusal>>()?)
}

/// No range may end past what 63 bits can count.
///
/// # Errors
/// [`Refusal::BadIndex`].
pub(crate) fn bounded(ranges: Vec<Range>) -> Result<Vec<Range>, Refusal> {
    let fits = |range: &Range| {
        range.offset.get().checked_add(range.length.get()).is_some_and(|end| i64::try_from(end).is_ok())
    };
    if ranges.iter().all(fits) { Ok(ranges) } else { Err(Refusal::BadIndex) }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let number = |at: &[u8]| u64::from_be_bytes(at.try_into().expect("8 bytes"));
    bytes.chunks_exact(8).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|it| it.to_be_bytes()).collect()
    }

    fn range(offset: u64, length: u64, info: u64) -> Range {
        Range { offset: Bytes::new(offset), length: Bytes::new(length), info }
    }

    #[test]
    fn partitions_of_hadoop_and_spark_are_read_from_their_files() {
        let ranges = hadoop(&file(&[0, 50, 20, 20, 9, 3, 0xc4ec])).unwrap();
        assert_eq!(ranges, [range(0, 20, 50), range(20, 3, 9)]);
        assert_eq!(
            spark(&file(&[0, 20, 20, 23])).unwrap(),
            [range(0, 20, 20), range(20, 0, 0), range(20, 3, 3)]
        );
        assert_eq!(spark(&file(&[0])).unwrap(), []);
    }

    #[test]
    fn an_index_that_makes_no_sense_is_refused() {
        assert_eq!(hadoop(&[]), Err(Refusal::BadIndex));
        assert_eq!(hadoop(&[0; 30]), Err(Refusal::BadIndex));
        assert_eq!(spark(&[]), Err(Refusal::BadIndex));
        assert_eq!(spark(&file(&[0, 9, 3])), Err(Refusal::BadIndex));
        assert_eq!(spark(&file(&[0, u64::MAX])), Err(Refusal::BadIndex));
        assert_eq!(hadoop(&file(&[u64::MAX, 1, 1, 0])), Err(Refusal::BadIndex));
    }
}
