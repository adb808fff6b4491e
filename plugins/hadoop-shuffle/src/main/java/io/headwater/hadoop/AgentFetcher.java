package io.headwater.hadoop;

import io.headwater.agent.Fetch;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.crypto.SecretKey;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.reduce.ExceptionReporter;
import org.apache.hadoop.mapreduce.task.reduce.Fetcher;
import org.apache.hadoop.mapreduce.task.reduce.MapHost;
import org.apache.hadoop.mapreduce.task.reduce.MapOutput;
import org.apache.hadoop.mapreduce.task.reduce.MergeManager;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleClientMetrics;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleSchedulerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The stock fetcher with another way for bytes. What the scheduler gives it is asked of the agent, all outputs of a host at once and
 * without credit, so that the agent knows what is coming. One after the other gets credit when the merge has room for it. An output
 * that the agent cannot bring is fetched by the stock fetcher at once, and what that makes of a failure is what the scheduler hears.
 */
final class AgentFetcher<K, V> extends Fetcher<K, V> {
  private static final Logger LOG = LoggerFactory.getLogger(AgentFetcher.class);

  /** Bytes of a flow that this process holds beside the merge's memory. */
  private static final int WINDOW = 1 << 20;

  /** As long as the stock fetcher waits for a byte. */
  private static final int DEFAULT_READ_TIMEOUT = 3 * 60 * 1000;

  /** Between two questions for memory. The merge says only when it has ended, not when a fetch has. */
  private static final long ASK_AGAIN_MILLIS = 20;

  private final Sources sources;
  private final int readTimeout;
  private final JobID job;
  private volatile boolean ended;

  AgentFetcher(
      JobConf conf,
      TaskAttemptID reduceId,
      ShuffleSchedulerImpl<K, V> scheduler,
      MergeManager<K, V> merger,
      Reporter reporter,
      ShuffleClientMetrics metrics,
      ExceptionReporter exceptionReporter,
      SecretKey secret,
      Sources sources) {
    super(conf, reduceId, scheduler, merger, reporter, metrics, exceptionReporter, secret);
    this.sources = sources;
    this.job = reduceId.getJobID();
    readTimeout = conf.getInt(MRJobConfig.SHUFFLE_READ_TIMEOUT, DEFAULT_READ_TIMEOUT);
    setName("headwater-" + getName());
  }

  @Override
  public void shutDown() throws InterruptedException {
    ended = true;
    super.shutDown();
  }

  @Override
  protected void copyFromHost(MapHost host) throws IOException {
    String name = JobAgent.host(host.getHostName());
    if (!sources.has(name)) {
      super.copyFromHost(host);
      return;
    }
    List<TaskAttemptID> left = new ArrayList<>(scheduler.getMapsForHost(host));
    List<TaskAttemptID> instead = new ArrayList<>();
    try {
      fetch(host, name, left, instead);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } finally {
      left.forEach(map -> scheduler.putBackKnownMapOutput(host, map));
      if (ended || isInterrupted()) {
        instead.forEach(map -> scheduler.putBackKnownMapOutput(host, map));
        instead.clear();
      }
    }
    if (!instead.isEmpty()) {
      fetchTheStockWay(host, instead);
    }
  }

  /** Takes maps from {@code left} as they are fetched, and puts those that the agent cannot bring into {@code instead}. */
  private void fetch(MapHost host, String name, List<TaskAttemptID> left, List<TaskAttemptID> instead) throws InterruptedException {
    Map<TaskAttemptID, WatchedStream> flows = new LinkedHashMap<>();
    try {
      for (TaskAttemptID map : List.copyOf(left)) {
        try {
          if (sources.has(map)) {
            flows.put(map, open(name, map));
            continue;
          }
        } catch (IOException e) {
          sources.failed(name, map, e);
        }
        left.remove(map);
        instead.add(map);
      }
      for (Map.Entry<TaskAttemptID, WatchedStream> flow : flows.entrySet()) {
        TaskAttemptID map = flow.getKey();
        switch (copy(host, name, map, flow.getValue())) {
          case HERE -> left.remove(map);
          case NOT_BY_AGENT -> {
            left.remove(map);
            instead.add(map);
          }
          case STOP -> {
            return;
          }
        }
      }
    } finally {
      flows.values().forEach(WatchedStream::close);
    }
  }

  private WatchedStream open(String host, TaskAttemptID map) throws IOException {
    Fetch fetch = new Fetch(JobAgent.coflow(job), host, map.toString(), reduce, 1, 0);
    return new WatchedStream(sources.agent(), sources.agent().openWithoutCredit(fetch, WINDOW), readTimeout);
  }

  private enum Outcome {
    HERE,
    NOT_BY_AGENT,
    STOP
  }

  private Outcome copy(MapHost host, String name, TaskAttemptID map, WatchedStream flow) throws InterruptedException {
    MapOutput<K, V> output = null;
    try (flow) {
      long start = now();
      long length = flow.length();
      long rawLength = flow.info();
      if (rawLength < 0) {
        throw new IOException("a raw length of " + rawLength);
      }
      try {
        output = reserve(map, rawLength);
      } catch (IOException e) {
        // This host's own trouble, such as a full disk: no other way of fetching helps.
        scheduler.reportLocalError(e);
        return Outcome.STOP;
      }
      output.shuffle(host, flow, length, rawLength, metrics, reporter);
      scheduler.copySucceeded(map, host, length, start, now(), output);
      metrics.successFetch();
      reporter.incrCounter(ShuffleCounter.AGENT_OUTPUTS, 1);
      reporter.incrCounter(ShuffleCounter.AGENT_BYTES, length);
      return Outcome.HERE;
    } catch (IOException | InternalError | RuntimeException e) {
      // Codecs throw InternalError for bytes that they cannot decompress.
      if (output != null) {
        output.abort();
      }
      if (ended || isInterrupted()) {
        return Outcome.STOP;
      }
      metrics.failedFetch();
      sources.failed(name, map, e instanceof IOException io ? io : new IOException(e));
      return Outcome.NOT_BY_AGENT;
    }
  }

  /** Room for an output. As long as there is none its flow has no credit, and its bytes are not asked for. */
  private MapOutput<K, V> reserve(TaskAttemptID map, long rawLength) throws IOException, InterruptedException {
    MapOutput<K, V> output = merger.reserve(map, rawLength, id);
    if (output == null) {
      reporter.incrCounter(ShuffleCounter.AGENT_WAITS, 1);
      LOG.info("Headwater: {} waits for memory, its flow has no credit", map);
    }
    while (output == null) {
      merger.waitForResource();
      Thread.sleep(ASK_AGAIN_MILLIS);
      output = merger.reserve(map, rawLength, id);
    }
    return output;
  }

  /** Leaves exactly these outputs of a host to the stock fetcher. */
  private void fetchTheStockWay(MapHost host, List<TaskAttemptID> maps) throws IOException {
    reporter.incrCounter(ShuffleCounter.STOCK_INSTEAD, maps.size());
    // It takes whatever is known of the host. What has become known by now is kept from it.
    List<TaskAttemptID> others = new ArrayList<>();
    for (List<TaskAttemptID> more; !(more = scheduler.getMapsForHost(host)).isEmpty(); ) {
      others.addAll(more);
    }
    maps.forEach(map -> scheduler.putBackKnownMapOutput(host, map));
    try {
      super.copyFromHost(host);
    } finally {
      others.forEach(map -> scheduler.putBackKnownMapOutput(host, map));
    }
  }

  private static long now() {
    return System.nanoTime() / 1_000_000;
  }
}
