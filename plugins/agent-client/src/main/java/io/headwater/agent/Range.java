package io.headwater.agent;

/**
 * A part of an output that is fetched as one.
 *
 * @param offset where it begins in the file
 * @param length bytes
 * @param info what the reader is told before the first byte, such as the length after decompression
 */
public record Range(long offset, long length, long info) {
  /** Checks that the file can have such a part. */
  public Range {
    if (offset < 0 || length < 0 || offset + length < 0) {
      throw new IllegalArgumentException("no part of a file: offset " + offset + ", length " + length);
    }
  }
}
