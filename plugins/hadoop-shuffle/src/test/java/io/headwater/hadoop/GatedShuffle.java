package io.headwater.hadoop;

import java.io.IOException;
import java.io.UncheckedIOException;

/** The shuffle through agents, by reducers that stop at a {@link Gate} before they look for their agent. */
public class GatedShuffle<K, V> extends AgentShuffle<K, V> {
  @Override
  public void init(Context<K, V> context) {
    try {
      Gate.pass(context.getJobConf());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    super.init(context);
  }
}
