package io.headwater.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.headwater.agent.AgentProcess;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.mapreduce.Job;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Two jobs at once, with a controller that ranks their coflows and links that are slower than all else. */
@Timeout(value = 900, unit = TimeUnit.SECONDS)
class OrderTest {
  private static final long LINK = 2_000_000;

  /**
   * Sizes by which the scheduler has one place only for everything: each host gets one reducer of each job. The large job comes first:
   * its reducers are more than half of a node, so there is one on each. The small job's master fits only where the large one's is not,
   * and then each node has room for one of its reducers.
   */
  private static final int NODE = 6400;

  private static final int LARGE_MASTER = 2048;
  private static final int LARGE_REDUCER = 3328;
  private static final int SMALL_MASTER = 1280;
  private static final int SMALL_REDUCER = 1024;

  /** A coflow in an agent's status. */
  private record Coflow(long bytes, long left, long rank) {}

  private static final Pattern COFLOW = Pattern.compile("\\{[^{}]*\"application\":\"(job_\\d+_\\d+)\"[^{}]*\\}");

  private static Map<String, Coflow> coflows(String status) throws IOException {
    Map<String, Coflow> coflows = new HashMap<>();
    Matcher found = COFLOW.matcher(status);
    while (found.find()) {
      String it = found.group();
      long rank = it.contains("\"rank\":null") ? -1 : AgentProcess.number(it, "rank");
      coflows.put(found.group(1), new Coflow(AgentProcess.number(it, "bytes"), AgentProcess.number(it, "left"), rank));
    }
    return coflows;
  }

  @Test
  void theJobWithLessLeftIsRankedFirst() throws Exception {
    Path binary = AgentProcess.binary();
    String controller = "127.0.0.1:" + freePort();
    Path state = Files.createTempDirectory("hwc");
    Process ordering =
        new ProcessBuilder(binary.toString(), "--state", state.toString(), "controller", "--listen", controller, "--coflow-order", "varys")
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    Map<String, ThrottledRelay> links = new LinkedHashMap<>();
    try (Cluster cluster = new Cluster(NODE, "--controller", controller)) {
      Map<String, String> addresses = new HashMap<>();
      for (Map.Entry<String, AgentProcess> host : cluster.agents.entrySet()) {
        ThrottledRelay link = new ThrottledRelay(host.getValue().address(), LINK);
        links.put(host.getKey(), link);
        addresses.put(host.getKey(), link.address());
      }
      AgentProcess.introduce(cluster.agents, addresses);
      run(cluster);
    } finally {
      ordering.destroyForcibly().waitFor();
      Cluster.delete(state);
      for (ThrottledRelay link : links.values()) {
        link.close();
      }
    }
  }

  private void run(Cluster cluster) throws Exception {
    Path largeGate = Files.createDirectory(cluster.folder.resolve("gate-large"));
    Path smallGate = Files.createDirectory(cluster.folder.resolve("gate-small"));
    Job large = job(cluster, "large", 200_000, largeGate, LARGE_MASTER, LARGE_REDUCER);
    large.submit();
    await(large, largeGate);
    Job small = job(cluster, "small", 100_000, smallGate, SMALL_MASTER, SMALL_REDUCER);
    small.submit();
    await(small, smallGate);

    // Both are on their way at both hosts. What comes from now on is compared.
    String largeId = large.getJobID().toString();
    String smallId = small.getJobID().toString();
    Map<String, Map<String, Coflow>> first = new HashMap<>();
    for (String host : Cluster.HOSTS) {
      String status = cluster.agents.get(host).status();
      Map<String, Coflow> at = coflows(status);
      assertEquals(2, at.size(), status);
      first.put(host, at);
    }
    Files.write(smallGate.resolve("open"), new byte[0]);
    Files.write(largeGate.resolve("open"), new byte[0]);
    Map<String, Map<String, Coflow>> last = new HashMap<>();
    boolean ranked = false;
    while (!small.isComplete()) {
      for (String host : Cluster.HOSTS) {
        Map<String, Coflow> at = coflows(cluster.agents.get(host).status());
        if (at.containsKey(smallId) && at.containsKey(largeId) && at.get(smallId).left() > 0) {
          last.put(host, at);
          ranked |= at.get(smallId).rank() >= 0 && at.get(smallId).rank() < at.get(largeId).rank();
        }
      }
      Thread.sleep(50);
    }
    assertTrue(small.isSuccessful());
    assertTrue(!large.isComplete(), "it ended first");
    assertTrue(large.waitForCompletion(false));
    assertTrue(ranked, "the small job was ranked before the large one");
    long smallCame = 0;
    long largeCame = 0;
    for (String host : Cluster.HOSTS) {
      smallCame += last.get(host).get(smallId).bytes() - first.get(host).get(smallId).bytes();
      largeCame += last.get(host).get(largeId).bytes() - first.get(host).get(largeId).bytes();
    }
    // No proof that the order did it: without a controller a run had 0 bytes for the other, too. The figures are for who looks.
    System.out.printf("while the ranked job fetched %d bytes, the other fetched %d%n", smallCame, largeCame);
  }

  private static Job job(Cluster cluster, String name, int records, Path gate, int master, int reducer) throws IOException {
    Configuration conf = cluster.agents();
    conf.setBoolean("mapreduce.map.output.compress", true);
    conf.setClass("mapreduce.map.output.compress.codec", GatedCodec.class, CompressionCodec.class);
    conf.set(GatedCodec.GATE, gate.toString());
    conf.setInt("yarn.app.mapreduce.am.resource.mb", master);
    conf.setInt("mapreduce.reduce.memory.mb", reducer);
    return SortJob.job(conf, name, 4, 2, records, cluster.folder.resolve("out-" + name));
  }

  private static void await(Job job, Path gate) throws Exception {
    while (!Files.exists(gate.resolve("at-0")) || !Files.exists(gate.resolve("at-1"))) {
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
