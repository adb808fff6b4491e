package io.headwater.agent;

import java.nio.ByteBuffer;

/**
 * Hears of one flow. All is called by the connection's only thread, so nothing here may wait: a listener that waits holds up all
 * flows. Only whoever closes the connection says {@code broken} itself. What a listener throws ends its own flow and no other.
 *
 * <p>In order: {@code opened}, {@code data} any number of times, then {@code end}; or {@code broken} at any time instead. After
 * {@link Flow#cancel} nothing more is said, but for what is under way.
 */
public interface FlowListener {
  /**
   * The source has it.
   *
   * @param length bytes that will come, given the credit
   * @param info what was registered for the first partition
   */
  void opened(Flow flow, long length, long info);

  /** The next bytes. They are gone when this returns. */
  void data(Flow flow, ByteBuffer bytes);

  /** All bytes have come. */
  void end(Flow flow);

  /**
   * It ended before its end: fetch what it was another way.
   *
   * @param code see {@link Refusal#of}; {@link Refusal#CONNECTION_LOST} if the agent is gone
   * @param text more, for people; may be empty
   */
  void broken(Flow flow, int code, String text);
}
