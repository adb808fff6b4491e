package io.headwater.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.Decompressor;
import org.apache.hadoop.io.compress.DefaultCodec;
import org.apache.hadoop.mapreduce.MRJobConfig;

/**
 * Compression at which reducers stop: in the middle of an output that has begun to come, until the test opens the gate. So a test can
 * do something while all of them are on their way, whatever the speed of the machine.
 */
public class GatedCodec extends DefaultCodec {
  /** A folder: reducer N leaves {@code at-N} there, and goes on when there is {@code open}. */
  static final String GATE = "headwater.test.gate";

  /** The only reducer that stops there; all if it is not set. */
  static final String ONLY = "headwater.test.gate.only";

  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
    String gate = getConf().get(GATE);
    int partition = getConf().getInt(MRJobConfig.TASK_PARTITION, -1);
    int only = getConf().getInt(ONLY, partition);
    if (gate != null && !getConf().getBoolean(MRJobConfig.TASK_ISMAP, true) && partition == only) {
      Path folder = Path.of(gate);
      Files.write(folder.resolve("at-" + partition), new byte[0]);
      while (!Files.exists(folder.resolve("open"))) {
        try {
          Thread.sleep(50);
        } catch (InterruptedException e) {
          throw new InterruptedIOException();
        }
      }
    }
    return super.createInputStream(in, decompressor);
  }
}
