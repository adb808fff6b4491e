package io.headwater.hadoop;

import io.headwater.agent.AgentClient;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RawKeyValueIterator;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.ShuffleConsumerPlugin;
import org.apache.hadoop.mapred.Task;
import org.apache.hadoop.mapred.TaskStatus;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.reduce.ExceptionReporter;
import org.apache.hadoop.mapreduce.task.reduce.MergeManager;
import org.apache.hadoop.mapreduce.task.reduce.MergeManagerImpl;
import org.apache.hadoop.mapreduce.task.reduce.Shuffle;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleClientMetrics;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleSchedulerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A reducer's shuffle whose bytes come through the agent of its host. Scheduler and merge are the stock ones. Where the agent is not
 * there, or the job has what agents do not do, it is the stock shuffle, and the log says why in one line.
 *
 * <p>{@code mapreduce.job.reduce.shuffle.consumer.plugin.class=io.headwater.hadoop.AgentShuffle}
 */
public class AgentShuffle<K, V> implements ShuffleConsumerPlugin<K, V>, ExceptionReporter {
  private static final Logger LOG = LoggerFactory.getLogger(AgentShuffle.class);

  private static final int PROGRESS_MILLIS = 2_000;
  private static final int DEFAULT_FETCHERS = 5;

  private Context<K, V> context;

  /** The stock shuffle, where the agent is not used. Then nothing else is here. */
  private Shuffle<K, V> stock;

  private Sources sources;
  private ShuffleSchedulerImpl<K, V> scheduler;
  private MergeManager<K, V> merger;
  private Throwable failure;

  @Override
  public void init(Context<K, V> context) {
    this.context = context;
    AgentClient agent = connect();
    if (agent == null) {
      context.getReporter().incrCounter(ShuffleCounter.STOCK_REDUCERS, 1);
      stock = new Shuffle<>();
      stock.init(context);
      return;
    }
    sources = new Sources(agent);
    JobConf conf = context.getJobConf();
    TaskAttemptID reduceId = context.getReduceId();
    scheduler =
        new ShuffleSchedulerImpl<>(
            conf,
            context.getStatus(),
            reduceId,
            this,
            context.getCopyPhase(),
            context.getShuffledMapsCounter(),
            context.getReduceShuffleBytes(),
            context.getFailedShuffleCounter());
    merger =
        new MergeManagerImpl<>(
            reduceId,
            conf,
            context.getLocalFS(),
            context.getLocalDirAllocator(),
            context.getReporter(),
            context.getCodec(),
            context.getCombinerClass(),
            context.getCombineCollector(),
            context.getSpilledRecordsCounter(),
            context.getReduceCombineInputCounter(),
            context.getMergedMapOutputsCounter(),
            this,
            context.getMergePhase(),
            context.getMapOutputFile());
  }

  /** The agent, or none and a line why. */
  private AgentClient connect() {
    TaskAttemptID reduceId = context.getReduceId();
    String why = context.getLocalMapFiles() != null ? "the job runs in one process" : JobAgent.unsupported(context.getJobConf());
    if (why == null) {
      try {
        AgentClient agent =
            JobAgent.connect(context.getJobConf(), reduceId.getJobID(), context.getReduceTask().getShuffleSecret());
        LOG.info("Headwater: {} fetches through the agent", reduceId);
        return agent;
      } catch (IOException | RuntimeException e) {
        why = e.getMessage();
      }
    }
    LOG.warn("Headwater: {} fetches the stock way: {}", reduceId, why);
    return null;
  }

  @Override
  public RawKeyValueIterator run() throws IOException, InterruptedException {
    return stock != null ? stock.run() : runByAgent();
  }

  private RawKeyValueIterator runByAgent() throws IOException, InterruptedException {
    JobConf conf = context.getJobConf();
    Reporter reporter = context.getReporter();
    Task task = context.getReduceTask();
    MapEvents events =
        new MapEvents(
            (org.apache.hadoop.mapred.TaskAttemptID) context.getReduceId(),
            context.getUmbilical(),
            scheduler,
            this,
            conf.getNumReduceTasks());
    ShuffleClientMetrics metrics = ShuffleClientMetrics.create(context.getReduceId(), conf);
    List<AgentFetcher<K, V>> fetchers = new ArrayList<>();
    for (int at = conf.getInt(MRJobConfig.SHUFFLE_PARALLEL_COPIES, DEFAULT_FETCHERS); at > 0; at--) {
      fetchers.add(
          new AgentFetcher<>(
              conf, context.getReduceId(), scheduler, merger, reporter, metrics, this, task.getShuffleSecret(), sources));
    }
    events.start();
    fetchers.forEach(Thread::start);
    try {
      while (!scheduler.waitUntilDone(PROGRESS_MILLIS)) {
        reporter.progress();
        check();
      }
    } finally {
      events.shutDown();
      for (AgentFetcher<K, V> fetcher : fetchers) {
        fetcher.shutDown();
      }
      scheduler.close();
      sources.agent().close();
    }
    context.getCopyPhase().complete();
    context.getStatus().setPhase(TaskStatus.Phase.SORT);
    task.statusUpdate(context.getUmbilical());
    RawKeyValueIterator merged;
    try {
      merged = merger.close();
    } catch (Throwable e) {
      throw new IOException("the final merge failed", e);
    }
    check();
    return merged;
  }

  private void check() throws IOException {
    synchronized (this) {
      if (failure != null) {
        throw new IOException("the shuffle failed", failure);
      }
    }
  }

  @Override
  public void reportException(Throwable e) {
    synchronized (this) {
      if (failure != null) {
        return;
      }
      failure = e;
    }
    synchronized (scheduler) {
      scheduler.notifyAll();
    }
  }

  @Override
  public void close() {
    if (stock != null) {
      stock.close();
    } else {
      sources.agent().close();
    }
  }
}
