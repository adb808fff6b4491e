package io.headwater.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.shuffle.ShuffleHandle;
import scala.Tuple2;

/** What is computed: the same on every run. */
final class Jobs {
  static final int MAPS = 6;
  private static final int REDUCES = 4;
  /** Each map's, in a job of some hundred milliseconds. */
  static final int RECORDS = 20_000;
  /** The same in one of some seconds. */
  static final int MANY_RECORDS = 200_000;
  private static final int FIRST = 2;
  private static final int LAST = 3;

  private Jobs() {}

  /** Each map makes {@code count} records with random keys below {@code keys}. */
  private static JavaPairRDD<Long, String> records(JavaSparkContext context, int count, int seed, int keys) {
    return context.parallelize(IntStream.range(0, MAPS).boxed().toList(), MAPS).flatMapToPair(part -> {
      Random random = new Random(seed * 1000L + part);
      List<Tuple2<Long, String>> records = new ArrayList<>();
      for (int record = 0; record < count; record++) {
        records.add(new Tuple2<>((long) random.nextInt(keys), Long.toHexString(random.nextLong()) + Long.toHexString(random.nextLong())));
      }
      return records.iterator();
    });
  }

  /** All records in the order of their keys. */
  static JavaPairRDD<Long, String> sorted(JavaSparkContext context) {
    return sorted(context, RECORDS);
  }

  static JavaPairRDD<Long, String> sorted(JavaSparkContext context, int recordsOfEach) {
    return records(context, recordsOfEach, 1, Integer.MAX_VALUE).sortByKey(true, REDUCES);
  }

  /** Two shuffles side by side. */
  static JavaPairRDD<Long, Tuple2<String, String>> joined(JavaSparkContext context) {
    return joined(context, RECORDS);
  }

  static JavaPairRDD<Long, Tuple2<String, String>> joined(JavaSparkContext context, int recordsOfEach) {
    int keys = 10 * recordsOfEach;
    return records(context, recordsOfEach, 2, keys).join(records(context, recordsOfEach, 3, keys), REDUCES);
  }

  /**
   * How many there are, and a checksum. Checks that each key is no smaller than the one before; the engine draws the bounds of partitions
   * anew for each shuffle, and may exchange records of the same key.
   */
  static String ordered(JavaPairRDD<Long, String> records) {
    List<long[]> partitions = records.mapPartitionsWithIndex((partition, all) -> {
      long[] seen = {0, 0, Long.MAX_VALUE, Long.MIN_VALUE};
      while (all.hasNext()) {
        var record = all.next();
        if (record._1() < seen[LAST]) {
          throw new IllegalStateException(record._1() + " comes after " + seen[LAST]);
        }
        seen[0]++;
        seen[1] += checksum(record._1() + "=" + record._2());
        seen[FIRST] = Math.min(seen[FIRST], record._1());
        seen[LAST] = record._1();
      }
      return List.of(seen).iterator();
    }, true).collect();
    long count = 0;
    long sum = 0;
    long last = Long.MIN_VALUE;
    for (long[] partition : partitions) {
      if (partition[FIRST] < last) {
        throw new IllegalStateException("partitions overlap at " + last);
      }
      count += partition[0];
      sum += partition[1];
      last = Math.max(last, partition[LAST]);
    }
    return count + " records, " + Long.toHexString(sum);
  }

  /** How many records there are, read two partitions at a time, as SQL's adaptive plans do: in a batch from each map output. */
  static long countInBatches(JavaSparkContext context, JavaPairRDD<Long, String> sorted) {
    ShuffleHandle handle = ((ShuffleDependency<?, ?, ?>) sorted.rdd().dependencies().head()).shuffleHandle();
    context.setLocalProperty("__fetch_continuous_blocks_in_batch_enabled", "true");
    return context.parallelize(List.of(0, REDUCES / 2), 2).map(first -> {
      TaskContext task = TaskContext.get();
      var reader = SparkEnv.get().shuffleManager().getReader(
          handle, 0, Integer.MAX_VALUE, first, first + REDUCES / 2, task, task.taskMetrics().createTempShuffleReadMetrics());
      return (long) reader.read().size();
    }).reduce(Long::sum);
  }

  /** How many there are, and a checksum that does not depend on their order. */
  static String total(JavaPairRDD<Long, Tuple2<String, String>> records) {
    long[] total = records.mapPartitions(all -> {
      long count = 0;
      long sum = 0;
      while (all.hasNext()) {
        var record = all.next();
        count++;
        sum += checksum(record._1() + "=" + record._2()._1() + record._2()._2());
      }
      return List.of(new long[] {count, sum}).iterator();
    }).reduce((one, other) -> new long[] {one[0] + other[0], one[1] + other[1]});
    return total[0] + " records, " + Long.toHexString(total[1]);
  }

  private static long checksum(String text) {
    CRC32 checksum = new CRC32();
    checksum.update(text.getBytes(StandardCharsets.UTF_8));
    return checksum.getValue();
  }
}
