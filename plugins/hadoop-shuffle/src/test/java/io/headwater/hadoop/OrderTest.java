package io.headwater.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.headwater.agent.AgentProcess;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.mapreduce.Job;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Two jobs at once over links that are slower than all else. When the young job begins, the old one has less left than it, but has sent
 * more than what Aalo's first queue allows. So the old one ends first where all share alike, and the young one where Aalo orders them.
 *
 * <p>A reducer takes the outputs of a host one by one, and an agent fills the gaps between them with what is ranked behind: half a second
 * of the link for each, and more the busier the machine is. So each job has one map on each host, and there are no gaps: a reducer's only
 * output from a host comes in one piece, and what is ranked behind gets what was under way and no more.
 */
@Timeout(value = 900, unit = TimeUnit.SECONDS)
class OrderTest {
  private static final long LINK = 1_000_000;

  /** Aalo's first queue. */
  private static final long FIRST_QUEUE = 10 << 20;

  /** What the old job has left when the young one begins, which has a third more. */
  private static final long OLD_LEFT = 6_000_000;

  private static final int OLD_RECORDS = 120_000;
  private static final int YOUNG_RECORDS = 45_000;

  /**
   * Sizes by which the scheduler has one place only for everything: each host gets one map and one reducer of each job. The old job comes
   * first: its maps and its reducers are more than half of a node, so there is one on each. The young job's master fits only where the old
   * one's is not, and then each node has room for one of its maps, or one of its reducers.
   */
  private static final int NODE = 6400;

  private static final int OLD_MASTER = 2048;
  private static final int OLD_MAP = 3328;
  private static final int OLD_REDUCER = 3328;
  private static final int YOUNG_MASTER = 1280;
  private static final int YOUNG_MAP = 1024;
  private static final int YOUNG_REDUCER = 1024;

  /** A job's coflow at all hosts; {@code rank} is -1 where some host has none for it. */
  private record Coflow(long bytes, long left, long rank) {
    private Coflow and(Coflow other) {
      return new Coflow(bytes + other.bytes, left + other.left, Math.min(rank, other.rank));
    }
  }

  private static final Pattern COFLOW = Pattern.compile("\\{[^{}]*\"application\":\"(job_\\d+_\\d+)\"[^{}]*\\}");

  /** By job, of those that are being fetched. */
  private static Map<String, Coflow> coflows(Cluster cluster) throws IOException {
    Map<String, Coflow> coflows = new HashMap<>();
    for (String host : Cluster.HOSTS) {
      Matcher found = COFLOW.matcher(cluster.agents.get(host).status());
      while (found.find()) {
        String it = found.group();
        long rank = it.contains("\"rank\":null") ? -1 : AgentProcess.number(it, "rank");
        Coflow here = new Coflow(AgentProcess.number(it, "bytes"), AgentProcess.number(it, "left"), rank);
        coflows.merge(found.group(1), here, Coflow::and);
      }
    }
    return coflows;
  }

  @Test
  void theJobThatAaloRanksFirstEndsFirst() throws Exception {
    String controller = "127.0.0.1:" + freePort();
    Path state = Files.createTempDirectory("hwc");
    Process ordering =
        new ProcessBuilder(
                AgentProcess.binary().toString(), "--state", state.toString(), "controller", "--listen", controller, "--coflow-order", "aalo")
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    try {
      Ends ends = run("--controller", controller);
      assertTrue(ends.youngWasFirst, "the young job was ranked before the old one");
      assertEquals(List.of("young", "old"), ends.shuffles);
      assertTrue(ends.oldLeft > OLD_LEFT / 4, "the old one had got what was under way, and " + ends.oldLeft + " bytes were left");
    } finally {
      ordering.destroyForcibly().waitFor();
      Cluster.delete(state);
    }
  }

  @Test
  void withoutAnOrderTheJobWithLessLeftEndsFirst() throws Exception {
    Ends ends = run();
    assertTrue(!ends.youngWasFirst, "nobody ranks anything");
    assertEquals(List.of("old", "young"), ends.shuffles);
  }

  /**
   * In which order jobs had fetched everything, and what the old one had left when the first of them had. When jobs end depends on more
   * than what they fetch.
   */
  private record Ends(List<String> shuffles, long oldLeft, boolean youngWasFirst) {}

