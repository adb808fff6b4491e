package io.headwater.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.headwater.agent.AgentClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.api.java.JavaPairRDD;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.io.TempDir;

/** Spark with two executors, each with an agent of its own: the results are the stock engine's, whatever is lost. */
class SparkShuffleTest {
  /** The stock engine's results. */
  private static String sorted;

  private static String joined;

  /** Stages that a job of the stock engine runs whose map outputs were there, and whose executor was killed. */
  private static int stagesAfterLoss;

  @TempDir Path folder;
  private Agents agents;

  @BeforeAll
  static void stock() throws Exception {
    if (Agents.program() == null) {
      System.out.println("skipped: no headwater program; build it, or name it by the variable HEADWATER");
    }
    Assumptions.assumeTrue(Agents.program() != null);
    try (Application app = Application.stock()) {
      long begin = System.nanoTime();
      sorted = Jobs.ordered(Jobs.sorted(app.context));
      joined = Jobs.total(Jobs.joined(app.context));
      System.out.println("stock: sort and join took " + (System.nanoTime() - begin) / 1_000_000 + " ms");
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      app.kill("0");
      assertEquals(sorted, Jobs.ordered(records));
      List<String> stages = app.stages.submitted();
      stagesAfterLoss = stages.size();
      System.out.println("stock: stages after the loss of an executor: " + stages);
    }
  }

  @BeforeEach
  void start() throws Exception {
    folder = folder.toRealPath();
    agents = new Agents(folder);
  }

  @AfterEach
  void stop(TestInfo test) throws Exception {
    System.out.println("end of " + test.getDisplayName());
    agents.close();
  }

  private Application start(Map<String, String> more) throws Exception {
    return Application.withPlugin(agents.socketOfExecutors(), more);
  }

  private void assertResults(Application app) {
    assertEquals(sorted, Jobs.ordered(Jobs.sorted(app.context)));
    assertEquals(joined, Jobs.total(Jobs.joined(app.context)));
  }

  /** Seconds of sorts and joins. */
  private static final class Times {
    private final List<Double> small = new ArrayList<>();
    private final List<Double> large = new ArrayList<>();

    /** Adds those of an application but the first ones, in which classes are loaded and compiled. */
    void add(Application app) {
      for (int turn = 0; turn < 12; turn++) {
        double seconds = once(app, Jobs.RECORDS);
        if (turn >= 4) {
          small.add(seconds);
        }
      }
      once(app, Jobs.MANY_RECORDS);
      for (int turn = 0; turn < 4; turn++) {
        large.add(once(app, Jobs.MANY_RECORDS));
      }
    }

    private static double once(Application app, int records) {
      long begin = System.nanoTime();
      Jobs.sorted(app.context, records).count();
      Jobs.total(Jobs.joined(app.context, records));
      return (System.nanoTime() - begin) / 1e9;
    }
  }

  private static double median(List<Double> of) {
    return of.stream().sorted().toList().get(of.size() / 2);
  }

  @Test
  @Tag("times")
  void times_of_jobs_with_agents_over_those_of_stock_ones() throws Exception {
    Times stock = new Times();
    Times ours = new Times();
    for (int round = 0; round < 3; round++) {
      try (Application app = Application.stock()) {
        stock.add(app);
      }
      try (Application app = start(Map.of())) {
        ours.add(app);
      }
    }
    print("small jobs", median(ours.small), median(stock.small));
    print("large jobs", median(ours.large), median(stock.large));
  }

  private static void print(String what, double ours, double stock) {
    System.out.printf("times: %s: agents %.2f s, stock %.2f s, ratio of the medians %.3f%n", what, ours, stock, ours / stock);
  }

