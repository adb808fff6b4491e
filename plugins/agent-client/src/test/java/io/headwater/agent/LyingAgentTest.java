package io.headwater.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** An agent that does not keep to the protocol: every lie ends the connection with an error, and nobody waits for ever. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class LyingAgentTest {
  private static final Duration PATIENCE = Duration.ofSeconds(30);
  private static final int BLOCK = 1000;

  @TempDir Path folder;

  private AgentClient connect(FakeAgent agent) throws IOException {
    return AgentClient.connect(agent.socket, "job", new byte[16], PATIENCE);
  }

  /** Fetches two flows from an agent that says this of the first; how the client puts it. Both must hear of it. */
  private String lie(FakeAgent.Script script) throws IOException {
    FakeAgent.Script all =
        agent -> {
          agent.welcome(BLOCK);
          agent.hear();
          agent.hear();
          script.play(agent);
          agent.rest();
        };
    Path own = folder.resolve(Integer.toString(++lies));
    try (FakeAgent agent = new FakeAgent(own, all);
        AgentClient client = connect(agent)) {
      FlowStream first = client.open(new Fetch(1, "h", "o", 0, 1, 0), 2 * BLOCK);
      FlowStream second = client.open(new Fetch(1, "h", "p", 0, 1, 0), 2 * BLOCK);
      RefusedException broken = assertThrows(RefusedException.class, second::length);
      assertEquals(Refusal.CONNECTION_LOST, broken.refusal());
      assertThrows(IOException.class, first::readAllBytes);
      assertFalse(client.isOpen());
      assertThrows(IOException.class, () -> client.fetch(new Fetch(1, "h", "o", 0, 1, 0), new Heard()));
      assertThrows(IOException.class, client::status);
      return broken.getMessage();
    }
  }

  private int lies;

  @Test
  void everyLieEndsTheConnectionAndIsNamed() throws IOException {
    assertTrue(lie(agent -> agent.raw(ByteBuffer.allocate(5).putInt(0x7fff_ffff).put((byte) 69))).contains("2147483647"));
    assertTrue(lie(agent -> agent.raw(ByteBuffer.allocate(4).putInt(0))).contains("without a kind"));
    assertTrue(lie(agent -> agent.say(99, ByteBuffer.allocate(0))).contains("unknown kind 99"));
    assertTrue(lie(agent -> agent.say(66, ByteBuffer.allocate(2).putShort((short) 0))).contains("ends before"));
    assertTrue(lie(agent -> agent.say(70, ByteBuffer.allocate(9).position(9))).contains("goes on"));
    assertTrue(lie(agent -> agent.data(1, 0, 1)).contains("length of -1"));
    assertTrue(
        lie(
                agent -> {
                  agent.opened(1, 10);
                  agent.data(1, 1, 1);
                })
            .contains("expected at 0"));
    assertTrue(
        lie(
                agent -> {
                  agent.opened(1, 10);
                  agent.data(1, 0, 11);
                })
            .contains("of a length of 10"));
    assertTrue(
        lie(
                agent -> {
                  agent.opened(1, 1_000_000);
                  agent.data(1, 0, 2 * BLOCK);
                  agent.data(1, 2 * BLOCK, 1);
                })
            .contains("with credit for 2000"));
    assertTrue(
        lie(
                agent -> {
                  agent.opened(1, 10);
                  agent.data(1, 0, 9);
                  agent.end(1);
                })
            .contains("ends at 9 of 10"));
    assertTrue(
        lie(
                agent -> {
                  agent.opened(1, 10);
                  agent.opened(1, 10);
                })
            .contains("opened twice"));
    assertTrue(lie(agent -> agent.end(3)).contains("never asked for"));
    assertTrue(lie(agent -> agent.end(0)).contains("never asked for"));
    assertTrue(lie(agent -> agent.end(-1)).contains("never asked for"));
    assertTrue(lie(agent -> agent.say(66, ByteBuffer.allocate(4).putInt(9))).contains("never made"));
    assertTrue(lie(agent -> agent.say(65, ByteBuffer.allocate(9).put((byte) 1).putLong(BLOCK))).contains("second welcome"));
  }

  @Test
  void aFrameThatIsCutOffIsNoData() throws IOException {
    FakeAgent.Script cut =
        agent -> {
          agent.welcome(BLOCK);
          agent.hear();
          agent.opened(1, 10);
          agent.raw(ByteBuffer.allocate(24).putInt(17 + 10).put((byte) 69).putLong(1).putLong(0).put(new byte[3]));
        };
    try (FakeAgent agent = new FakeAgent(folder, cut);
        AgentClient client = connect(agent)) {
      FlowStream flow = client.open(new Fetch(1, "h", "o", 0, 1, 0), BLOCK);
      assertEquals(10, flow.length());
      assertThrows(RefusedException.class, flow::read);
    }
  }

  @Test
  void anAgentThatSaysNothingIsGivenUp() throws IOException {
    try (FakeAgent agent = new FakeAgent(folder, FakeAgent::rest)) {
      Duration short_ = Duration.ofMillis(200);
      IOException silent =
          assertThrows(IOException.class, () -> AgentClient.connect(agent.socket, "job", new byte[16], short_));
      assertTrue(silent.getMessage().contains("has not answered"), silent.getMessage());
    }
    assertThrows(IOException.class, () -> AgentClient.connect(folder.resolve("none"), "job", new byte[16], PATIENCE));
  }

  @Test
  void aRefusalOfTheConnectionIsWhatConnectThrows() throws IOException {
    FakeAgent.Script refuse =
        agent -> {
          agent.hear();
          agent.say(67, ByteBuffer.allocate(8).putInt(0).putShort((short) 3).putShort((short) 0));
        };
    try (FakeAgent agent = new FakeAgent(folder, refuse)) {
      RefusedException refused = assertThrows(RefusedException.class, () -> connect(agent));
      assertEquals(Refusal.NOT_YOURS, refused.refusal());
    }
  }

  /** What an agent promises costs nothing: only what comes is kept, and never more than the window. */
  @Test
  void aFlowOfManyTerabytesHoldsNoMoreThanItsWindow() throws IOException {
    FakeAgent.Script script =
        agent -> {
          agent.welcome(BLOCK);
          agent.hear();
          agent.opened(1, Long.MAX_VALUE);
          agent.data(1, 0, BLOCK);
          agent.data(1, BLOCK, BLOCK);
          // One or both are read by now, and there is credit for as many more, but no more than that.
          ByteBuffer credit = agent.hear();
          assertEquals(6, credit.get());
          assertEquals(1, credit.getLong());
          long more = credit.getLong();
          assertTrue(more == BLOCK || more == 2 * BLOCK, () -> "credit of " + more);
          agent.data(1, 2 * BLOCK, BLOCK);
          agent.rest();
        };
    try (FakeAgent agent = new FakeAgent(folder, script);
        AgentClient client = connect(agent);
        FlowStream flow = client.open(new Fetch(1, "h", "o", 0, 1, 0), 1)) {
      assertEquals(Long.MAX_VALUE, flow.length());
      assertEquals(3 * BLOCK, flow.readNBytes(3 * BLOCK).length);
    }
  }

  /** A listener that fails is its own flow's trouble. */
  @Test
  void aListenerThatThrowsEndsItsOwnFlowAlone() throws Exception {
    FakeAgent.Script script =
        agent -> {
          agent.welcome(BLOCK);
          agent.hear();
          agent.hear();
          agent.opened(1, 10);
          agent.hear(); // CANCEL
          agent.opened(2, 10);
          agent.data(1, 0, 10); // was under way
          agent.data(2, 0, 10);
          agent.end(2);
          agent.rest();
        };
    try (FakeAgent agent = new FakeAgent(folder, script);
        AgentClient client = connect(agent)) {
      Heard bad =
          new Heard() {
            @Override
            public void opened(Flow flow, long length, long info) {
              throw new IllegalStateException("on purpose");
            }
          };
      Heard good = new Heard();
      client.fetch(new Fetch(1, "h", "o", 0, 1, 10), bad);
      client.fetch(new Fetch(1, "h", "p", 0, 1, 10), good);
      good.ended.await();
      assertEquals(List.of("opened 10 7", "data 10", "end"), good.events);
      assertEquals(1, bad.events.size());
      assertTrue(bad.events.get(0).startsWith("broken 16"), bad.events.get(0));
      assertTrue(client.isOpen());
    }
  }

  /** Keeps what a listener hears. */
  static class Heard implements FlowListener {
    final List<String> events = new ArrayList<>();
    final java.util.concurrent.CountDownLatch ended = new java.util.concurrent.CountDownLatch(1);

    @Override
    public void opened(Flow flow, long length, long info) {
      events.add("opened " + length + " " + info);
    }

    @Override
    public void data(Flow flow, ByteBuffer bytes) {
      events.add("data " + bytes.remaining());
    }

    @Override
    public void end(Flow flow) {
      events.add("end");
      ended.countDown();
    }

    @Override
    public void broken(Flow flow, int code, String text) {
      events.add("broken " + code + " " + text);
      ended.countDown();
    }
  }
}