  private static Ends run(String... agentOptions) throws Exception {
    Map<String, ThrottledRelay> links = new LinkedHashMap<>();
    try (Cluster cluster = new Cluster(NODE, agentOptions)) {
      Map<String, String> addresses = new HashMap<>();
      for (Map.Entry<String, AgentProcess> host : cluster.agents.entrySet()) {
        ThrottledRelay link = new ThrottledRelay(host.getValue().address(), LINK);
        links.put(host.getKey(), link);
        addresses.put(host.getKey(), link.address());
      }
      AgentProcess.introduce(cluster.agents, addresses);
      return run(cluster);
    } finally {
      for (ThrottledRelay link : links.values()) {
        link.close();
      }
    }
  }

  private static Ends run(Cluster cluster) throws Exception {
    Path oldGate = Files.createDirectory(cluster.folder.resolve("gate-old"));
    Path youngGate = Files.createDirectory(cluster.folder.resolve("gate-young"));
    Job old = job(cluster, "old", OLD_RECORDS, oldGate, OLD_MASTER, OLD_MAP, OLD_REDUCER);
    old.submit();
    await(old, oldGate);
    Job young = job(cluster, "young", YOUNG_RECORDS, youngGate, YOUNG_MASTER, YOUNG_MAP, YOUNG_REDUCER);
    young.submit();
    await(young, youngGate);
    String oldId = old.getJobID().toString();
    String youngId = young.getJobID().toString();
    for (String job : List.of(oldId, youngId)) {
      for (String host : Cluster.HOSTS) {
        assertEquals(1, cluster.outputs(job, host), "maps of " + job + " on " + host);
      }
    }

    Gate.open(oldGate);
    Coflow before;
    while ((before = coflows(cluster).get(oldId)) != null && (before.bytes <= FIRST_QUEUE || before.left > OLD_LEFT)) {
      Thread.sleep(20);
    }
    assertTrue(before != null && before.left > OLD_LEFT / 2, "the old job is nearly there: " + before);
    Gate.open(youngGate);
    Map<String, String> names = new LinkedHashMap<>(Map.of(oldId, "old", youngId, "young"));
    List<String> shuffles = new ArrayList<>();
    boolean youngWasFirst = false;
    long oldLeft = before.left;
    while (!names.isEmpty()) {
      Map<String, Coflow> now = coflows(cluster);
      names.entrySet().removeIf(job -> !now.containsKey(job.getKey()) && shuffles.add(job.getValue()));
      oldLeft = shuffles.isEmpty() && now.containsKey(oldId) ? now.get(oldId).left : oldLeft;
      if (now.containsKey(youngId) && now.containsKey(oldId)) {
        long rank = now.get(youngId).rank;
        youngWasFirst |= rank >= 0 && rank < now.get(oldId).rank;
      }
      Thread.sleep(20);
    }
    for (Job job : List.of(old, young)) {
      assertTrue(job.waitForCompletion(false), job.getJobName());
    }
    System.out.printf(
        "when the young job began the old one had %s, when the first of the two was done %d left; everything fetched: %s%n",
        before, oldLeft, shuffles);
    return new Ends(shuffles, oldLeft, youngWasFirst);
  }

  private static Job job(Cluster cluster, String name, int records, Path gate, int master, int map, int reducer) throws IOException {
    Configuration conf = cluster.agents();
    conf.setBoolean("mapreduce.map.output.compress", true);
    conf.setClass("mapreduce.map.output.compress.codec", GatedCodec.class, CompressionCodec.class);
    conf.set(Gate.FOLDER, gate.toString());
    conf.setInt("yarn.app.mapreduce.am.resource.mb", master);
    conf.setInt("mapreduce.map.memory.mb", map);
    conf.setInt("mapreduce.reduce.memory.mb", reducer);
    return SortJob.job(conf, name, 2, 2, records, cluster.folder.resolve("out-" + name));
  }

  private static void await(Job job, Path gate) throws Exception {
    while (Gate.waiting(gate) < 2) {
      assertTrue(!job.isComplete(), "it ended without stopping");
      Thread.sleep(100);
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket any = new ServerSocket(0)) {
      return any.getLocalPort();
    }
  }
}
