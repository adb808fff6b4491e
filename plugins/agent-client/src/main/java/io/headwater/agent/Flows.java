package io.headwater.agent;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The numbers of flows, and the flows that have not ended. Brings what the agent says to the flow that it speaks of.
 *
 * <p>The lock of {@link Outbox} guards everything here. Callers ask for flows; the connection's thread brings what the agent says.
 */
final class Flows {
  /** The most at once. */
  static final int MOST = 16_384;

  private final Outbox outbox;
  private final Object lock;

  private final Map<Long, ActiveFlow> active = new HashMap<>();
  private long last;

  Flows(Outbox outbox) {
    this.outbox = outbox;
    this.lock = outbox.lock;
  }

  /** Asks the agent for a flow. */
  Flow fetch(Fetch fetch, FlowListener listener) throws IOException {
    ActiveFlow flow;
    synchronized (lock) {
      outbox.check();
      if (active.size() >= MOST) {
        throw new IOException(MOST + " flows are open already");
      }
      flow = new ActiveFlow(this, outbox, ++last, fetch, listener);
      active.put(flow.number(), flow);
      outbox.add(Frames.fetch(flow.number(), fetch));
    }
    outbox.wake();
    return flow;
  }

  /** Whether it has not ended. */
  boolean has(ActiveFlow flow) {
    synchronized (lock) {
      return active.get(flow.number()) == flow;
    }
  }

  /** It ends; false if it had ended. */
  boolean remove(ActiveFlow flow) {
    synchronized (lock) {
      return active.remove(flow.number(), flow);
    }
  }

  /** The connection has ended, and all flows with it: those that had not ended, to be told without the lock. The caller has the lock. */
  List<ActiveFlow> end() {
    List<ActiveFlow> left = new ArrayList<>(active.values());
    active.clear();
    return left;
  }

  // ---- what the agent says, by the connection's thread

  void opened(Frame.Opened frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow != null) {
      flow.opened(frame);
    }
  }

  void data(Frame.Data frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow != null) {
      flow.data(frame);
    }
  }

  void end(Frame.End frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow != null) {
      flow.end();
    }
  }

  void broken(Frame.Broken frame) throws FrameException {
    ActiveFlow flow = flow(frame.flow());
    if (flow != null) {
      flow.broken(frame);
    }
  }

  /** The flow that a frame speaks of; none if it was cancelled. */
  private ActiveFlow flow(long number) throws FrameException {
    synchronized (lock) {
      if (number < 1 || number > last) {
        throw new FrameException("a frame of flow " + number + ", which was never asked for");
      }
      return active.get(number);
    }
  }
}
