package io.headwater.spark;

import io.headwater.agent.AgentClient;
import io.headwater.agent.Index;
import io.headwater.agent.RefusedException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcTimeout;
import org.apache.spark.util.RpcUtils;
import scala.concurrent.duration.FiniteDuration;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * An executor and the agent of its host: one connection, made anew when it breaks; the outputs of this executor, registered anew then; and
 * the driver, who is told what no agent holds. Nothing here fails a task.
 */
final class AgentSession {
  /** How long an agent may take to answer a request. A frozen one holds up a task for so long, once. */
  private static final Duration PATIENCE = Duration.ofSeconds(10);

  /** An attempt to connect is made after this, or after three times what the last one took. */
  private static final long RETRY_NANOS = TimeUnit.SECONDS.toNanos(2);

  /** A host without an agent may get one. */
  private static final long UNKNOWN_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final RpcTimeout LEAVING = new RpcTimeout(new FiniteDuration(5, TimeUnit.SECONDS), "spark.rpc.askTimeout");
  private static final ClassTag<Object> ANY = ClassTag$.MODULE$.apply(Object.class);

  private record Output(int shuffle, Path data, Path index) {}

  private record Host(String name, long asked) {}

  private final Settings settings;
  private final String executor;
  private final RpcEndpointRef driver;
  private final RpcEndpointRef self;
  private final Map<String, Host> hosts = new ConcurrentHashMap<>();
  private final Thread watch;
  private volatile Runnable tick = () -> {};
  private volatile boolean closed;

  /** The driver says that the application ends. */
  private volatile boolean over;

  /** Held by who ends the session: whoever else comes to do so waits until that is done. */
  private final Object ending = new Object();

  // Guarded by this.
  private final Map<String, Output> outputs = new LinkedHashMap<>();
  private final Set<Integer> unheld = new HashSet<>();
  private AgentClient client;
  private long retryAt;
  private boolean refused;
  private Messages.State told;

  AgentSession(SparkEnv env) {
    settings = Settings.of(env);
    executor = env.executorId();
    driver = RpcUtils.makeDriverRef(DriverEndpoint.NAME, env.conf(), env.rpcEnv());
    self = env.rpcEnv().setupEndpoint(ExecutorEndpoint.NAME, new ExecutorEndpoint(env.rpcEnv(), this::forget, this::over));
    synchronized (this) {
      connect();
      tell();
    }
    watch = new Thread(this::watch, "headwater-agent-watch");
    watch.setDaemon(true);
    watch.start();
    // The engine ends executors by signals, and they exit by themselves when they lose the driver: then nobody stops the shuffle manager.
    Runtime.getRuntime().addShutdownHook(new Thread(this::close, "headwater-agent-end"));
  }

  Settings settings() {
    return settings;
  }

  /** Called every second. */
  void onTick(Runnable action) {
    tick = action;
  }

  /** The connection, or null if there is none now. */
  synchronized AgentClient client() {
    if (client == null || !client.isOpen()) {
      connect();
      tell();
    }
    return client;
  }

  /** The host of an executor as the list of agents calls it, or null if it has no agent. */
  String hostOf(String other) {
    Host known = hosts.get(other);
    if (known == null || known.name.isEmpty() && System.nanoTime() - known.asked > UNKNOWN_NANOS) {
      try {
        known = new Host((String) ask(new Messages.HostOf(other)), System.nanoTime());
      } catch (IOException e) {
        Notices.stock("blocks are fetched", "the driver does not say where their executors are", e.getMessage());
        return null;
      }
      hosts.put(other, known);
    }
    return known.name.isEmpty() ? null : known.name;
  }

  // ---- outputs

  /** An output of this executor is complete. */
  synchronized void register(int shuffle, long map, Path data, Path index) {
    if (over || !Files.exists(data)) {
      // The application ends; or no record, no file, and nobody who asks for it.
      return;
    }
    String name = Outputs.name(executor, shuffle, map);
    Output output = new Output(shuffle, data, index);
    outputs.put(name, output);
    AgentClient agent = client();
    if (agent == null || !register(agent, name, output)) {
      unheld.add(shuffle);
      tell();
    }
  }

  private static boolean register(AgentClient agent, String name, Output output) {
    try {
      // Links in the engine's folders are its operator's; the agent follows none.
      agent.register(name, output.data.toRealPath(), new Index.Spark(output.index.toRealPath()));
      return true;
    } catch (IOException | RuntimeException e) {
      Notices.stock("outputs are fetched", "the agent does not hold them", e.getMessage());
      if (!(e instanceof RefusedException)) {
        // It does not answer, and the next task shall not wait for it as well.
        agent.close();
      }
      return false;
    }
  }

