package io.headwater.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext$;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.ThreadSafeRpcEndpoint;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import scala.PartialFunction;
import scala.runtime.BoxedUnit;

/** The driver's book of executors, their hosts and their agents. */
final class DriverEndpoint implements ThreadSafeRpcEndpoint {
  static final String NAME = "headwater-shuffle";

  private static final class Executor {
    private String host;
    private boolean agent;
    private boolean alive = true;
    private Set<Integer> unheld = Set.of();
    private RpcEndpointRef endpoint;
    private RpcAddress address;
  }

  private final RpcEnv rpcEnv;

  /** All of the application's executors: outputs of those that are gone are still fetched. */
  private final Map<String, Executor> executors = new HashMap<>();

  private boolean listens;

  DriverEndpoint(RpcEnv rpcEnv) {
    this.rpcEnv = rpcEnv;
  }

  @Override
  public RpcEnv rpcEnv() {
    return rpcEnv;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
    return new Handler(message -> {
      if (message instanceof Messages.State state) {
        update(state, context.senderAddress());
        listen();
        context.reply(true);
      } else if (message instanceof Messages.HostOf ask) {
        context.reply(hostOf(ask.executor()));
      } else if (message instanceof Messages.Leaving) {
        var active = SparkContext$.MODULE$.getActive();
        context.reply(active.isEmpty() || active.get().isStopped());
      } else {
        return false;
      }
      return true;
    });
  }

  @Override
  public synchronized void onDisconnected(RpcAddress address) {
    for (Executor executor : executors.values()) {
      if (address.equals(executor.address)) {
        executor.alive = false;
      }
    }
  }

  /**
   * The engine tells of the application's end before it ends executors. Then it ends them in several ways at once, and they may be killed
   * before they have asked whether the application ends.
   */
  private synchronized void listen() {
    var active = SparkContext$.MODULE$.getActive();
    if (listens || active.isEmpty()) {
      return;
    }
    listens = true;
    active.get().addSparkListener(new SparkListener() {
      @Override
      public void onApplicationEnd(SparkListenerApplicationEnd end) {
        over();
      }
    });
  }

  /** The application ends: executors have their agents drop its outputs. */
  void over() {
    List<RpcEndpointRef> endpoints = new ArrayList<>();
    synchronized (this) {
      for (Executor executor : executors.values()) {
        if (executor.alive) {
          endpoints.add(executor.endpoint);
        }
      }
    }
    endpoints.forEach(endpoint -> endpoint.send(new Messages.Over()));
  }

  private synchronized void update(Messages.State state, RpcAddress address) {
    Executor executor = executors.computeIfAbsent(state.executor(), name -> new Executor());
    executor.host = state.host();
    executor.agent = state.agent();
    executor.unheld = new HashSet<>(state.unheld());
    executor.endpoint = state.endpoint();
    executor.address = address;
  }

  private synchronized String hostOf(String name) {
    Executor executor = executors.get(name);
    return executor == null || !executor.agent ? "" : executor.host;
  }

  /**
   * Whether outputs of an executor that is lost now can be fetched. They cannot if no agent holds them, or if an executor has no agent
   * to fetch them through: then it is better to write them anew at once, as the engine does, than after failed fetches.
   */
  synchronized boolean reliable() {
    for (Executor executor : executors.values()) {
      if (!executor.unheld.isEmpty() || executor.alive && !executor.agent) {
        return false;
      }
    }
    return true;
  }

  /** A shuffle ends. Outputs of executors that are gone are unregistered by others of their hosts. */
  void forget(int shuffle, Map<String, List<String>> outputsByExecutor) {
    Map<RpcEndpointRef, List<String>> messages = new HashMap<>();
    synchronized (this) {
      Map<String, RpcEndpointRef> living = new HashMap<>();
      for (Executor executor : executors.values()) {
        executor.unheld.remove(shuffle);
        if (executor.alive && executor.agent) {
          living.put(executor.host, executor.endpoint);
        }
      }
      outputsByExecutor.forEach((name, outputs) -> {
        Executor executor = executors.get(name);
        if (executor != null && !executor.alive && living.containsKey(executor.host)) {
          messages.computeIfAbsent(living.get(executor.host), ref -> new ArrayList<>()).addAll(outputs);
        }
      });
    }
    messages.forEach((endpoint, outputs) -> endpoint.send(new Messages.Forget(outputs)));
  }
}
