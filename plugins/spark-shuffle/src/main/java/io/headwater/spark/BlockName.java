package io.headwater.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Partitions of one map output, as Spark names them: {@code shuffle_1_17_4}, or {@code shuffle_1_17_4_9} for those before the ninth.
 *
 * @param map the map task
 * @param count how many partitions, at least 1
 */
record BlockName(int shuffle, long map, int first, int count) {
  private static final Pattern NAME = Pattern.compile("shuffle_(\\d+)_(\\d+)_(\\d+)(?:_(\\d+))?");

  /** Null for whatever else Spark fetches, such as merged chunks. */
  static BlockName parse(String block) {
    Matcher matcher = NAME.matcher(block);
    if (!matcher.matches()) {
      return null;
    }
    try {
      int first = Integer.parseInt(matcher.group(3));
      int end = matcher.group(4) == null ? first + 1 : Integer.parseInt(matcher.group(4));
      if (end <= first) {
        return null;
      }
      return new BlockName(Integer.parseInt(matcher.group(1)), Long.parseLong(matcher.group(2)), first, end - first);
    } catch (NumberFormatException e) {
      return null;
    }
  }
}
