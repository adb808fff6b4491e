package io.headwater.hadoop;

import io.headwater.agent.AgentClient;
import io.headwater.agent.FlowStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.SocketTimeoutException;
import java.time.Duration;

/**
 * A flow that is given up when nothing comes for as long as the stock fetcher waits for a byte, or when the agent does not even say how
 * it is. An agent may hold a flow back for long, since others rank before it; so silence alone proves nothing until then.
 */
final class WatchedStream extends InputStream {
  private static final Duration LOOK_AFTER = Duration.ofSeconds(10);

  private final AgentClient agent;
  private final FlowStream flow;
  private final long mostMillis;

  WatchedStream(AgentClient agent, FlowStream flow, long mostMillis) {
    this.agent = agent;
    this.flow = flow;
    this.mostMillis = mostMillis;
    long look = Math.max(1, Math.min(LOOK_AFTER.toMillis(), mostMillis));
    flow.patience(Duration.ofMillis(look));
  }

  private interface Step<T> {
    T run() throws IOException;
  }

  private <T> T watch(Step<T> step) throws IOException {
    long since = System.nanoTime();
    while (true) {
      try {
        return step.run();
      } catch (SocketTimeoutException e) {
        long millis = (System.nanoTime() - since) / 1_000_000;
        if (millis >= mostMillis) {
          throw new IOException("nothing has come for " + millis + " ms", e);
        }
        try {
          agent.status();
        } catch (IOException silent) {
          // A frozen agent would hold up all flows one by one.
          agent.close();
          throw silent;
        }
      }
    }
  }

  long length() throws IOException {
    return watch(flow::length);
  }

  long info() throws IOException {
    return watch(flow::info);
  }

  @Override
  public int read() throws IOException {
    return watch(flow::read);
  }

  @Override
  public int read(byte[] into, int offset, int count) throws IOException {
    return watch(() -> flow.read(into, offset, count));
  }

  @Override
  public void close() {
    flow.close();
  }
}
