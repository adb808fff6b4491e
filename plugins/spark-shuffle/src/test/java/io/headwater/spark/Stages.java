package io.headwater.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkFirehoseListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/** Counts what the scheduler does. */
final class Stages extends SparkFirehoseListener {
  private final SparkContext context;
  private final List<String> submitted = new ArrayList<>();
  private final Set<String> removed = new HashSet<>();
  private long remoteBytes;

  Stages(SparkContext context) {
    this.context = context;
  }

  @Override
  public synchronized void onEvent(SparkListenerEvent event) {
    if (event instanceof SparkListenerStageSubmitted it) {
      submitted.add(it.stageInfo().stageId() + "." + it.stageInfo().attemptNumber());
    } else if (event instanceof SparkListenerExecutorRemoved it) {
      removed.add(it.executorId());
    } else if (event instanceof SparkListenerTaskEnd it && it.taskMetrics() != null) {
      remoteBytes += it.taskMetrics().shuffleReadMetrics().remoteBytesRead();
    }
  }

  synchronized boolean removed(String executor) {
    return removed.contains(executor);
  }

  /** Bytes that tasks have read from other executors. */
  long remoteBytes() {
    hearAll();
    synchronized (this) {
      return remoteBytes;
    }
  }

  /** Stages and their attempts since the last call. */
  List<String> submitted() {
    hearAll();
    synchronized (this) {
      List<String> list = List.copyOf(submitted);
      submitted.clear();
      return list;
    }
  }

  /** Events come late: a job's result does not wait for them. */
  private void hearAll() {
    try {
      context.listenerBus().waitUntilEmpty(120_000);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }
}
