package io.headwater.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.SparkFirehoseListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/** Counts what the scheduler does. */
final class Stages extends SparkFirehoseListener {
  private final List<String> submitted = new ArrayList<>();
  private final Set<String> removed = new HashSet<>();
  private long remoteBytes;

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
  synchronized long remoteBytes() {
    return remoteBytes;
  }

  /** Stages and their attempts since the last call. */
  synchronized List<String> submitted() {
    List<String> list = List.copyOf(submitted);
    submitted.clear();
    return list;
  }
}