  /** A shuffle has ended. */
  synchronized void unregister(int shuffle) {
    List<String> names = new ArrayList<>();
    outputs.forEach((name, output) -> {
      if (output.shuffle == shuffle) {
        names.add(name);
      }
    });
    names.forEach(outputs::remove);
    unheld.remove(shuffle);
    forget(names);
  }

  private synchronized void forget(List<String> names) {
    if (client == null || !client.isOpen()) {
      return;
    }
    for (String name : names) {
      try {
        client.unregister(name);
      } catch (IOException e) {
        // The agent never had it, or is gone and has none of them.
        Notices.info("output {} was not unregistered: {}", name, e.getMessage());
      }
    }
  }

  /** The application ends, says the driver: all of its outputs on this host go. What this executor still writes is not registered. */
  private synchronized void over() {
    over = true;
    outputs.clear();
    unheld.clear();
    if (client != null && client.isOpen()) {
      drop(client);
    }
  }

  // ---- the connection

  /** Connects, unless that failed a moment ago; an agent that comes back learns all outputs anew. */
  private synchronized void connect() {
    client = null;
    long begin = System.nanoTime();
    if (closed || refused && begin - retryAt < 0) {
      return;
    }
    try {
      AgentClient fresh = AgentClient.connect(settings.socket(), settings.application(), settings.token(), PATIENCE);
      unheld.clear();
      outputs.forEach((name, output) -> {
        if (!Files.exists(output.data) || !register(fresh, name, output)) {
          unheld.add(output.shuffle);
        }
      });
      client = fresh;
      refused = false;
    } catch (IOException | RuntimeException e) {
      refused = true;
      long now = System.nanoTime();
      retryAt = now + Math.max(RETRY_NANOS, 3 * (now - begin));
      outputs.values().forEach(output -> unheld.add(output.shuffle));
      Notices.stock("shuffles of executor " + executor + " go", "no agent at " + settings.socket(), e.getMessage());
    }
  }

  /** Tells the driver, if anything has changed. It must know before it hears of the map task that has ended. */
  private synchronized void tell() {
    if (closed) {
      return;
    }
    Messages.State state = new Messages.State(executor, settings.host(), client != null, new HashSet<>(unheld), self);
    if (state.equals(told)) {
      return;
    }
    try {
      ask(state);
      told = state;
    } catch (IOException e) {
      Notices.stock("outputs of executor " + executor + " are fetched", "the driver cannot be told of its agent", e.getMessage());
    }
  }

  /** The engine throws checked exceptions that it does not declare. */
  private Object ask(Object message) throws IOException {
    try {
      return driver.<Object>askSync(message, ANY);
    } catch (Exception e) {
      if (e instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      throw new IOException(e.toString(), e);
    }
  }

  private void watch() {
    while (!closed) {
      try {
        Thread.sleep(1000);
        client();
        tick.run();
      } catch (InterruptedException e) {
        return;
      } catch (RuntimeException e) {
        Notices.stock("some blocks may be fetched", "the watch failed", e.toString());
      }
    }
  }

  /**
   * The executor ends. Its outputs stay with the agent, unless the application ends as well: then all of the application's on this host go,
   * those of executors that went before among them. Called when the engine stops the executor, and when its process ends.
   */
  void close() {
    synchronized (ending) {
      if (closed) {
        return;
      }
      closed = true;
      watch.interrupt();
      boolean ends = over || isOver(driver, executor);
      synchronized (this) {
        if (client == null) {
          return;
        }
        if (ends) {
          drop(client);
        }
        client.close();
      }
    }
  }

  /** An executor ends that had no shuffle, on a host where others may have had some. */
  static void leave(SparkEnv env) {
    try {
      Settings settings = Settings.of(env);
      if (isOver(RpcUtils.makeDriverRef(DriverEndpoint.NAME, env.conf(), env.rpcEnv()), env.executorId())) {
        try (AgentClient agent = AgentClient.connect(settings.socket(), settings.application(), settings.token(), PATIENCE)) {
          drop(agent);
        }
      }
    } catch (Exception e) {
      Notices.info("outputs on this host were not dropped: {}", e.toString());
    }
  }

  private static void drop(AgentClient agent) {
    try {
      agent.drop();
    } catch (IOException e) {
      Notices.info("outputs were not dropped: {}", e.getMessage());
    }
  }

  /** Whether the application ends: the driver says so, or cannot be asked any more. */
  private static boolean isOver(RpcEndpointRef driver, String executor) {
    try {
      return (Boolean) driver.<Object>askSync(new Messages.Leaving(executor), LEAVING, ANY);
    } catch (Exception e) {
      // One that only answers late is there, and so may be the application.
      return !(e instanceof TimeoutException);
    }
  }
}
