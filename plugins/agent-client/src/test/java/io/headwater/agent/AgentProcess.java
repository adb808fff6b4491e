package io.headwater.agent;

import java.io.Closeable;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Assumptions;

/** A real {@code headwater agent} of one host, for tests. Its folder should have a short path: it holds a socket. */
public final class AgentProcess implements Closeable {
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private final Path folder;
  private final String address;
  private final List<String> command;
  private Process process;
  private String fingerprint;

  private AgentProcess(Path folder, String address, List<String> command) {
    this.folder = folder;
    this.address = address;
    this.command = command;
  }

  /** The program: what the environment's HEADWATER names, else what was built in this checkout. Skips the test, saying why, if neither is there. */
  public static Path binary() {
    String named = System.getenv("HEADWATER");
    if (named != null && !named.isEmpty()) {
      Path binary = Path.of(named).toAbsolutePath();
      if (!Files.isExecutable(binary)) {
        throw new IllegalStateException("HEADWATER names " + binary + ", which is no program");
      }
      return binary;
    }
    for (Path at = Path.of("").toAbsolutePath(); at != null; at = at.getParent()) {
      for (String kind : List.of("release", "debug")) {
        Path binary = at.resolve("target").resolve(kind).resolve("headwater");
        if (Files.isExecutable(binary)) {
          return binary;
        }
      }
    }
    String why = "skipped: no headwater in target/release or target/debug, and HEADWATER is not set";
    System.out.println(why);
    Assumptions.abort(why);
    throw new AssertionError("it was skipped");
  }

  /**
   * Starts the agent of a host.
   *
   * @param ip its loopback address, such as 127.0.0.2
   * @param options more options of the command
   */
  public static AgentProcess start(Path folder, String ip, List<Path> roots, String... options) throws IOException {
    Files.createDirectories(folder);
    Path peers = folder.resolve("agents.toml");
    Files.writeString(peers, "");
    String address = ip + ":" + freePort();
    List<String> command = new ArrayList<>();
    command.addAll(List.of(binary().toString(), "--json", "--state", folder.resolve("state").toString(), "agent"));
    command.addAll(List.of("--listen", address, "--socket", folder.resolve("agent.sock").toString()));
    command.addAll(List.of("--peers", peers.toString()));
    roots.forEach(root -> command.addAll(List.of("--root", root.toString())));
    command.addAll(List.of(options));
    AgentProcess agent = new AgentProcess(folder, address, command);
    // A test run that is stopped leaves nothing behind.
    Runtime.getRuntime().addShutdownHook(new Thread(agent::kill));
    agent.start();
    return agent;
  }

  /** Tells all of these about each other, by the names of their hosts. */
  public static void introduce(Map<String, AgentProcess> hosts) throws IOException {
    introduce(hosts, Map.of());
  }

  /** The same, with other addresses for some hosts: of relays on the way there. */
  public static void introduce(Map<String, AgentProcess> hosts, Map<String, String> addresses) throws IOException {
    StringBuilder list = new StringBuilder();
    hosts.forEach(
        (name, agent) -> {
          String address = addresses.getOrDefault(name, agent.address);
          list.append(String.format("[\"%s\"]%naddress = \"%s\"%nfingerprint = \"%s\"%n%n", name, address, agent.fingerprint));
        });
    for (AgentProcess agent : hosts.values()) {
      Files.writeString(agent.folder.resolve("agents.toml"), list);
      agent.signal("HUP");
    }
  }

  /** Starts it, or starts it again with the same key and address. */
  public void start() throws IOException {
    Path out = folder.resolve("out");
    process =
        new ProcessBuilder(command)
            .redirectOutput(out.toFile())
            .redirectError(ProcessBuilder.Redirect.appendTo(folder.resolve("err").toFile()))
            .start();
    Pattern ready = Pattern.compile("\"fingerprint\":\"([0-9a-f]{64})\"");
    long until = System.nanoTime() + PATIENCE.toNanos();
    while (true) {
      Matcher found = ready.matcher(Files.readString(out));
      if (found.find()) {
        fingerprint = found.group(1);
        return;
      }
      if (!process.isAlive() || System.nanoTime() > until) {
        throw new IOException("the agent did not start: " + Files.readString(folder.resolve("err")));
      }
      pause();
    }
  }

  /** Where it listens for other agents. */
  public String address() {
    return address;
  }

  public Path socket() {
    return folder.resolve("agent.sock");
  }

  public String status() throws IOException {
    return AgentClient.status(socket(), PATIENCE);
  }

  /** A number of the status, by its name. */
  public long number(String name) throws IOException {
    return number(status(), name);
  }

  /** A number of a status. */
  public static long number(String status, String name) throws IOException {
    Matcher found = Pattern.compile("\"" + name + "\":(\\d+)").matcher(status);
    if (!found.find()) {
      throw new IOException("no " + name + " in " + status);
    }
    return Long.parseLong(found.group(1));
  }

  /** Sends it a signal, such as STOP. */
  public void signal(String name) throws IOException {
    try {
      new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start().waitFor();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Ends it as a crash would. */
  public void kill() {
    if (process == null) {
      return;
    }
    process.destroyForcibly();
    process.onExit().join();
  }

  @Override
  public void close() {
    kill();
  }

  static void pause() {
    try {
      Thread.sleep(20);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket any = new ServerSocket(0)) {
      return any.getLocalPort();
    }
  }
}
