package io.headwater.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.headwater.agent.AgentProcess;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskCompletionEvent;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Sorts on two NodeManagers with an agent each, beside the same sorts by the stock shuffle. */
@Timeout(value = 600, unit = TimeUnit.SECONDS)
class AgentShuffleTest {
  private static final int MAPS = 8;
  private static final int REDUCERS = 8;

  /** 25 MB of each map: 200 MB in all. */
  private static final int MANY = 250_000;

  /** 4 MB of each map, for what goes wrong. */
  private static final int FEW = 40_000;

  private static final int FEW_MAPS = 4;
  private static final int FEW_REDUCERS = 4;

  private static Cluster cluster;
  private static int outputs;
  private static List<String> expected;

  @BeforeAll
  static void start() throws IOException {
    cluster = new Cluster();
  }

  @AfterAll
  static void stop() throws IOException {
    if (cluster != null) {
      cluster.close();
    }
  }

  private static Path output() {
    return cluster.folder.resolve("out" + ++outputs);
  }

  /** A job that was submitted, and where its result will be. */
  private record Running(Job job, Path output, long since) {
    List<String> result() throws Exception {
      seconds();
      return SortJob.result(output);
    }

    /** What it took, when it is done. */
    double seconds() throws Exception {
      assertTrue(job.waitForCompletion(false), () -> "the job failed: " + said());
      double seconds = (System.nanoTime() - since) / 1e9;
      System.out.printf("%s: %.1f s, %s%n", job.getJobName(), seconds, counters());
      return seconds;
    }

    private String said() {
      try {
        return job.getStatus().getFailureInfo() + cluster.said(job.getJobID().toString());
      } catch (IOException | InterruptedException e) {
        return e.toString();
      }
    }

    long counter(ShuffleCounter counter) throws IOException {
      return job.getCounters().findCounter(counter).getValue();
    }

    private String counters() throws IOException {
      Map<ShuffleCounter, Long> all = new java.util.EnumMap<>(ShuffleCounter.class);
      for (ShuffleCounter counter : ShuffleCounter.values()) {
        all.put(counter, counter(counter));
      }
      return all.toString();
    }
  }

  private static Running submit(Configuration conf, String name) throws Exception {
    return submit(conf, name, FEW_MAPS, FEW_REDUCERS, FEW);
  }

  private static Running submit(Configuration conf, String name, int maps, int reducers, int records) throws Exception {
    Path output = output();
    Job job = SortJob.job(conf, name, maps, reducers, records, output);
    long since = System.nanoTime();
    job.submit();
    return new Running(job, output, since);
  }

  /** What a small sort must give, by the stock shuffle. */
  private static synchronized List<String> expected() throws Exception {
    if (expected == null) {
      expected = submit(cluster.stock(), "small, stock").result();
      assertEquals(FEW_REDUCERS, expected.size());
    }
    return expected;
  }

  /** Connections of a job's reducers to the shuffle services. */
  private static List<CountingShuffleHandler.Connection> connections(Job job, String host) {
    String id = job.getJobID().toString();
    return CountingShuffleHandler.connections(host).stream().filter(it -> it.job().equals(id)).toList();
  }

  /** Those of them that go to the other host. */
  private static long connectionsBetweenHosts(Job job) throws Exception {
    Map<Integer, String> hosts = new HashMap<>();
    for (TaskCompletionEvent event : job.getTaskCompletionEvents(0, 100)) {
      if (!event.isMapTask()) {
        hosts.put(event.getTaskAttemptId().getTaskID().getId(), java.net.URI.create(event.getTaskTrackerHttp()).getHost());
      }
    }
    assertEquals(2, hosts.values().stream().distinct().count(), () -> "reducers on both hosts: " + hosts);
    long count = 0;
    for (String host : Cluster.HOSTS) {
      count += connections(job, host).stream().filter(it -> !host.equals(hosts.get(it.reduce()))).count();
    }
    return count;
  }

  /** Connections by which an agent gets bytes from other hosts, and whether each is up. */
  private static long lanes(String host, String status) {
    Matcher lane = Pattern.compile("\\{[^{}]*\"host\":\"([^\"]+)\"[^{}]*\\}").matcher(status);
    long count = 0;
    while (lane.find()) {
      count += lane.group(1).equals(host) || !lane.group().contains("\"up\":true") ? 0 : 1;
    }
    return count;
  }

