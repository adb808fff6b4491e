package io.headwater.agent;

import java.nio.ByteBuffer;

/**
 * A flow that the agent was asked for: its credit, how far it has come, and the checks of what the agent says of it.
 *
 * <p>The lock of {@link Outbox} guards the credit, which any thread may give. How far it has come is of the connection's thread alone.
 * The listener is called without the lock, by the connection's thread or, at the connection's end, by the one who ended it.
 */
final class ActiveFlow implements Flow, Outbox.Growing {
  private final Flows flows;
  private final Outbox outbox;
  private final long number;
  private final Fetch fetch;
  private final FlowListener listener;

  /** All that was ever given; the lock guards it. */
  private long credit;

  /** Of that, what no frame says yet. It waits in {@code outbox} if it is not 0. */
  private long unsaid;

  /** Of the connection's thread alone. */
  private long length = -1;

  private long here;

  ActiveFlow(Flows flows, Outbox outbox, long number, Fetch fetch, FlowListener listener) {
    this.flows = flows;
    this.outbox = outbox;
    this.number = number;
    this.fetch = fetch;
    this.listener = listener;
    this.credit = fetch.credit();
  }

  long number() {
    return number;
  }

  // ---- what the program says

  @Override
  public Fetch fetch() {
    return fetch;
  }

  @Override
  public void credit(long bytes) {
    if (bytes < 0) {
      throw new IllegalArgumentException("credit of " + bytes);
    }
    synchronized (outbox.lock) {
      long more = Math.min(bytes, Long.MAX_VALUE - credit);
      if (more == 0 || !flows.has(this)) {
        return;
      }
      if (unsaid == 0) {
        outbox.add(this);
      }
      credit += more;
      unsaid += more;
    }
    outbox.wake();
  }

  /** Says the credit that no frame says yet. */
  @Override
  public ByteBuffer frame() {
    ByteBuffer frame = Frames.credit(number, unsaid);
    unsaid = 0;
    return frame;
  }

  @Override
  public void cancel() {
    synchronized (outbox.lock) {
      if (!flows.remove(this)) {
        return;
      }
      outbox.add(Frames.cancel(number));
    }
    outbox.wake();
  }

  // ---- what the agent says, by the connection's thread

  void opened(Frame.Opened frame) throws FrameException {
    if (length >= 0) {
      throw new FrameException("flow " + number + " was opened twice");
    }
    length = frame.length();
    call(() -> listener.opened(this, frame.length(), frame.info()));
  }

  void data(Frame.Data frame) throws FrameException {
    int count = frame.bytes().remaining();
    String where = "flow " + number + ": " + count + " bytes at " + frame.offset();
    long given;
    synchronized (outbox.lock) {
      given = credit;
    }
    if (frame.offset() != here) {
      throw new FrameException(where + ", expected at " + here);
    }
    if (count > length - here) {
      throw new FrameException(where + ", of a length of " + length);
    }
    if (count > given - here) {
      throw new FrameException(where + ", with credit for " + given);
    }
    here += count;
    call(() -> listener.data(this, frame.bytes()));
  }

  void end() throws FrameException {
    if (here != length) {
      throw new FrameException("flow " + number + " ends at " + here + " of " + length);
    }
    if (flows.remove(this)) {
      call(() -> listener.end(this));
    }
  }

  void broken(Frame.Broken frame) {
    if (flows.remove(this)) {
      call(() -> listener.broken(this, frame.code(), frame.text()));
    }
  }

  /** The connection has ended, and this is not among its flows any more. By whoever ended it. */
  void lost(String why) {
    call(() -> listener.broken(this, Refusal.CONNECTION_LOST.code(), why));
  }

  /** Calls the listener. If that throws, its flow ends, and the others go on. */
  private void call(Runnable listening) {
    try {
      listening.run();
    } catch (RuntimeException | Error e) {
      if (flows.has(this)) {
        cancel();
        try {
          listener.broken(this, Refusal.FAILED.code(), "its listener failed: " + e);
        } catch (RuntimeException again) {
          e.addSuppressed(again);
        }
      }
      System.getLogger(AgentClient.class.getName()).log(System.Logger.Level.WARNING, "the listener of a flow failed", e);
    }
  }
}
