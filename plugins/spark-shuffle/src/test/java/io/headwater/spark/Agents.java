package io.headwater.spark;

import io.headwater.agent.AgentClient;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Two agents on loopback that stand for two hosts. An executor belongs to the first if its number is even: host-0, host-2 and so on are
 * names of the first agent, and agent-0.sock, agent-2.sock its socket.
 */
final class Agents implements AutoCloseable {
  private static final int NAMES = 12;
  private static final Pattern FINGERPRINT = Pattern.compile("fingerprint ([0-9a-f]{64})");

  private final Path folder;
  private final Path peers;
  private final int[] ports = new int[2];
  private final Process[] processes = new Process[2];

  Agents(Path folder) throws Exception {
    this.folder = folder;
    peers = folder.resolve("agents.toml");
    Files.writeString(peers, "");
    StringBuilder list = new StringBuilder();
    String[] fingerprints = new String[2];
    for (int agent = 0; agent < 2; agent++) {
      try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
        ports[agent] = free.getLocalPort();
      }
      start(agent);
      fingerprints[agent] = fingerprint(agent);
      stop(agent);
    }
    for (int name = 0; name < NAMES; name++) {
      list.append("[host-%d]%naddress = \"127.0.0.1:%d\"%nfingerprint = \"%s\"%n%n".formatted(name, ports[name % 2], fingerprints[name % 2]));
      Files.createSymbolicLink(folder.resolve("agent-" + name + ".sock"), socket(name % 2));
    }
    Files.writeString(peers, list);
    start(0);
    start(1);
  }

  /** The program under test: the variable HEADWATER, or what the checkout has built. */
  static Path program() {
    List<Path> candidates = new ArrayList<>();
    if (System.getenv("HEADWATER") != null) {
      candidates.add(Path.of(System.getenv("HEADWATER")));
    }
    Path checkout = Path.of(System.getProperty("headwater.checkout"));
    candidates.add(checkout.resolve("target/release/headwater"));
    candidates.add(checkout.resolve("target/debug/headwater"));
    return candidates.stream().filter(Files::isExecutable).findFirst().orElse(null);
  }

  /** What executors are told. */
  Path socketOfExecutors() {
    return folder.resolve("agent-{{EXECUTOR_ID}}.sock");
  }

  Path socket(int agent) {
    return folder.resolve("socket-" + agent);
  }

  void start(int agent) throws Exception {
    Path log = log(agent);
    Files.deleteIfExists(socket(agent));
    processes[agent] = new ProcessBuilder(
            program().toString(), "agent",
            "--state", folder.resolve("state-" + agent).toString(),
            "--listen", "127.0.0.1:" + ports[agent],
            "--socket", socket(agent).toString(),
            "--root", Files.createDirectories(Application.LOCAL).toRealPath().toString(),
            "--peers", peers.toString())
        .redirectErrorStream(true)
        .redirectOutput(log.toFile())
        .start();
    await("agent " + agent + " to listen", () -> Files.exists(socket(agent)) && !fingerprint(agent).isEmpty());
  }

  private Path log(int agent) {
    return folder.resolve("agent-" + agent + ".log");
  }

  private String fingerprint(int agent) {
    try {
      Matcher matcher = FINGERPRINT.matcher(Files.readString(log(agent)));
      return matcher.find() ? matcher.group(1) : "";
    } catch (IOException e) {
      return "";
    }
  }

  /** As kill -9 does. */
  void stop(int agent) throws Exception {
    processes[agent].destroyForcibly().waitFor(60, TimeUnit.SECONDS);
  }

  /** Stops its process until it {@link #thaw}s or is killed. */
  void freeze(int agent) throws Exception {
    signal(agent, "STOP");
  }

  void thaw(int agent) throws Exception {
    signal(agent, "CONT");
  }

  private void signal(int agent, String signal) throws Exception {
    int result = new ProcessBuilder("kill", "-" + signal, String.valueOf(processes[agent].pid())).start().waitFor();
    if (result != 0) {
      throw new AssertionError("kill ended with " + result);
    }
  }

  /** A number of an agent's status. */
  long count(int agent, String name) {
    try {
      String status = AgentClient.status(socket(agent), Duration.ofSeconds(30));
      Matcher matcher = Pattern.compile("\"" + name + "\":(\\d+)").matcher(status);
      if (!matcher.find()) {
        throw new AssertionError("no " + name + " in " + status);
      }
      return Long.parseLong(matcher.group(1));
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  long countBoth(String name) {
    return count(0, name) + count(1, name);
  }

  static void await(String what, BooleanSupplier condition) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > until) {
        throw new AssertionError("waited in vain for " + what);
      }
      Thread.sleep(50);
    }
  }

  @Override
  public void close() throws Exception {
    stop(0);
    stop(1);
  }
}
