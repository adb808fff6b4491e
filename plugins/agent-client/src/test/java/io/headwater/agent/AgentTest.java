package io.headwater.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The client with real agents of two hosts. */
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class AgentTest {
  private static final byte[] TOKEN = "a token of tests".getBytes();
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private static Path folder;
  private static Path data;
  private static AgentProcess here;
  private static AgentProcess there;

  @BeforeAll
  static void start() throws Exception {
    AgentProcess.binary();
    folder = Files.createTempDirectory("hw");
    data = Files.createDirectory(folder.resolve("data"));
    here = AgentProcess.start(folder.resolve("a"), "127.0.0.2", List.of(data));
    there = AgentProcess.start(folder.resolve("b"), "127.0.0.3", List.of(data));
    AgentProcess.introduce(Map.of("host-a", here, "host-b", there));
  }

  @AfterAll
  static void stop() throws IOException {
    if (here != null) {
      here.close();
    }
    if (there != null) {
      there.close();
    }
    if (folder != null) {
      try (var files = Files.walk(folder)) {
        files.sorted(java.util.Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
      }
    }
  }

  private static AgentClient connect(AgentProcess agent, String application) throws IOException {
    return AgentClient.connect(agent.socket(), application, TOKEN, PATIENCE);
  }

  private static byte[] file(String name, int length) throws IOException {
    byte[] bytes = new byte[length];
    new Random(name.hashCode()).nextBytes(bytes);
    Files.write(data.resolve(name), bytes);
    return bytes;
  }

  private static byte[] numbers(long... numbers) {
    ByteBuffer bytes = ByteBuffer.allocate(8 * numbers.length);
    for (long number : numbers) {
      bytes.putLong(number);
    }
    return bytes.array();
  }

  /** The list of agents is read again a moment after the signal. */
  private static FlowStream open(AgentClient client, Fetch fetch, int window) throws IOException {
    while (true) {
      FlowStream flow = client.open(fetch, window);
      try {
        flow.length();
        return flow;
      } catch (RefusedException e) {
        if (e.refusal() != Refusal.UNKNOWN_HOST) {
          throw e;
        }
        AgentProcess.pause();
      }
    }
  }

  private static Fetch fetch(String output, int first, int count) {
    return new Fetch(17, "host-b", output, first, count, 0);
  }

  @Test
  void outputsOfAllKindsOfIndexComeByteForByte() throws IOException {
    byte[] bytes = file("one", 3_000_000);
    Files.write(data.resolve("one.hadoop"), numbers(0, 5_000_000, 1_000_000, 1_000_000, 77, 2_000_000, 0));
    Files.write(data.resolve("one.spark"), numbers(0, 10, 10, 3_000_000));
    try (AgentClient source = connect(there, "kinds");
        AgentClient client = connect(here, "kinds")) {
      assertEquals(65_536, client.block());
      source.register("ranges", data.resolve("one"), new Index.Ranges(List.of(new Range(5, 7, 9), new Range(12, 100_000, 1))));
      source.register("hadoop", data.resolve("one"), new Index.Hadoop(data.resolve("one.hadoop")));
      source.register("spark", data.resolve("one"), new Index.Spark(data.resolve("one.spark")));
      try (FlowStream flow = open(client, fetch("ranges", 0, 2), 1)) {
        assertEquals(100_007, flow.length());
        assertEquals(9, flow.info());
        assertArrayEquals(Arrays.copyOfRange(bytes, 5, 100_012), flow.readAllBytes());
      }
      try (FlowStream flow = client.open(fetch("hadoop", 1, 1), 1 << 20)) {
        assertEquals(77, flow.info());
        assertArrayEquals(Arrays.copyOfRange(bytes, 1_000_000, 3_000_000), flow.readAllBytes());
      }
      try (FlowStream flow = client.open(fetch("spark", 2, 1), 200_000)) {
        assertArrayEquals(Arrays.copyOfRange(bytes, 10, 3_000_000), flow.readAllBytes());
      }
      try (FlowStream empty = client.open(fetch("spark", 1, 1), 1)) {
        assertEquals(-1, empty.read());
      }
      source.unregister("ranges");
      assertEquals(Refusal.UNKNOWN, refusal(client, fetch("ranges", 0, 1)));
      source.drop();
      assertEquals(Refusal.UNKNOWN, refusal(client, fetch("spark", 0, 1)));
    }
  }

  private static Refusal refusal(AgentClient client, Fetch fetch) throws IOException {
    try (FlowStream flow = client.open(fetch, 1)) {
      return assertThrows(RefusedException.class, flow::readAllBytes).refusal();
    }
  }

  @Test
  void whatAnAgentRefusesIsSaidWithItsReason() throws IOException {
    file("two", 100);
    try (AgentClient source = connect(there, "refusals")) {
      Index whole = new Index.Ranges(List.of(new Range(0, 100, 0)));
      Index more = new Index.Ranges(List.of(new Range(0, 101, 0)));
      assertEquals(Refusal.OUTSIDE_ROOTS, refusal(source, Path.of("/etc/hostname"), whole));
      assertEquals(Refusal.TRUNCATED, refusal(source, data.resolve("two"), more));
      assertEquals(Refusal.UNKNOWN, refusal(source, data.resolve("none"), whole));
      assertEquals(Refusal.BAD_INDEX, refusal(source, data.resolve("two"), new Index.Hadoop(data.resolve("two"))));
      source.register("fine", data.resolve("two"), whole);
      byte[] other = "another token ..".getBytes();
      RefusedException notYours =
          assertThrows(RefusedException.class, () -> AgentClient.connect(there.socket(), "refusals", other, PATIENCE));
      assertEquals(Refusal.NOT_YOURS, notYours.refusal());
      assertEquals(Refusal.UNKNOWN_HOST, refusal(source, new Fetch(1, "host-z", "fine", 0, 1, 0)));
      assertTrue(source.isOpen());
      assertTrue(source.status().startsWith("{"));
    }
  }

  private static Refusal refusal(AgentClient source, Path file, Index index) {
    return assertThrows(RefusedException.class, () -> source.register("x", file, index)).refusal();
  }

  @Test
  void withoutCreditNothingComesAndWithItAll() throws IOException {
    byte[] bytes = file("three", 1_000_000);
    try (AgentClient source = connect(there, "credit");
        AgentClient client = connect(here, "credit")) {
      source.register("three", data.resolve("three"), new Index.Ranges(List.of(new Range(0, bytes.length, 0))));
      open(client, fetch("three", 0, 1), 1).close();
      FlowStream stalled = client.openWithoutCredit(fetch("three", 0, 1), 1);
      assertEquals(bytes.length, stalled.length());
      // Many flows pass one that waits.
      for (int at = 0; at < 20; at++) {
        try (FlowStream flow = client.open(fetch("three", 0, 1), 1 << 17)) {
          assertArrayEquals(bytes, flow.readAllBytes());
        }
      }
      assertEquals(0, stalled.available());
      assertArrayEquals(bytes, stalled.readAllBytes());
      stalled.close();
    }
  }

  /** A caller that is interrupted loses its own wait, and the connection goes on for the others. */
  @Test
  void anInterruptedReaderDoesNotEndTheConnection() throws Exception {
    byte[] bytes = file("four", 100_000);
    try (AgentClient source = connect(there, "interrupts");
        AgentClient client = connect(here, "interrupts")) {
      source.register("four", data.resolve("four"), new Index.Ranges(List.of(new Range(0, bytes.length, 0))));
      open(client, fetch("four", 0, 1), 1).close();
      FlowStream stalled = client.openWithoutCredit(fetch("four", 0, 1), 1);
      stalled.length();
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      Thread reader =
          new Thread(
              () -> {
                try {
                  Thread.currentThread().interrupt();
                  // Reading gives credit, with the interrupt pending; the wait is what notices it.
                  stalled.readNBytes(bytes.length);
                  stalled.read();
                } catch (IOException e) {
                  thrown.set(e);
                }
              });
      reader.start();
      reader.join();
      assertTrue(thrown.get() == null || thrown.get() instanceof InterruptedIOException, () -> thrown.get().toString());
      try (FlowStream flow = client.open(fetch("four", 0, 1), 1)) {
        assertArrayEquals(bytes, flow.readAllBytes());
      }
      assertTrue(client.isOpen());
    }
  }

  @Test
  void aStreamWithPatienceTimesOutAndCanBeReadOn() throws IOException {
    byte[] bytes = file("five", 500_000);
    try (AgentClient source = connect(there, "patience");
        AgentClient client = connect(here, "patience")) {
      source.register("five", data.resolve("five"), new Index.Ranges(List.of(new Range(0, bytes.length, 0))));
      open(client, fetch("five", 0, 1), 1).close();
      // The reader's own agent is stopped: nothing comes, and what was asked for comes when it goes on.
      here.signal("STOP");
      FlowStream flow = client.open(fetch("five", 0, 1), 1).patience(Duration.ofMillis(100));
      assertThrows(SocketTimeoutException.class, flow::read);
      here.signal("CONT");
      flow.patience(Duration.ZERO);
      assertArrayEquals(bytes, flow.readAllBytes());
      flow.close();
    }
  }

  @Test
  void anAgentThatDiesBreaksItsFlows() throws Exception {
    byte[] bytes = file("six", 4_000_000);
    AgentProcess third = AgentProcess.start(folder.resolve("c"), "127.0.0.4", List.of(data));
    try (third) {
      AgentProcess.introduce(Map.of("host-b", third));
      try (AgentClient client = connect(third, "death")) {
        client.register("six", data.resolve("six"), new Index.Ranges(List.of(new Range(0, bytes.length, 0))));
        FlowStream flow = open(client, fetch("six", 0, 1), 1);
        assertEquals(100_000, flow.readNBytes(100_000).length);
        third.kill();
        RefusedException broken = assertThrows(RefusedException.class, flow::readAllBytes);
        assertEquals(Refusal.CONNECTION_LOST, broken.refusal());
        assertFalse(client.isOpen());
        assertThrows(IOException.class, () -> client.register("six", data.resolve("six"), new Index.Ranges(List.of())));
      }
      assertThrows(IOException.class, () -> connect(third, "death"));
      third.start();
      connect(third, "death").close();
    }
  }

  @Test
  void manyThreadsShareAConnection() throws Exception {
    byte[] bytes = file("seven", 2_000_000);
    try (AgentClient source = connect(there, "threads");
        AgentClient client = connect(here, "threads")) {
      source.register("seven", data.resolve("seven"), new Index.Ranges(List.of(new Range(0, bytes.length, 0))));
      open(client, fetch("seven", 0, 1), 1).close();
      AtomicReference<Throwable> wrong = new AtomicReference<>();
      Thread[] threads = new Thread[8];
      for (int at = 0; at < threads.length; at++) {
        threads[at] =
            new Thread(
                () -> {
                  for (int round = 0; round < 5; round++) {
                    try (FlowStream flow = client.open(fetch("seven", 0, 1), 1 << 18)) {
                      assertArrayEquals(bytes, flow.readAllBytes());
                    } catch (Throwable e) {
                      wrong.set(e);
                    }
                  }
                });
        threads[at].start();
      }
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(null, wrong.get());
    }
  }
}
