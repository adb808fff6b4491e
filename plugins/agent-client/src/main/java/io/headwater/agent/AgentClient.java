package io.headwater.agent;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;

/**
 * A program's connection to the agent of its host (docs/agent-protocol.md, part 1). Safe for use by many threads; one connection is
 * enough for all flows of a program.
 *
 * <p>One thread reads and writes the socket. Callers only leave frames with it: a caller that is interrupted does not close the socket
 * for the others, and a listener that gives credit does not wait for an agent that waits for the listener.
 *
 * <pre>{@code
 * try (AgentClient agent = AgentClient.connect(socket, "job_17", token, Duration.ofSeconds(10))) {
 *   agent.register("map_3", file, new Index.Hadoop(index));
 *   try (FlowStream in = agent.open(new Fetch(17, "host-b", "map_9", 5, 1, 0), 1 << 20)) {
 *     in.transferTo(out);
 *   }
 * }
 * }</pre>
 */
public final class AgentClient implements Closeable {
  /** The most flows at once, as many as an agent's quota has for a user. */
  public static final int MOST_FLOWS = Flows.MOST;

  private final Connection connection;
  private final Requests requests;
  private final Flows flows;

  private AgentClient(Path socket, Duration patience) throws IOException {
    connection = new Connection(socket, patience);
    requests = connection.requests();
    flows = connection.flows();
  }

  /**
   * Connects as a program of an application.
   *
   * @param token 16 to 64 bytes; the application's first program on a host defines it there
   * @param patience for how long an answer to a request is awaited
   * @throws RefusedException {@link Refusal#NOT_YOURS} if the application has another token or owner; others
   * @throws IOException if no agent is there, or it does not answer
   */
  public static AgentClient connect(Path socket, String application, byte[] token, Duration patience) throws IOException {
    ByteBuffer hello = Frames.hello(application, token);
    AgentClient client = new AgentClient(socket, patience);
    try {
      // The agent names no request in WELCOME, and request 0 in a refusal.
      client.requests.await(0, hello);
      return client;
    } catch (IOException | RuntimeException e) {
      client.close();
      throw e;
    }
  }

  /** The status of an agent as JSON. Needs no application. */
  public static String status(Path socket, Duration patience) throws IOException {
    try (AgentClient client = new AgentClient(socket, patience)) {
      return client.status();
    }
  }

  /** Bytes of a block: credit counts in whole ones, or to the end of a flow. */
  public long block() {
    return connection.block();
  }

  /** Whether the agent is still there, as far as is known. Once false, it stays so. */
  public boolean isOpen() {
    return connection.isOpen();
  }

  /**
   * A file is ready to be fetched by the application's programs on other hosts. The same name again replaces it.
   *
   * @throws RefusedException with the agent's reason
   */
  public void register(String output, Path file, Index index) throws IOException {
    int request = requests.next();
    requests.await(request, Frames.register(request, output, file, index));
  }

  /** An output is not to be fetched any more. */
  public void unregister(String output) throws IOException {
    int request = requests.next();
    requests.await(request, Frames.unregister(request, output));
  }

  /** All outputs of the application on this host are let go of. */
  public void drop() throws IOException {
    int request = requests.next();
    requests.await(request, Frames.drop(request));
  }

  /** The agent's status as JSON. */
  public String status() throws IOException {
    int request = requests.next();
    return requests.await(request, Frames.status(request));
  }

  /**
   * Fetches. The listener may be called before this returns.
   *
   * @throws IOException if the agent is gone, or too many flows are open
   */
  public Flow fetch(Fetch fetch, FlowListener listener) throws IOException {
    return flows.fetch(fetch, listener);
  }

  /**
   * Fetches as a stream, which gives credit as it is read.
   *
   * @param fetch its credit is not looked at
   * @param window bytes that are held at most; rounded up to two blocks
   */
  public FlowStream open(Fetch fetch, int window) throws IOException {
    return new FlowStream(this, fetch, window, true);
  }

  /** As {@link #open}, but without credit until {@link FlowStream#start}: for who must know the length to find room for it. */
  public FlowStream openWithoutCredit(Fetch fetch, int window) throws IOException {
    return new FlowStream(this, fetch, window, false);
  }

  /** Ends the connection. Flows that have not ended hear {@link Refusal#CONNECTION_LOST}. Outputs stay registered. */
  @Override
  public void close() {
    connection.end(new EOFException("the connection was closed"));
  }
}