  @Test
  @Tag("quick")
  void results_are_the_stock_ones_all_remote_bytes_come_through_the_agents_and_a_killed_executor_costs_no_rerun() throws Exception {
    try (Application app = start(Map.of("spark.serializer", "org.apache.spark.serializer.KryoSerializer"))) {
      long begin = System.nanoTime();
      assertResults(app);
      System.out.println("agents: sort and join took " + (System.nanoTime() - begin) / 1_000_000 + " ms");
      long remote = app.stages.remoteBytes();
      System.out.println("bytes that tasks read from the other executor: " + remote);
      assertTrue(remote > 1_000_000, "remote bytes: " + remote);
      assertEquals(remote, agents.countBoth("bytes_received"));
      assertEquals(0, agents.countBoth("flows_broken"));
      assertTrue(agents.countBoth("outputs") > 0);
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();

      long flows = agents.countBoth("flows_done");
      assertEquals((long) Jobs.MAPS * Jobs.RECORDS, Jobs.countInBatches(app.context, records));
      long batches = agents.countBoth("flows_done") - flows;
      assertTrue(batches > 0 && batches <= 2 * Jobs.MAPS, "a flow for all partitions of a map output that a task reads: " + batches);
      assertEquals(app.stages.remoteBytes(), agents.countBoth("bytes_received"));

      app.stages.submitted();
      app.kill("0");
      assertEquals(sorted, Jobs.ordered(records));
      List<String> stages = app.stages.submitted();
      System.out.println("agents: stages after the loss of an executor: " + stages);
      assertEquals(1, stages.size(), "the reduce stage alone: " + stages);
      assertTrue(stagesAfterLoss > 1, "the stock engine ran " + stagesAfterLoss);
      assertEquals(List.of(), app.notices("0"));
      assertEquals(List.of(), app.notices("1"));
    }
  }

  @Test
  void blocks_go_to_files_and_are_encrypted_where_the_engine_wants_that() throws Exception {
    try (Application app = start(Map.of(
        "spark.network.maxRemoteBlockSizeFetchToMem", "1k", "spark.io.encryption.enabled", "true"))) {
      assertResults(app);
      assertEquals(app.stages.remoteBytes(), agents.countBoth("bytes_received"));
      assertTrue(agents.countBoth("bytes_received") > 1_000_000);
    }
    Agents.await("the agents to forget the application", () -> agents.countBoth("applications") == 0 && agents.countBoth("outputs") == 0);
  }

