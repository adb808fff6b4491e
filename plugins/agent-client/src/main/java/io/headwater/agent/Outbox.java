package io.headwater.agent;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.util.ArrayDeque;

/**
 * What callers have left for the connection's thread to write. It starts and wakes that thread, and knows whether the connection has
 * ended: then nothing more is taken.
 *
 * <p>The connection's only lock is here. It guards what waits, why the connection ended and the start of the thread, and also what
 * {@link Requests}, {@link Flows}, {@link ActiveFlow} and {@link Connection} say that it guards. Listeners are called without it.
 */
final class Outbox {
  /** What becomes a frame only when its turn comes, and may grow until then. */
  interface Growing {
    /** The frame of all that has come together. Called under the lock. */
    ByteBuffer frame();
  }

  /** Guards all that changes here, and more (see above). */
  final Object lock = new Object();

  private final Selector selector;
  private final Thread thread;

  /** What is to be written: frames, and flows whose credit has grown. */
  private final ArrayDeque<Object> waiting = new ArrayDeque<>();

  private IOException ended;

  /**
   * The thread is made, but not started.
   *
   * @param selector where the thread waits
   * @param run what the thread does
   */
  Outbox(Selector selector, Runnable run) {
    this.selector = selector;
    thread = new Thread(run, "headwater-agent-client");
    thread.setDaemon(true);
  }

  // ---- for callers

  boolean isOpen() {
    synchronized (lock) {
      return ended == null;
    }
  }

  /** Throws if there is no connection any more. The caller has the lock. */
  void check() throws IOException {
    if (ended != null) {
      throw gone();
    }
  }

  /** Why there is no connection any more. The caller has the lock. */
  IOException gone() {
    if (ended instanceof RefusedException refused) {
      return refused;
    }
    return new IOException("the connection to the agent has ended: " + ended.getMessage(), ended);
  }

  /** Starts the thread if nobody has. The caller has the lock, so the thread does nothing before that is let go of. */
  void start() {
    if (thread.getState() == Thread.State.NEW) {
      thread.start();
    }
  }

  /** The caller has the lock, has seen that the connection is there, and wakes the thread afterwards. */
  void add(ByteBuffer frame) {
    waiting.add(frame);
  }

  /** As {@link #add(ByteBuffer)}. What waits already must not be added again. */
  void add(Growing growing) {
    waiting.add(growing);
  }

  /** The thread is to look at what waits, with the lock or without. */
  void wake() {
    if (Thread.currentThread() != thread) {
      selector.wakeup();
    }
  }

  /** From now on nothing is taken, and what waits is dropped; false if it was so before. The caller has the lock. */
  boolean end(IOException cause) {
    if (ended != null) {
      return false;
    }
    ended = cause;
    waiting.clear();
    return true;
  }

  // ---- for the connection's thread, without the lock

  /** The frame that is to be written next; none if nothing waits. It stays first until {@link #written}. */
  ByteBuffer first() {
    synchronized (lock) {
      if (waiting.peek() instanceof Growing growing) {
        waiting.remove();
        waiting.addFirst(growing.frame());
      }
      return (ByteBuffer) waiting.peek();
    }
  }

  /** The first frame is written to its last byte. If the connection has ended meanwhile, nothing waits any more. */
  void written() {
    synchronized (lock) {
      waiting.poll();
    }
  }
}
