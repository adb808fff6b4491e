package io.headwater.hadoop;

import java.io.IOException;
import org.apache.hadoop.mapred.JobID;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskUmbilicalProtocol;
import org.apache.hadoop.mapreduce.task.reduce.ExceptionReporter;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleSchedulerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Asks the job's master which maps have ended, and tells the scheduler. The stock class for it is not open to others. */
final class MapEvents extends Thread {
  private static final Logger LOG = LoggerFactory.getLogger(MapEvents.class);

  /** Between two questions, and after one that failed; so many may fail in a row. As the stock shuffle has it. */
  private static final long PAUSE_MILLIS = 1_000;

  private static final long PAUSE_AFTER_FAILURE_MILLIS = 5_000;
  private static final int FAILURES = 10;

  /** Events of one answer, fewer where many reducers ask the same master: three million on their way to all of them. */
  private static final int MOST_EVENTS = 10_000;

  private static final int LEAST_EVENTS = 100;
  private static final int MOST_OF_ALL = 3_000_000;

  private final TaskAttemptID reduce;
  private final TaskUmbilicalProtocol master;
  private final ShuffleSchedulerImpl<?, ?> scheduler;
  private final ExceptionReporter exceptions;
  private final int most;
  private int next;

  MapEvents(
      TaskAttemptID reduce, TaskUmbilicalProtocol master, ShuffleSchedulerImpl<?, ?> scheduler, ExceptionReporter exceptions, int reducers) {
    super("headwater-map-events");
    setDaemon(true);
    this.reduce = reduce;
    this.master = master;
    this.scheduler = scheduler;
    this.exceptions = exceptions;
    most = Math.min(MOST_EVENTS, Math.max(LEAST_EVENTS, MOST_OF_ALL / Math.max(1, reducers)));
  }

  @Override
  public void run() {
    int failures = 0;
    try {
      while (true) {
        try {
          ask();
          failures = 0;
          Thread.sleep(PAUSE_MILLIS);
        } catch (IOException e) {
          failures++;
          LOG.info("{} asked in vain which maps have ended ({} times)", reduce, failures, e);
          if (failures >= FAILURES) {
            throw new IOException("the job's master has not said " + failures + " times which maps have ended", e);
          }
          Thread.sleep(PAUSE_AFTER_FAILURE_MILLIS);
        }
      }
    } catch (InterruptedException e) {
      LOG.debug("{} needs to hear of no more maps", reduce);
    } catch (Throwable e) {
      exceptions.reportException(e);
    }
  }

  void shutDown() throws InterruptedException {
    interrupt();
    join(5_000);
  }

  private void ask() throws IOException {
    int count;
    do {
      TaskCompletionEvent[] events =
          master.getMapCompletionEvents((JobID) reduce.getJobID(), next, most, reduce).getMapTaskCompletionEvents();
      count = events.length;
      next += count;
      for (TaskCompletionEvent event : events) {
        scheduler.resolve(event);
      }
    } while (count == most);
  }
}
