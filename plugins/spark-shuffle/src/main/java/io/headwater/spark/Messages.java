package io.headwater.spark;

import java.io.Serializable;
import java.util.List;
import java.util.Set;
import org.apache.spark.rpc.RpcEndpointRef;

/** What driver and executors tell each other. */
final class Messages {
  private Messages() {}

  /**
   * An executor says how it is with its agent: at first, and whenever that changes.
   *
   * @param host its host, as the list of agents calls it
   * @param agent whether it has an agent now
   * @param unheld shuffles of which it has outputs that no agent holds
   * @param endpoint where it hears of {@link Forget} and {@link Over}
   */
  record State(String executor, String host, boolean agent, Set<Integer> unheld, RpcEndpointRef endpoint) implements Serializable {}

  /** An executor asks on which host another one is or was; the answer is empty if that has no agent. */
  record HostOf(String executor) implements Serializable {}

  /** An executor ends and asks whether the application does; the answer is a boolean. */
  record Leaving(String executor) implements Serializable {}

  /** The driver tells executors that the application ends: no output of it is wanted any more. */
  record Over() implements Serializable {}

  /** The driver tells an executor to unregister outputs of executors that are gone from its host. */
  record Forget(List<String> outputs) implements Serializable {}
}
