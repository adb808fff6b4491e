package io.headwater.agent;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;

/**
 * A flow as a stream. It gives credit as it is read, so it never holds more than its window. For one reader.
 *
 * <p>It has ended well only if {@code read} returns -1: a flow that breaks is an exception, never an early end.
 */
public final class FlowStream extends InputStream {
  private final long block;
  private final Flow flow;

  private final Object lock = new Object();
  private final ArrayDeque<ByteBuffer> here = new ArrayDeque<>();
  private long length = -1;
  private long info;
  private boolean ended;
  private IOException broken;
  private boolean closed;

  /** Bytes that were read and for which no credit was given yet. */
  private long read;

  private long waitMillis;
  private final long window;
  private boolean started;

  FlowStream(AgentClient client, Fetch fetch, int least, boolean started) throws IOException {
    block = client.block();
    // Two blocks, so that one is under way while the other is read.
    window = Math.max(2, (least + block - 1) / block) * block;
    this.started = started;
    long credit = started ? window : 0;
    Fetch wanted = new Fetch(fetch.coflow(), fetch.host(), fetch.output(), fetch.first(), fetch.count(), credit);
    flow = client.fetch(wanted, new Listener());
  }

  /** There is room for it: lets it begin, if it has not begun. */
  public void start() {
    synchronized (lock) {
      if (started) {
        return;
      }
      started = true;
    }
    flow.credit(window);
  }

  /** Waits no longer than this for the next byte; without limit if zero, which is the default. */
  public FlowStream patience(Duration patience) {
    synchronized (lock) {
      waitMillis = patience.toMillis();
      return this;
    }
  }

  /** Bytes of the whole flow. Waits until the source has answered. */
  public long length() throws IOException {
    synchronized (lock) {
      awaitOpened();
      return length;
    }
  }

  /** What was registered for the first partition. Waits until the source has answered. */
  public long info() throws IOException {
    synchronized (lock) {
      awaitOpened();
      return info;
    }
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] into, int offset, int count) throws IOException {
    java.util.Objects.checkFromIndexSize(offset, count, into.length);
    if (count == 0) {
      return 0;
    }
    start();
    long more;
    int taken;
    synchronized (lock) {
      long until = deadline();
      while (here.isEmpty() && !ended) {
        checkUsable();
        await(until);
      }
      checkUsable();
      if (here.isEmpty()) {
        return -1;
      }
      ByteBuffer first = here.peek();
      taken = Math.min(count, first.remaining());
      first.get(into, offset, taken);
      if (!first.hasRemaining()) {
        here.remove();
      }
      // What was given so far is whole blocks, so the agent can use it to the last byte.
      read += taken;
      more = read - read % block;
      read -= more;
    }
    if (more > 0) {
      flow.credit(more);
    }
    return taken;
  }

  @Override
  public int available() {
    synchronized (lock) {
      return here.isEmpty() ? 0 : here.peek().remaining();
    }
  }

  /** Lets go of the flow, wherever it is. */
  @Override
  public void close() {
    synchronized (lock) {
      closed = true;
      here.clear();
      lock.notifyAll();
    }
    flow.cancel();
  }

  private void awaitOpened() throws IOException {
    long until = deadline();
    while (length < 0) {
      checkUsable();
      await(until);
    }
  }

  private void checkUsable() throws IOException {
    if (closed) {
      throw new IOException("the stream was closed");
    }
    if (broken != null) {
      throw broken;
    }
  }

  private long deadline() {
    return System.nanoTime() + waitMillis * 1_000_000;
  }

  private void await(long until) throws IOException {
    try {
      if (waitMillis == 0) {
        lock.wait();
        return;
      }
      long left = (until - System.nanoTime()) / 1_000_000;
      if (left <= 0) {
        throw new SocketTimeoutException("nothing has come for " + waitMillis + " ms");
      }
      lock.wait(left);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while bytes were awaited");
    }
  }

  private final class Listener implements FlowListener {
    @Override
    public void opened(Flow it, long bytes, long about) {
      synchronized (lock) {
        length = bytes;
        info = about;
        lock.notifyAll();
      }
    }

    @Override
    public void data(Flow it, ByteBuffer bytes) {
      synchronized (lock) {
        if (!closed) {
          here.add(ByteBuffer.allocate(bytes.remaining()).put(bytes).flip());
          lock.notifyAll();
        }
      }
    }

    @Override
    public void end(Flow it) {
      synchronized (lock) {
        ended = true;
        lock.notifyAll();
      }
    }

    @Override
    public void broken(Flow it, int code, String text) {
      synchronized (lock) {
        broken = new RefusedException(code, text);
        lock.notifyAll();
      }
    }
  }
}
