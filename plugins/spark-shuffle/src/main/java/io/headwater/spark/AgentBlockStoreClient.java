package io.headwater.spark;

import com.codahale.metrics.MetricSet;
import io.headwater.agent.AgentClient;
import io.headwater.agent.Refusal;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockPushingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.MergeFinalizerListener;
import org.apache.spark.network.shuffle.MergedBlocksMetaListener;
import org.apache.spark.network.shuffle.checksum.Cause;
import org.apache.spark.network.util.TransportConf;

/**
 * Fetches map outputs through the agent of this host, and all else, or what the agent does not get, by the stock client. How many bytes are
 * under way is the caller's decision ({@code spark.reducer.maxSizeInFlight}), and the agents get credit for exactly these.
 */
final class AgentBlockStoreClient extends BlockStoreClient {
  /** Flows at once, far below an agent's quota for all programs of a user; more wait here. */
  private static final int MOST_FLOWS = 1024;

  /** A host whose agent did not answer is not asked again for so long: each time costs the agent's patience of 20 s. */
  private static final long AVOID_NANOS = TimeUnit.SECONDS.toNanos(30);

  private final BlockStoreClient stock;
  private final AgentSession session;
  private final TransportConf transport;
  private final Map<String, Long> avoided = new ConcurrentHashMap<>();
  private final Set<BlockFlow> active = ConcurrentHashMap.newKeySet();

  /** The stock client may wait for a connection, which the agent client's thread may not. */
  private final ExecutorService fallback = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task, "headwater-stock-fetch");
    thread.setDaemon(true);
    return thread;
  });

  // Guarded by waiting.
  private final ArrayDeque<BlockFlow> waiting = new ArrayDeque<>();
  private int open;
  private boolean starting;

  /** When anything came from the agent. */
  private volatile long heard = System.nanoTime();

  AgentBlockStoreClient(BlockStoreClient stock, AgentSession session, TransportConf transport) {
    this.stock = stock;
    this.session = session;
    this.transport = transport;
    session.onTick(this::giveUpStalled);
  }

  @Override
  public void fetchBlocks(
      String host, int port, String execId, String[] blockIds, BlockFetchingListener listener, DownloadFileManager files) {
    List<String> others = new ArrayList<>();
    Map<String, BlockName> names = new LinkedHashMap<>();
    for (String block : blockIds) {
      BlockName name = BlockName.parse(block);
      if (name == null || names.containsKey(block)) {
        others.add(block);
      } else {
        names.put(block, name);
      }
    }
    AgentClient agent = names.isEmpty() ? null : session.client();
    String source = agent == null ? null : session.hostOf(execId);
    if (agent != null && source == null) {
      Notices.stock("blocks of executor " + execId + " are fetched", "it has no agent");
    }
    if (source == null || isAvoided(source)) {
      stock.fetchBlocks(host, port, execId, blockIds, listener, files);
      return;
    }
    if (!others.isEmpty()) {
      Notices.stock("merged and other blocks are fetched", "agents have map outputs only");
      stock.fetchBlocks(host, port, execId, others.toArray(String[]::new), listener, files);
    }
    BlockRequest request = new BlockRequest(names.size(), listener, files, failed ->
        fallback.execute(() -> stock.fetchBlocks(host, port, execId, failed, listener, files)));
    names.forEach((block, name) -> start(new BlockFlow(this, agent, request, source, execId, block, name)));
  }

  private boolean isAvoided(String source) {
    Long since = avoided.get(source);
    if (since != null && System.nanoTime() - since > AVOID_NANOS) {
      avoided.remove(source, since);
      return false;
    }
    return since != null;
  }

  TransportConf transport() {
    return transport;
  }

  // ---- flows

  private void start(BlockFlow flow) {
    synchronized (waiting) {
      waiting.add(flow);
    }
    startWaiting();
  }

  /** A flow is over, and another may begin. */
  void over(BlockFlow flow) {
    active.remove(flow);
    synchronized (waiting) {
      open--;
    }
    startWaiting();
  }

  /** A loop, and by one thread at a time: where the agent is gone, a flow that begins is over before this knows it. */
  private void startWaiting() {
    boolean mine = false;
    while (true) {
      BlockFlow next;
      synchronized (waiting) {
        if (starting && !mine) {
          return;
        }
        next = open < MOST_FLOWS ? waiting.poll() : null;
        starting = next != null;
        if (next == null) {
          return;
        }
        open++;
      }
      mine = true;
      active.add(next);
      next.start();
    }
  }

  /** The agent did not get a block. */
  void refused(String source, int code, String why) {
    Refusal refusal = Refusal.of(code);
    if (refusal == Refusal.UNKNOWN_HOST || refusal == Refusal.UNREACHABLE) {
      avoided.put(source, System.nanoTime());
    }
Notices.stock("blocks of host " + source + " are fetched", refusal, why);
  }

  private void giveUpStalled() {
    long now = System.nanoTime();
    long patience = session.settings().patience().toNanos();
    for (BlockFlow flow : active) {
      if (flow.isSilent(now, patience)) {
        flow.giveUp(now - heard > patience);
      }
    }
  }

  /** Bytes of some flow have come. */
  void heard(long now) {
    heard = now;
  }

  // ---- all else, as it was

  @Override
  public Cause diagnoseCorruption(
      String host, int port, String execId, int shuffleId, long mapId, int reduceId, long checksum, String algorithm) {
    return stock.diagnoseCorruption(host, port, execId, shuffleId, mapId, reduceId, checksum, algorithm);
  }

  @Override
  public MetricSet shuffleMetrics() {
    return stock.shuffleMetrics();
  }

  @Override
  public void setAppAttemptId(String appAttemptId) {
    stock.setAppAttemptId(appAttemptId);
  }

  @Override
  public String getAppAttemptId() {
    return stock.getAppAttemptId();
  }

  @Override
  public void getHostLocalDirs(String host, int port, String[] execIds, CompletableFuture<Map<String, String[]>> dirs) {
    stock.getHostLocalDirs(host, port, execIds, dirs);
  }

  @Override
  public void pushBlocks(String host, int port, String[] blockIds, ManagedBuffer[] buffers, BlockPushingListener listener) {
    stock.pushBlocks(host, port, blockIds, buffers, listener);
  }

  @Override
  public void finalizeShuffleMerge(String host, int port, int shuffleId, int shuffleMergeId, MergeFinalizerListener listener) {
    stock.finalizeShuffleMerge(host, port, shuffleId, shuffleMergeId, listener);
  }

  @Override
  public void getMergedBlockMeta(
      String host, int port, int shuffleId, int shuffleMergeId, int reduceId, MergedBlocksMetaListener listener) {
    stock.getMergedBlockMeta(host, port, shuffleId, shuffleMergeId, reduceId, listener);
  }

  @Override
  public boolean removeShuffleMerge(String host, int port, int shuffleId, int shuffleMergeId) {
    return stock.removeShuffleMerge(host, port, shuffleId, shuffleMergeId);
  }

  @Override
  public void close() throws IOException {
    // What falls back now finds the stock client closed, as ever at the end. A pool that refuses work would be one more way to fail.
    stock.close();
  }
}
