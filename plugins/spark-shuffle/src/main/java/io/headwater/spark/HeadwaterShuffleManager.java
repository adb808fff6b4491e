package io.headwater.spark;

import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.storage.BlockManager;

/**
 * The engine's own shuffle, whose outputs are held by the agents of their hosts and fetched through the agent of the reader's (docs/shuffle.md).
 * {@code spark.shuffle.manager} names it.
 *
 * <p>Sorting, spilling, merging and reading are the engine's. Added are: a word to the agent when a map output is complete, another
 * client for blocks of other executors, and the driver's knowledge that blocks outlive their executors. What the agents cannot do goes
 * the stock way.
 */
public class HeadwaterShuffleManager extends SortShuffleManager {
  private static final String IO_PLUGIN = "spark.shuffle.sort.io.plugin.class";

  private final boolean onDriver;

  // Guarded by this.
  private AgentSession session;
  private boolean begun;

  /** Called by the engine, on the driver before its executors are there. */
  public HeadwaterShuffleManager(SparkConf conf, boolean isDriver) {
    super(conf);
    onDriver = isDriver;
    if (!isDriver) {
      return;
    }
    Settings.prepare(conf);
    conf.setIfMissing(IO_PLUGIN, HeadwaterShuffleDataIO.class.getName());
    if (!conf.get(IO_PLUGIN).equals(HeadwaterShuffleDataIO.class.getName())) {
      Notices.stock("all shuffles go", IO_PLUGIN + " is " + conf.get(IO_PLUGIN));
    }
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    ShuffleWriter<K, V> stock = super.getWriter(handle, mapId, context, metrics);
    AgentSession agent = session();
    if (agent == null) {
      return stock;
    }
    int shuffle = handle.shuffleId();
    return new RegisteringWriter<>(stock, () -> {
      var resolver = shuffleBlockResolver();
      agent.register(
          shuffle,
          mapId,
          resolver.getDataFile(shuffle, mapId).toPath().toAbsolutePath().normalize(),
          resolver.getIndexFile(shuffle, mapId, scala.Option.empty()).toPath().toAbsolutePath().normalize());
    });
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle,
      int startMapIndex,
      int endMapIndex,
      int startPartition,
      int endPartition,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    // The reader takes the block manager's client, which this sees to.
    session();
    return super.getReader(handle, startMapIndex, endMapIndex, startPartition, endPartition, context, metrics);
  }

  @Override
  public boolean unregisterShuffle(int shuffleId) {
    AgentSession agent;
    synchronized (this) {
      agent = session;
    }
    if (agent != null) {
      agent.unregister(shuffleId);
    }
    return super.unregisterShuffle(shuffleId);
  }

  @Override
  public void stop() {
    AgentSession agent;
    boolean unused;
    synchronized (this) {
      agent = session;
      unused = !onDriver && !begun;
      session = null;
      begun = true;
    }
    SparkEnv env = SparkEnv.get();
    if (agent != null) {
      agent.close();
    } else if (unused && env != null && env.conf().contains(Settings.TOKEN)) {
      AgentSession.leave(env);
    }
    super.stop();
  }

  /** Begun by the first task that shuffles. Null on a driver, and where all goes the stock way. */
  private synchronized AgentSession session() {
    if (onDriver || begun) {
      return session;
    }
    begun = true;
    SparkEnv env = SparkEnv.get();
    if (!env.conf().contains(Settings.TOKEN)
        || !env.conf().get(IO_PLUGIN, "").equals(HeadwaterShuffleDataIO.class.getName())) {
      Notices.stock("all shuffles go", "the driver has not made a token, or " + IO_PLUGIN + " is another");
      return null;
    }
    try {
      AgentSession fresh = new AgentSession(env);
      install(env, fresh);
      session = fresh;
    } catch (Exception | LinkageError e) {
      // The engine throws checked exceptions that it does not declare.
      Notices.stock("all shuffles go", "the plugin does not begin", e.toString());
    }
    return session;
  }

  /**
   * Puts the client where the stock reader finds it. The reader has no other door for it, and a reader of our own would have to repeat
   * how each version of the engine aggregates and sorts.
   */
  private static void install(SparkEnv env, AgentSession session) throws ReflectiveOperationException {
    BlockManager blocks = env.blockManager();
    Map<String, String> options = new HashMap<>();
    for (var option : env.conf().getAll()) {
      options.put(option._1(), option._2());
    }
    BlockStoreClient client = new AgentBlockStoreClient(
        blocks.blockStoreClient(), session, new TransportConf("shuffle", new MapConfigProvider(options)));
    Field field = BlockManager.class.getDeclaredField("blockStoreClient");
    field.setAccessible(true);
    field.set(blocks, client);
    if (blocks.blockStoreClient() != client) {
      throw new NoSuchFieldException("the block manager's client cannot be replaced");
    }
  }
}
