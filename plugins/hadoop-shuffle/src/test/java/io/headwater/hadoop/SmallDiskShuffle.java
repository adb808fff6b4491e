package io.headwater.hadoop;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.MRConfig;

/**
 * The shuffle through agents, by reducers one of which writes what it fetches to another disk. Where that attempt fails, the next one
 * stops at the {@link Gate}.
 */
public class SmallDiskShuffle<K, V> extends AgentShuffle<K, V> {
  /** The folder that reducer 0 writes to. */
  static final String FOLDER = "headwater.test.disk";

  @Override
  public void init(Context<K, V> context) {
    JobConf conf = context.getJobConf();
    if (context.getReduceId().getTaskID().getId() == 0) {
      conf.set(MRConfig.LOCAL_DIR, conf.get(FOLDER));
    }
    if (context.getReduceId().getId() > 0) {
      try {
        Gate.pass(conf);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
    super.init(context);
  }
}
