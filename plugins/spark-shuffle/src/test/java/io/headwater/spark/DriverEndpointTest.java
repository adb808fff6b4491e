package io.headwater.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkConf;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcTimeout;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import scala.concurrent.Future;
import scala.reflect.ClassTag;

@Tag("quick")
class DriverEndpointTest {
  /** Where an executor hears from the driver; keeps what it hears. */
  private static final class Executor extends RpcEndpointRef {
    private final List<Object> heard = new ArrayList<>();

    private Executor() {
      super(new SparkConf(false));
    }

    @Override
    public RpcAddress address() {
      return null;
    }

    @Override
    public String name() {
      return "executor";
    }

    @Override
    public void send(Object message) {
      heard.add(message);
    }

    @Override
    public <T> Future<T> ask(Object message, RpcTimeout timeout, ClassTag<T> type) {
      throw new UnsupportedOperationException();
    }
  }

  private static final class Call implements RpcCallContext {
    private final int port;
    private Object answer;

    private Call(int port) {
      this.port = port;
    }

    @Override
    public void reply(Object response) {
      answer = response;
    }

    @Override
    public void sendFailure(Throwable e) {
      throw new AssertionError(e);
    }

    @Override
    public RpcAddress senderAddress() {
      return new RpcAddress("localhost", port);
    }
  }

  private final DriverEndpoint driver = new DriverEndpoint(null);

  private Object say(int port, Object message) {
    Call call = new Call(port);
    driver.receiveAndReply(call).apply(message);
    return call.answer;
  }

  private Executor executor(int number, String host, boolean agent, Integer... unheld) {
    Executor executor = new Executor();
    say(number, new Messages.State(String.valueOf(number), host, agent, Set.of(unheld), executor));
    return executor;
  }

  private void lose(int number) {
    driver.onDisconnected(new RpcAddress("localhost", number));
  }

  @Test
  void hosts_are_known_of_executors_that_are_gone_and_of_none_without_an_agent() {
    executor(1, "host-a", true);
    executor(2, "host-b", false);
    lose(1);
    assertEquals("host-a", say(3, new Messages.HostOf("1")));
    assertEquals("", say(3, new Messages.HostOf("2")));
    assertEquals("", say(3, new Messages.HostOf("7")));
  }

  @Test
  void outputs_outlive_executors_while_agents_hold_all_and_each_living_executor_has_one() {
    assertTrue(driver.reliable());
    executor(1, "host-a", true);
    executor(2, "host-b", true);
    assertTrue(driver.reliable());
    executor(2, "host-b", false);
    assertFalse(driver.reliable(), "it could not fetch from who is gone");
    lose(2);
    assertTrue(driver.reliable(), "it fetches no more");
    executor(3, "host-c", true, 17);
    lose(3);
    assertFalse(driver.reliable(), "outputs of shuffle 17 are lost with their executor");
    driver.forget(17, Map.of());
    assertTrue(driver.reliable());
    executor(4, "host-d", true, 18);
    assertFalse(driver.reliable());
    executor(4, "host-d", true);
    assertTrue(driver.reliable(), "its agent has come back");
  }

  @Test
  void living_executors_are_told_of_the_end_of_the_application() {
    List<Executor> living = List.of(executor(1, "host-a", true), executor(2, "host-a", false));
    Executor gone = executor(3, "host-b", true);
    lose(3);
    driver.over();
    living.forEach(it -> assertEquals(List.of(new Messages.Over()), it.heard));
    assertEquals(List.of(), gone.heard);
  }

  @Test
  void outputs_of_executors_that_are_gone_are_unregistered_by_others_of_their_hosts() {
    executor(1, "host-a", true);
    Executor neighbour = executor(2, "host-a", true);
    Executor elsewhere = executor(3, "host-b", true);
    executor(4, "host-c", true);
    lose(1);
    lose(4);
    driver.forget(5, Map.of("1", List.of("one", "two"), "2", List.of("own"), "3", List.of("three"), "4", List.of("nobody's")));
    assertEquals(List.of(new Messages.Forget(List.of("one", "two"))), neighbour.heard);
    assertEquals(List.of(), elsewhere.heard);
  }
}