  @Test
  @Tag("times")
  void timesOfSortsWithAgentsOverThoseOfStockOnes() throws Exception {
    List<Double> stock = new ArrayList<>();
    List<Double> ours = new ArrayList<>();
    for (int round = 0; round < 5; round++) {
      stock.add(submit(cluster.stock(), "200 MB, stock", MAPS, REDUCERS, MANY).seconds());
      ours.add(submit(cluster.agents(), "200 MB, agents", MAPS, REDUCERS, MANY).seconds());
    }
    stock.sort(null);
    ours.sort(null);
    System.out.printf("times: agents %.1f s, stock %.1f s, ratio of the medians %.3f%n", ours.get(2), stock.get(2), ours.get(2) / stock.get(2));
  }

  @Test
  @Tag("quick")
  void aSortOf200MegabytesGivesTheSameByOneConnectionEachWay() throws Exception {
    Running stock = submit(cluster.stock(), "200 MB, stock", MAPS, REDUCERS, MANY);
    List<String> right = stock.result();
    assertEquals(REDUCERS, right.size());
    long before = connectionsBetweenHosts(stock.job());
    long all = Cluster.HOSTS.stream().mapToLong(host -> connections(stock.job(), host).size()).sum();

    Map<String, Long> broken = new HashMap<>();
    for (String host : Cluster.HOSTS) {
      broken.put(host, cluster.agents.get(host).number("resets"));
    }
    Running ours = submit(cluster.agents(), "200 MB, agents", MAPS, REDUCERS, MANY);
    Map<String, Long> most = new HashMap<>();
    while (!ours.job().isComplete()) {
      for (String host : Cluster.HOSTS) {
        most.merge(host, lanes(host, cluster.agents.get(host).status()), Math::max);
      }
      Thread.sleep(50);
    }
    assertEquals(right, ours.result());
    long after = most.values().stream().mapToLong(it -> it).sum();
    System.out.printf("connections of the shuffle: %d stock, %d of them between the hosts; %d between the hosts with agents%n", all, before, after);
    assertTrue(all >= 2 * REDUCERS && before >= REDUCERS, () -> "each reducer connects to each host: " + all + ", " + before);
    assertEquals(Map.of(Cluster.HOSTS.get(0), 1L, Cluster.HOSTS.get(1), 1L), most);
    assertEquals(0, connectionsBetweenHosts(ours.job()));
    assertEquals(MAPS * REDUCERS, ours.counter(ShuffleCounter.AGENT_OUTPUTS));
    assertEquals(0, ours.counter(ShuffleCounter.STOCK_INSTEAD));
    for (String host : Cluster.HOSTS) {
      assertEquals(broken.get(host), cluster.agents.get(host).number("resets"), "no connection was dialled again");
    }
  }

