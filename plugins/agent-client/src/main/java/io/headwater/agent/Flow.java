package io.headwater.agent;

/** A flow that a program fetches. Safe for use by many threads. */
public interface Flow {
  /** What was asked for. */
  Fetch fetch();

  /**
   * There is room for so many more bytes. Credit counts in whole blocks ({@link AgentClient#block}) or to the flow's end; what is
   * less waits until more is given. Of no effect when the flow has ended.
   */
  void credit(long bytes);

  /** It is not wanted any more. Of no effect when it has ended. */
  void cancel();
}
