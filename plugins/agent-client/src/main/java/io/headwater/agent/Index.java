package io.headwater.agent;

import java.nio.file.Path;
import java.util.List;

/** Where the partitions of an output lie in its file. */
public sealed interface Index {
  /** Partitions that the program lists itself, at most {@link #MOST_RANGES}. */
  record Ranges(List<Range> ranges) implements Index {
    /** Checks the bound and copies. */
    public Ranges {
      ranges = List.copyOf(ranges);
      if (ranges.size() > MOST_RANGES) {
        throw new IllegalArgumentException(ranges.size() + " ranges: use an index file");
      }
    }
  }

  /** An index file as Hadoop writes it ({@code file.out.index}). The info of a partition is its raw length. */
  record Hadoop(Path file) implements Index {}

  /** An index file as Spark writes it. The info of a partition is its length. */
  record Spark(Path file) implements Index {}

  /** The most ranges that one frame lists. */
  int MOST_RANGES = 4096;
}
