package io.headwater.hadoop;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.MRJobConfig;

/** A folder at which reducers stop until the test opens it, whatever the speed of the machine. */
final class Gate {
  /** The folder: reducer N leaves {@code at-N} there, and goes on when there is {@code open}. Without it nobody stops. */
  static final String FOLDER = "headwater.test.gate";

  /** The only reducer that stops there; all if it is not set. */
  static final String ONLY = "headwater.test.gate.only";

  private Gate() {}

  /** Called by tasks: a reducer stops here. */
  static void pass(Configuration conf) throws IOException {
    String gate = conf.get(FOLDER);
    int partition = conf.getInt(MRJobConfig.TASK_PARTITION, -1);
    int only = conf.getInt(ONLY, partition);
    if (gate == null || conf.getBoolean(MRJobConfig.TASK_ISMAP, true) || partition != only) {
      return;
    }
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

  /** Called by tests: how many reducers stand there. */
  static long waiting(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.filter(it -> it.getFileName().toString().startsWith("at-")).count();
    }
  }

  /** Called by tests: all go on. */
  static void open(Path folder) throws IOException {
    Files.write(folder.resolve("open"), new byte[0]);
  }
}
