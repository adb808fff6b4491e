package io.headwater.hadoop;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.TextOutputFormat;

/** Sorts records of 100 bytes that each map makes up by its number. A reducer writes how many it got, and the hash of all in order. */
final class SortJob {
  static final String MAPS = "headwater.test.maps";
  static final String RECORDS = "headwater.test.records";
  static final int KEY = 10;
  static final int VALUE = 90;

  private SortJob() {}

  /**
   * A sort that is ready to be submitted.
   *
   * @param records of each map
   */
  static Job job(Configuration conf, String name, int maps, int reducers, int records, Path output) throws IOException {
    Job job = Job.getInstance(conf, name);
    job.getConfiguration().setInt(MAPS, maps);
    job.getConfiguration().setInt(RECORDS, records);
    job.setJarByClass(SortJob.class);
    job.setInputFormatClass(Made.class);
    job.setMapOutputKeyClass(BytesWritable.class);
    job.setMapOutputValueClass(BytesWritable.class);
    job.setReducerClass(Digest.class);
    job.setOutputKeyClass(IntWritable.class);
    job.setOutputValueClass(Text.class);
    job.setOutputFormatClass(TextOutputFormat.class);
    job.setNumReduceTasks(reducers);
    FileOutputFormat.setOutputPath(job, new org.apache.hadoop.fs.Path(output.toUri()));
    return job;
  }

  /** What the reducers wrote, by partition. */
  static List<String> result(Path output) throws IOException {
    List<String> lines = new ArrayList<>();
    try (Stream<Path> files = Files.list(output)) {
      for (Path file : files.filter(it -> it.getFileName().toString().startsWith("part-r-")).sorted().toList()) {
        lines.addAll(Files.readAllLines(file));
      }
    }
    return lines;
  }

  /** A map's records. */
  public static final class Made extends InputFormat<BytesWritable, BytesWritable> {
    @Override
    public List<InputSplit> getSplits(JobContext context) {
      List<InputSplit> splits = new ArrayList<>();
      for (int at = 0; at < context.getConfiguration().getInt(MAPS, 0); at++) {
        splits.add(new Part(at));
      }
      return splits;
    }

    @Override
    public RecordReader<BytesWritable, BytesWritable> createRecordReader(InputSplit split, TaskAttemptContext context) {
      return new Maker(((Part) split).number, context.getConfiguration().getInt(RECORDS, 0));
    }
  }

  /** The number of a map. */
  public static final class Part extends InputSplit implements Writable {
    private int number;

    public Part() {}

    private Part(int number) {
      this.number = number;
    }

    @Override
    public long getLength() {
      return 1;
    }

    @Override
    public String[] getLocations() {
      return new String[0];
    }

    @Override
    public void write(DataOutput out) throws IOException {
      out.writeInt(number);
    }

    @Override
    public void readFields(DataInput in) throws IOException {
      number = in.readInt();
    }
  }

  private static final class Maker extends RecordReader<BytesWritable, BytesWritable> {
    private final SplittableRandom random;
    private final int records;
    private int made;
    private final byte[] key = new byte[KEY];
    private final byte[] value = new byte[VALUE];

    private Maker(int number, int records) {
      this.random = new SplittableRandom(number);
      this.records = records;
    }

    @Override
    public void initialize(InputSplit split, TaskAttemptContext context) {}

    @Override
    public boolean nextKeyValue() {
      if (made == records) {
        return false;
      }
      made++;
      random.nextBytes(key);
      random.nextBytes(value);
      return true;
    }

    @Override
    public BytesWritable getCurrentKey() {
      return new BytesWritable(key);
    }

    @Override
    public BytesWritable getCurrentValue() {
      return new BytesWritable(value);
    }

    @Override
    public float getProgress() {
      return records == 0 ? 1 : (float) made / records;
    }

    @Override
    public void close() {}
  }

  /** Checks the order, counts, and hashes. */
  public static final class Digest extends Reducer<BytesWritable, BytesWritable, IntWritable, Text> {
    private final MessageDigest hash;
    private BytesWritable last;
    private int count;

    public Digest() throws NoSuchAlgorithmException {
      hash = MessageDigest.getInstance("SHA-256");
    }

    @Override
    protected void reduce(BytesWritable key, Iterable<BytesWritable> values, Context context) throws IOException {
      if (last != null && last.compareTo(key) >= 0) {
        throw new IOException("not sorted: " + last + " before " + key);
      }
      last = new BytesWritable(key.copyBytes());
      for (BytesWritable value : values) {
        count++;
        hash.update(key.getBytes(), 0, key.getLength());
        hash.update(value.getBytes(), 0, value.getLength());
      }
    }

    @Override
    protected void cleanup(Context context) throws IOException, InterruptedException {
      context.write(new IntWritable(count), new Text(HexFormat.of().formatHex(hash.digest())));
    }
  }
}
