package io.headwater.agent;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

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
  public static final int MOST_FLOWS = 16_384;

  private static final int BUFFER = 256 << 10;

  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;
  private final Duration patience;
  private final Thread thread;
  private ByteBuffer in = ByteBuffer.allocateDirect(BUFFER);

  /** Guards all that follows. Listeners are called without it. */
  private final Object lock = new Object();

  private final Map<Long, ActiveFlow> flows = new HashMap<>();
  private final Map<Integer, Request> requests = new HashMap<>();

  /** What is to be written: frames, and flows whose credit has grown. */
  private final ArrayDeque<Object> outgoing = new ArrayDeque<>();

  private long lastFlow;
  private int lastRequest;
  private long block;
  private IOException ended;

  private AgentClient(Path socket, Duration patience) throws IOException {
    this.patience = patience;
    selector = Selector.open();
    SocketChannel dialled = null;
    try {
      dialled = SocketChannel.open(java.net.StandardProtocolFamily.UNIX);
      // An agent that is frozen has a full queue: without blocking that is an error, not a wait.
      dialled.configureBlocking(false);
      if (!dialled.connect(UnixDomainSocketAddress.of(socket))) {
        dialled.finishConnect();
      }
      key = dialled.register(selector, SelectionKey.OP_READ);
    } catch (IOException | RuntimeException e) {
      if (dialled != null) {
        dialled.close();
      }
      selector.close();
      throw e;
    }
    channel = dialled;
    thread = new Thread(this::run, "headwater-agent-client");
    thread.setDaemon(true);
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
      client.await(0, hello);
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
    synchronized (lock) {
      return block;
    }
  }

  /** Whether the agent is still there, as far as is known. Once false, it stays so. */
  public boolean isOpen() {
    synchronized (lock) {
      return ended == null;
    }
  }

  /**
   * A file is ready to be fetched by the application's programs on other hosts. The same name again replaces it.
   *
   * @throws RefusedException with the agent's reason
   */
  public void register(String output, Path file, Index index) throws IOException {
    int request = nextRequest();
    await(request, Frames.register(request, output, file, index));
  }

  /** An output is not to be fetched any more. */
  public void unregister(String output) throws IOException {
    int request = nextRequest();
    await(request, Frames.unregister(request, output));
  }

  /** All outputs of the application on this host are let go of. */
  public void drop() throws IOException {
    int request = nextRequest();
    await(request, Frames.drop(request));
  }

  /** The agent's status as JSON. */
  public String status() throws IOException {
    int request = nextRequest();
    return await(request, Frames.status(request)).state;
  }

  /**
   * Fetches. The listener may be called before this returns.
   *
   * @throws IOException if the agent is gone, or too many flows are open
   */
  public Flow fetch(Fetch fetch, FlowListener listener) throws IOException {
    ActiveFlow flow;
    synchronized (lock) {
      check();
      if (flows.size() >= MOST_FLOWS) {
        throw new IOException(MOST_FLOWS + " flows are open already");
      }
      flow = new ActiveFlow(++lastFlow, fetch, listener);
      flows.put(flow.number, flow);
      outgoing.add(Frames.fetch(flow.number, fetch));
    }
    wake();
    return flow;
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
    end(new EOFException("the connection was closed"));
  }

  // ---- requests

  private static final class Request {
    private boolean answered;
    private IOException failed;
    private String state;
  }

  private int nextRequest() {
    synchronized (lock) {
      // 0 is the connection's own.
      lastRequest = lastRequest == -1 ? 1 : lastRequest + 1;
      return lastRequest;
    }
  }

  private Request await(int number, ByteBuffer frame) throws IOException {
    Request request = new Request();
    long until = System.nanoTime() + patience.toNanos();
    synchronized (lock) {
      if (thread.getState() == Thread.State.NEW && ended == null) {
        thread.start();
      }
      check();
      requests.put(number, request);
      outgoing.add(frame);
      wake();
      try {
        while (!request.answered) {
          long left = (until - System.nanoTime()) / 1_000_000;
          if (left <= 0) {
            throw new IOException("the agent has not answered for " + patience);
          }
          lock.wait(left);
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted while the agent's answer was awaited");
      } finally {
        requests.remove(number);
      }
      if (request.failed != null) {
        throw request.failed;
      }
      return request;
    }
  }

  private void answer(int number, String state, IOException failed) {
    synchronized (lock) {
      Request request = requests.get(number);
      // One that was given up is answered all the same.
      if (request != null) {
        request.answered = true;
        request.state = state;
        request.failed = failed;
        lock.notifyAll();
      }
    }
  }

  private void check() throws IOException {
    if (ended != null) {
      throw gone();
    }
  }

  private IOException gone() {
    if (ended instanceof RefusedException refused) {
      return refused;
    }
    return new IOException("the connection to the agent has ended: " + ended.getMessage(), ended);
  }

  // ---- flows

  private final class ActiveFlow implements Flow {
    private final long number;
    private final Fetch fetch;
    private final FlowListener listener;

    /** All that was ever given; the lock guards it. */
    private long credit;

    /** Of that, what no frame says yet. It waits in {@code outgoing} if it is not 0. */
    private long unsaid;

    /** Of the connection's thread alone. */
    private long length = -1;

    private long here;

    private ActiveFlow(long number, Fetch fetch, FlowListener listener) {
      this.number = number;
      this.fetch = fetch;
      this.listener = listener;
      this.credit = fetch.credit();
    }

    @Override
    public Fetch fetch() {
      return fetch;
    }

    @Override
    public void credit(long bytes) {
      if (bytes < 0) {
        throw new IllegalArgumentException("credit of " + bytes);
      }
      synchronized (lock) {
        long more = Math.min(bytes, Long.MAX_VALUE - credit);
        if (more == 0 || flows.get(number) != this) {
          return;
        }
        if (unsaid == 0) {
          outgoing.add(this);
        }
        credit += more;
        unsaid += more;
      }
      wake();
    }

    @Override
    public void cancel() {
      synchronized (lock) {
        if (!flows.remove(number, this)) {
          return;
        }
        outgoing.add(Frames.cancel(number));
      }
      wake();
    }
  }

  /** The flow that a frame speaks of; none if it was cancelled. */
  private ActiveFlow flow(long number) throws FrameException {
    synchronized (lock) {
      if (number < 1 || number > lastFlow) {
        throw new FrameException("a frame of flow " + number + ", which was never asked for");
      }
      return flows.get(number);
    }
  }

  private void opened(Frame.Opened frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow == null) {
      return;
    }
    if (flow.length >= 0) {
      throw new FrameException("flow " + frame.flow() + " was opened twice");
    }
    flow.length = frame.length();
    call(flow, () -> flow.listener.opened(flow, frame.length(), frame.info()));
  }

  private void data(Frame.Data frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow == null) {
      return;
    }
    int count = frame.bytes().remaining();
    String where = "flow " + frame.flow() + ": " + count + " bytes at " + frame.offset();
    long credit;
    synchronized (lock) {
      credit = flow.credit;
    }
    if (frame.offset() != flow.here) {
      throw new FrameException(where + ", expected at " + flow.here);
    }
    if (count > flow.length - flow.here) {
      throw new FrameException(where + ", of a length of " + flow.length);
    }
    if (count > credit - flow.here) {
      throw new FrameException(where + ", with credit for " + credit);
    }
    flow.here += count;
    call(flow, () -> flow.listener.data(flow, frame.bytes()));
  }

  private void endOf(long number) throws FrameException {
    ActiveFlow flow = flow(number);
    if (flow == null) {
      return;
    }
    if (flow.here != flow.length) {
      throw new FrameException("flow " + number + " ends at " + flow.here + " of " + flow.length);
    }
    if (removed(flow)) {
      call(flow, () -> flow.listener.end(flow));
    }
  }

  private void broken(Frame.Broken frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow != null && removed(flow)) {
      call(flow, () -> flow.listener.broken(flow, frame.code(), frame.text()));
    }
  }

  private boolean removed(ActiveFlow flow) {
    synchronized (lock) {
      return flows.remove(flow.number, flow);
    }
  }

  /** Calls a listener. If that throws, its flow ends, and the others go on. */
  private void call(ActiveFlow flow, Runnable listener) {
    try {
      listener.run();
    } catch (RuntimeException | Error e) {
      boolean active;
      synchronized (lock) {
        active = flows.get(flow.number) == flow;
      }
      if (active) {
        flow.cancel();
        try {
          flow.listener.broken(flow, Refusal.FAILED.code(), "its listener failed: " + e);
        } catch (RuntimeException again) {
          e.addSuppressed(again);
        }
      }
      System.getLogger(AgentClient.class.getName()).log(System.Logger.Level.WARNING, "the listener of a flow failed", e);
    }
  }

  // ---- the connection's thread

  private void run() {
    IOException cause = new EOFException("the agent closed it");
    try {
      while (isOpen()) {
        key.interestOps(flush() ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        selector.select();
        selector.selectedKeys().clear();
        if (!read()) {
          break;
        }
      }
    } catch (IOException e) {
      cause = e;
    } catch (RuntimeException | Error e) {
      cause = new IOException("the connection's thread failed: " + e, e);
    }
    end(cause);
    try {
      channel.close();
      selector.close();
    } catch (IOException e) {
      // It is gone either way.
      System.getLogger(AgentClient.class.getName()).log(System.Logger.Level.DEBUG, "a close failed", e);
    }
  }

  /** Writes what waits; whether nothing is left. */
  private boolean flush() throws IOException {
    while (true) {
      ByteBuffer next;
      synchronized (lock) {
        Object first = outgoing.peek();
        if (first == null) {
          return true;
        }
        if (first instanceof ActiveFlow flow) {
          outgoing.remove();
          next = Frames.credit(flow.number, flow.unsaid);
          flow.unsaid = 0;
          outgoing.addFirst(next);
        } else {
          next = (ByteBuffer) first;
        }
      }
      channel.write(next);
      if (next.hasRemaining()) {
        return false;
      }
      synchronized (lock) {
        outgoing.remove();
      }
    }
  }

  /** Reads once, and does what the whole frames say; false at the end. */
  private boolean read() throws IOException {
    int count = channel.read(in);
    if (count <= 0) {
      return count == 0;
    }
    in.flip();
    int length;
    while ((length = Frames.length(in)) != 0 && length <= in.remaining()) {
      ByteBuffer frame = in.slice(in.position(), length).asReadOnlyBuffer();
      in.position(in.position() + length);
      handle(Frames.parse(frame));
    }
    if (length > in.capacity()) {
      ByteBuffer larger = ByteBuffer.allocateDirect(length);
      in = larger.put(in);
    } else {
      in.compact();
    }
    return true;
  }

  private void handle(Frame frame) throws IOException {
    if (frame instanceof Frame.Data data) {
      data(data);
    } else if (frame instanceof Frame.Opened opened) {
      opened(opened);
    } else if (frame instanceof Frame.End end) {
      endOf(end.flow());
    } else if (frame instanceof Frame.Broken broken) {
      broken(broken);
    } else if (frame instanceof Frame.Done done) {
      answered(done.request(), null, null);
    } else if (frame instanceof Frame.State state) {
      answered(state.request(), state.json(), null);
    } else if (frame instanceof Frame.Refused refused) {
      RefusedException why = new RefusedException(refused.code(), refused.text());
      if (refused.request() == 0) {
        throw why;
      }
      answered(refused.request(), null, why);
    } else if (frame instanceof Frame.Welcome welcome) {
      synchronized (lock) {
        if (block != 0) {
          throw new FrameException("a second welcome");
        }
        block = welcome.block();
      }
      answer(0, null, null);
    }
  }

  private void answered(int request, String state, IOException failed) throws FrameException {
    synchronized (lock) {
      if (Integer.compareUnsigned(request, lastRequest) > 0 || request == 0) {
        throw new FrameException("an answer to request " + request + ", which was never made");
      }
    }
    answer(request, state, failed);
  }

  /** From now on there is no connection; everybody hears why, once. */
  private void end(IOException cause) {
    List<ActiveFlow> left;
    synchronized (lock) {
      if (ended != null) {
        return;
      }
      ended = cause;
      left = new ArrayList<>(flows.values());
      flows.clear();
      outgoing.clear();
      for (Request request : requests.values()) {
        request.answered = true;
        request.failed = gone();
      }
      lock.notifyAll();
      if (thread.getState() == Thread.State.NEW) {
        // Nobody else will.
        thread.start();
      }
    }
    wake();
    String why = cause.getMessage() == null ? cause.toString() : cause.getMessage();
    for (ActiveFlow flow : left) {
      call(flow, () -> flow.listener.broken(flow, Refusal.CONNECTION_LOST.code(), why));
    }
  }

  private void wake() {
    if (Thread.currentThread() != thread) {
      selector.wakeup();
    }
  }
}
