package io.headwater.agent;

import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/**
 * The socket to the agent, and the thread that reads and writes it: writes what waits in {@link Outbox}, cuts what comes into frames,
 * and brings these to {@link Requests} and {@link Flows}.
 *
 * <p>The socket, its selector and the buffer are of that thread alone, once it runs; others only wake the selector. The lock of
 * {@link Outbox} guards the size of blocks. Any thread may end the connection: then that thread tells the flows, and the connection's
 * own closes the socket.
 */
final class Connection {
  private static final int BUFFER = 256 << 10;

  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;
  private ByteBuffer in = ByteBuffer.allocateDirect(BUFFER);

  private final Outbox outbox;
  private final Requests requests;
  private final Flows flows;

  /** The lock of {@code outbox} guards it. */
  private long block;

  /** Dials. The thread starts with the first request. */
  Connection(Path socket, Duration patience) throws IOException {
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
    outbox = new Outbox(selector, this::run);
    requests = new Requests(outbox, patience);
    flows = new Flows(outbox);
  }

  Requests requests() {
    return requests;
  }

  Flows flows() {
    return flows;
  }

  boolean isOpen() {
    return outbox.isOpen();
  }

  /** Bytes of a block; 0 before the agent's welcome. */
  long block() {
    synchronized (outbox.lock) {
      return block;
    }
  }

  /** From now on there is no connection; everybody hears why, once. */
  void end(IOException cause) {
    List<ActiveFlow> left;
    synchronized (outbox.lock) {
      if (!outbox.end(cause)) {
        return;
      }
      left = flows.end();
      requests.end();
      // If the thread was not started, nobody else will, and it closes the socket.
      outbox.start();
    }
    outbox.wake();
    String why = cause.getMessage() == null ? cause.toString() : cause.getMessage();
    for (ActiveFlow flow : left) {
      flow.lost(why);
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
    ByteBuffer next;
    while ((next = outbox.first()) != null) {
      channel.write(next);
      if (next.hasRemaining()) {
        return false;
      }
      outbox.written();
    }
    return true;
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
      flows.data(data);
    } else if (frame instanceof Frame.Opened opened) {
      flows.opened(opened);
    } else if (frame instanceof Frame.End end) {
      flows.end(end);
    } else if (frame instanceof Frame.Broken broken) {
      flows.broken(broken);
    } else if (frame instanceof Frame.Done done) {
      requests.answered(done.request(), null, null);
    } else if (frame instanceof Frame.State state) {
      requests.answered(state.request(), state.json(), null);
    } else if (frame instanceof Frame.Refused refused) {
      RefusedException why = new RefusedException(refused.code(), refused.text());
      if (refused.request() == 0) {
        throw why;
      }
      requests.answered(refused.request(), null, why);
    } else if (frame instanceof Frame.Welcome welcome) {
      synchronized (outbox.lock) {
        if (block != 0) {
          throw new FrameException("a second welcome");
        }
        block = welcome.block();
      }
      requests.welcomed();
    }
  }
}