  @Test
  void withoutAnAgentTheJobIsStockAndEachTaskSaysSoOnce() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    conf.set(JobAgent.SOCKET, cluster.folder.resolve("none.sock").toString());
    Running job = submit(conf, "small, no agent");
    assertEquals(right, job.result());
    assertEquals(FEW_REDUCERS, job.counter(ShuffleCounter.STOCK_REDUCERS));
    List<List<String>> said = cluster.said(job.job().getJobID().toString());
    assertEquals(FEW_MAPS + FEW_REDUCERS, said.size());
    for (List<String> lines : said) {
      assertEquals(1, lines.size(), lines::toString);
      assertTrue(lines.get(0).contains("stock way"), lines::toString);
    }
  }

  @Test
  void whatAgentsDoNotDoIsLeftToTheStockShuffle() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    conf.setBoolean("mapreduce.job.encrypted-intermediate-data", true);
    Running job = submit(conf, "small, encrypted");
    assertEquals(right, job.result());
    assertEquals(FEW_REDUCERS, job.counter(ShuffleCounter.STOCK_REDUCERS));
    assertEquals(0, job.counter(ShuffleCounter.AGENT_OUTPUTS));
  }

  /** A job whose reducers stop in the middle of an output each. */
  private static Running gated(Configuration conf, String name, int only, int awaited) throws Exception {
    conf.setBoolean("mapreduce.map.output.compress", true);
    conf.setClass("mapreduce.map.output.compress.codec", GatedCodec.class, org.apache.hadoop.io.compress.CompressionCodec.class);
    if (only >= 0) {
      conf.setInt(Gate.ONLY, only);
    }
    return stopped(conf, name, awaited);
  }

  /** A job so many of whose reducers have come to their gate. */
  private static Running stopped(Configuration conf, String name, int awaited) throws Exception {
    Path gate = Files.createDirectory(cluster.folder.resolve("gate" + ++outputs));
    conf.set(Gate.FOLDER, gate.toString());
    Running job = submit(conf, name);
    while (Gate.waiting(gate) < awaited) {
      assertTrue(!job.job().isComplete(), () -> "it ended without stopping: " + job.said());
      Thread.sleep(100);
    }
    return job;
  }

  private static void open(Configuration conf) throws IOException {
    Gate.open(Path.of(conf.get(Gate.FOLDER)));
  }

  /** One agent is the local one of half of the reducers, and the peer of the others. */
  @Test
  @Tag("quick")
  void anAgentThatDiesInTheMiddleCostsNoJob() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    Running job = gated(conf, "small, an agent killed", -1, FEW_REDUCERS);
    AgentProcess victim = cluster.agents.get(Cluster.HOSTS.get(1));
    victim.kill();
    open(conf);
    try {
      assertEquals(right, job.result());
    } finally {
      victim.start();
    }
    assertTrue(job.counter(ShuffleCounter.STOCK_INSTEAD) > 0);
    assertTrue(job.counter(ShuffleCounter.AGENT_OUTPUTS) > 0);
    String said = cluster.said(job.job().getJobID().toString()).toString();
    assertTrue(said.contains("the agent of this host is gone"), said);
  }

  /** All maps have ended and told their agents of it. Then one agent starts again, and only then reducers look for theirs. */
  @Test
  @Tag("quick")
  void whatAnAgentHasForgottenWhenItStartsAgainComesTheStockWay() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    conf.set("mapreduce.job.reduce.shuffle.consumer.plugin.class", GatedShuffle.class.getName());
    Running job = stopped(conf, "small, an agent started again", FEW_REDUCERS);
    String id = job.job().getJobID().toString();
    String host = Cluster.HOSTS.get(1);
    long forgotten = cluster.outputs(id, host);
    assertEquals(FEW_MAPS, forgotten + cluster.outputs(id, Cluster.HOSTS.get(0)));
    assertTrue(forgotten > 0 && forgotten < FEW_MAPS, () -> forgotten + " outputs of " + host);
    AgentProcess agent = cluster.agents.get(host);
    assertTrue(agent.number("outputs") >= forgotten, agent.status());
    agent.kill();
    agent.start();
    assertEquals(0, agent.number("outputs"));
    open(conf);
    assertEquals(right, job.result());
    assertEquals(0, job.counter(ShuffleCounter.STOCK_REDUCERS));
    assertEquals(forgotten * FEW_REDUCERS, job.counter(ShuffleCounter.STOCK_INSTEAD));
    assertEquals((FEW_MAPS - forgotten) * FEW_REDUCERS, job.counter(ShuffleCounter.AGENT_OUTPUTS));
    assertEquals(FEW_MAPS, launchedMaps(job.job()), "no map was run again");
    List<Long> lines = cluster.said(id).stream().map(said -> said.stream().filter(it -> it.contains("the stock way")).count()).toList();
    assertEquals(FEW_REDUCERS, lines.stream().filter(count -> count == 1).count(), () -> "one line of each reducer: " + lines);
    assertEquals(FEW_REDUCERS, lines.stream().mapToLong(count -> count).sum(), () -> "and of nobody else: " + lines);
  }

  private static long launchedMaps(Job job) throws IOException {
    return job.getCounters().findCounter(org.apache.hadoop.mapreduce.JobCounter.TOTAL_LAUNCHED_MAPS).getValue();
  }

  @Test
  void anAgentThatIsFrozenForAWhileDelaysAndBreaksNothing() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    Running job = gated(conf, "small, an agent frozen", -1, FEW_REDUCERS);
    AgentProcess victim = cluster.agents.get(Cluster.HOSTS.get(1));
    victim.signal("STOP");
    open(conf);
    Thread.sleep(10_000);
    victim.signal("CONT");
    assertEquals(right, job.result());
    assertEquals(FEW_MAPS * FEW_REDUCERS, job.counter(ShuffleCounter.AGENT_OUTPUTS));
  }

  /** The stock fetcher hears what has become of the file, and its map is run again as stock would. */
  @Test
  void aTruncatedOutputIsMadeAgain() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    conf.setInt("mapreduce.reduce.shuffle.max-fetch-failures-notifications", 1);
    conf.setFloat("mapreduce.reduce.shuffle.max-fetch-failures-fraction", 0.1f);
    conf.setLong("mapreduce.reduce.shuffle.retry-delay.max.ms", 500);
    Running job = gated(conf, "small, an output cut off", -1, FEW_REDUCERS);
    List<Path> files = cluster.files(job.job().getJobID().toString(), "file.out");
    assertEquals(FEW_MAPS, files.size());
    try (RandomAccessFile cut = new RandomAccessFile(files.get(0).toFile(), "rw")) {
      cut.setLength(10);
    }
    open(conf);
    assertEquals(right, job.result());
    long launched = launchedMaps(job.job());
    System.out.println("maps launched: " + launched);
    assertTrue(launched > FEW_MAPS, "the map was run again");
    // Counters are of the attempts that succeeded, and a reducer that hears of such failures is run again itself.
    String said = cluster.said(job.job().getJobID().toString()).toString();
    assertTrue(said.contains("is fetched the stock way"), said);
  }

  /** The reducer that stalls goes on only when all others have written their results: whoever waited for it would wait for ever. */
  @Test
  void aReducerThatStallsHoldsUpNobody() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    Running job = gated(conf, "small, a reducer stalls", 0, 1);
    while (job.job().getTaskReports(org.apache.hadoop.mapreduce.TaskType.REDUCE).length < FEW_REDUCERS || done(job.job()) < FEW_REDUCERS - 1) {
      Thread.sleep(100);
    }
    open(conf);
    assertEquals(right, job.result());
    assertEquals(FEW_MAPS * FEW_REDUCERS, job.counter(ShuffleCounter.AGENT_OUTPUTS));
  }

  /** The reducer whose disk is full fails, as it would without agents. It goes on when there is room, and all others have ended by then. */
  @Test
  void aReducerWhoseDiskIsFullIsMadeAgainAndHoldsUpNobody() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    conf.set("mapreduce.job.reduce.shuffle.consumer.plugin.class", SmallDiskShuffle.class.getName());
    // No output fits into the memory of a reducer.
    conf.setFloat("mapreduce.reduce.shuffle.memory.limit.percent", 0.0001f);
    try (SmallDisk disk = new SmallDisk(cluster.folder.resolve("disk"), 2)) {
      conf.set(SmallDiskShuffle.FOLDER, disk.folder.toString());
      Running job = stopped(conf, "small, a disk full", 1);
      while (done(job.job()) < FEW_REDUCERS - 1) {
        Thread.sleep(100);
      }
      disk.resize(64);
      open(conf);
      assertEquals(right, job.result());
      assertEquals(1, failedReducers(job.job()));
      assertEquals(FEW_MAPS, launchedMaps(job.job()), "no map was blamed");
      assertEquals(FEW_MAPS * FEW_REDUCERS, job.counter(ShuffleCounter.AGENT_OUTPUTS));
      assertEquals(0, job.counter(ShuffleCounter.STOCK_INSTEAD));
      List<String> why = new java.util.ArrayList<>();
      for (TaskCompletionEvent event : job.job().getTaskCompletionEvents(0, 100)) {
        if (event.getStatus() == TaskCompletionEvent.Status.FAILED) {
          why.addAll(List.of(job.job().getTaskDiagnostics(event.getTaskAttemptId())));
        }
      }
      // Hadoop sees it before it writes, or while it does.
      assertTrue(why.toString().contains("No space"), why::toString);
    }
  }

  private static long failedReducers(Job job) throws IOException {
    return job.getCounters().findCounter(org.apache.hadoop.mapreduce.JobCounter.NUM_FAILED_REDUCES).getValue();
  }

  private static long done(Job job) throws Exception {
    long done = 0;
    for (var report : job.getTaskReports(org.apache.hadoop.mapreduce.TaskType.REDUCE)) {
      done += report.getCurrentStatus() == org.apache.hadoop.mapred.TIPStatus.COMPLETE ? 1 : 0;
    }
    return done;
  }

  /** Two outputs fill the memory and a merge begins only with the second; so the flow of a third waits. */
  @Test
  void aFlowWithoutMemoryHasNoCreditUntilThereIsRoom() throws Exception {
    List<String> right = expected();
    Configuration conf = cluster.agents();
    // A record takes 110 bytes in memory.
    long each = FEW / FEW_REDUCERS * 110L;
    long limit = (long) (each / 0.55);
    conf.setLong("mapreduce.reduce.memory.totalbytes", (long) (limit / 0.7));
    conf.setFloat("mapreduce.reduce.shuffle.input.buffer.percent", 0.7f);
    conf.setFloat("mapreduce.reduce.shuffle.memory.limit.percent", 0.6f);
    conf.setFloat("mapreduce.reduce.shuffle.merge.percent", 0.66f);
    Running job = gated(conf, "small, little memory", -1, FEW_REDUCERS);
    open(conf);
    assertEquals(right, job.result());
    assertTrue(job.counter(ShuffleCounter.AGENT_WAITS) > 0);
    assertEquals(FEW_MAPS * FEW_REDUCERS, job.counter(ShuffleCounter.AGENT_OUTPUTS));
  }
}