  @Test
  @Tag("quick")
  void no_stage_is_rerun_when_an_executor_ends_and_deletes_its_files() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      long files = dataFiles();
      app.end("0");
      Agents.await("the files to be deleted", () -> dataFiles() < files);
      assertEquals(sorted, Jobs.ordered(records));
      List<String> stages = app.stages.submitted();
      assertEquals(1, stages.size(), "the reduce stage alone: " + stages);
      assertTrue(agents.count(0, "outputs") > 0, "the first agent holds outputs of an executor that is gone");
    }
  }

  /** The engine ends executors in several ways at once, so that they cannot be relied on to ask whether the application ends. */
  @Test
  @Tag("quick")
  void outputs_are_dropped_when_the_application_ends_whether_or_not_executors_come_to_their_end() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      assertTrue(agents.count(0, "outputs") > 0 && agents.count(1, "outputs") > 0);
      app.announceEnd();
      Agents.await("the outputs to be dropped", () -> agents.countBoth("outputs") == 0);
      assertEquals(2, agents.countBoth("applications"), "the executors are there");
      assertEquals(joined, Jobs.total(Jobs.joined(app.context)));
      assertEquals(0, agents.countBoth("outputs"), "what is written afterwards is not registered");
    }
    Agents.await("the agents to forget the application", () -> agents.countBoth("applications") == 0);
  }

  private long dataFiles() {
    try (var all = Files.walk(Application.LOCAL)) {
      return all.filter(it -> it.toString().endsWith(".data")).count();
    } catch (java.io.IOException | java.io.UncheckedIOException e) {
      // Folders vanish while they are walked.
      return Long.MAX_VALUE;
    }
  }

  @Test
  @Tag("quick")
  void the_map_stage_is_rerun_when_an_executor_and_its_agent_are_killed() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      app.kill("0");
      agents.stop(0);
      assertEquals(sorted, Jobs.ordered(records));
      List<String> stages = app.stages.submitted();
      System.out.println("agents: stages after the loss of an executor and its agent: " + stages);
      assertTrue(stages.size() > 1, "a rerun: " + stages);
    }
  }

  @Test
  void the_map_stage_is_rerun_when_the_agent_of_a_lost_executor_has_forgotten_its_outputs() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      app.kill("0");
      agents.stop(0);
      agents.start(0);
      assertEquals(sorted, Jobs.ordered(records));
      List<String> stages = app.stages.submitted();
      assertTrue(stages.size() > 1, "a rerun: " + stages);
    }
  }

  @Test
  void an_agent_that_restarts_learns_the_outputs_of_living_executors_anew() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      long outputs = agents.count(0, "outputs");
      assertTrue(outputs > 0);
      agents.stop(0);
      agents.start(0);
      Agents.await("the outputs to be registered anew", () -> agents.count(0, "outputs") == outputs);
      app.kill("0");
      assertEquals(sorted, Jobs.ordered(records));
      assertEquals(1, app.stages.submitted().size(), "the reduce stage alone");

      assertTrue(agents.count(1, "outputs") > 0);
      app.removeShuffles();
      Agents.await("outputs of the living executor to be unregistered", () -> agents.count(1, "outputs") == 0);
    }
  }

  @Test
  void a_frozen_agent_holds_blocks_up_for_the_patience_and_then_they_come_the_stock_way() throws Exception {
    try (Application app = start(Map.of(Settings.PATIENCE, "5s"))) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      agents.freeze(1);
      assertEquals(sorted, Jobs.ordered(records));
      assertEquals(1, app.stages.submitted().size(), "the reduce stage alone");
    }
  }

  @Test
  void an_agent_that_is_frozen_for_a_while_breaks_nothing() throws Exception {
    try (Application app = start(Map.of())) {
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      agents.freeze(1);
      CompletableFuture<?> result = CompletableFuture.supplyAsync(() -> Jobs.ordered(records));
      Thread.sleep(10_000);
      agents.thaw(1);
      assertEquals(sorted, result.get());
      assertEquals(1, app.stages.submitted().size(), "the reduce stage alone");
      assertResults(app);
    }
  }

  @Test
  void without_agents_all_goes_the_stock_way_with_one_line() throws Exception {
    try (Application app = Application.withPlugin(folder.resolve("nobody-listens-here"))) {
      assertResults(app);
      for (String executor : List.of("0", "1")) {
        List<String> notices = app.notices(executor);
        assertEquals(1, notices.size(), "lines: " + notices);
        assertTrue(notices.get(0).contains("no agent at"), notices.get(0));
      }
      JavaPairRDD<Long, String> records = Jobs.sorted(app.context);
      records.count();
      app.stages.submitted();
      app.kill("0");
      assertEquals(sorted, Jobs.ordered(records));
      assertEquals(stagesAfterLoss, app.stages.submitted().size(), "the stock engine's reruns");
    }
    assertEquals(0, agents.countBoth("bytes_received"));
  }

  @Test
  void an_application_whose_name_is_taken_with_another_token_goes_the_stock_way() throws Exception {
    try (Application app = start(Map.of())) {
      byte[] other = new byte[32];
      try (AgentClient ignored = AgentClient.connect(agents.socket(0), app.context.sc().applicationId(), other, Duration.ofSeconds(30))) {
        assertResults(app);
        assertEquals(0, agents.count(0, "outputs"));
        assertEquals(0, agents.countBoth("bytes_received"));
        List<String> notices = app.notices("0");
        assertEquals(1, notices.size(), "lines: " + notices);
        assertTrue(notices.get(0).contains("another token"), notices.get(0));
      }
    }
  }
}
