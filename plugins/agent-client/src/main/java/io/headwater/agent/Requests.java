package io.headwater.agent;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * The numbers of requests, and the requests whose answers are awaited.
 *
 * <p>Callers wait here, each for its own answer, on the lock of {@link Outbox}, which guards everything here. The connection's thread
 * brings the answers.
 */
final class Requests {
  private final Outbox outbox;
  private final Object lock;
  private final Duration patience;

  private final Map<Integer, Request> awaited = new HashMap<>();
  private int last;

  private static final class Request {
    private boolean answered;
    private IOException failed;
    private String state;
  }

  /**
   * None yet.
   *
   * @param patience for how long an answer is awaited
   */
  Requests(Outbox outbox, Duration patience) {
    this.outbox = outbox;
    this.lock = outbox.lock;
    this.patience = patience;
  }

  /** A number for a request. */
  int next() {
    synchronized (lock) {
      // 0 is the connection's own.
      last = last == -1 ? 1 : last + 1;
      return last;
    }
  }

  /**
   * Makes a request and waits for its answer. The first one starts the connection's thread, so that no answer comes before it is
   * awaited.
   *
   * @return the agent's status, if that was asked for
   * @throws RefusedException with the agent's reason
   */
  String await(int number, ByteBuffer frame) throws IOException {
    Request request = new Request();
    long until = System.nanoTime() + patience.toNanos();
    synchronized (lock) {
      outbox.start();
      outbox.check();
      awaited.put(number, request);
      outbox.add(frame);
      outbox.wake();
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
        awaited.remove(number);
      }
      if (request.failed != null) {
        throw request.failed;
      }
      return request.state;
    }
  }

  /** The agent has answered the connection's own request, which is number 0. */
  void welcomed() {
    answer(0, null, null);
  }

  /**
   * The agent has answered a request.
   *
   * @param state its status, or null
   * @param failed why not, or null
   */
  void answered(int number, String state, IOException failed) throws FrameException {
    synchronized (lock) {
      if (Integer.compareUnsigned(number, last) > 0 || number == 0) {
        throw new FrameException("an answer to request " + number + ", which was never made");
      }
    }
    answer(number, state, failed);
  }

  private void answer(int number, String state, IOException failed) {
    synchronized (lock) {
      Request request = awaited.get(number);
      // One that was given up is answered all the same.
      if (request != null) {
        request.answered = true;
        request.state = state;
        request.failed = failed;
        lock.notifyAll();
      }
    }
  }

  /** The connection has ended: everybody who waits hears why. The caller has the lock. */
  void end() {
    for (Request request : awaited.values()) {
      request.answered = true;
      request.failed = outbox.gone();
    }
    lock.notifyAll();
  }
}
