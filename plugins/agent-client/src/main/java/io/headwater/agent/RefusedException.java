package io.headwater.agent;

import java.io.IOException;

/** An agent refused a request, or ended a flow before its end. */
public final class RefusedException extends IOException {
  private final Refusal refusal;
  private final int code;

  RefusedException(int code, String text) {
    super(text.isEmpty() ? Refusal.of(code).toString() : Refusal.of(code) + " (" + text + ")");
    this.refusal = Refusal.of(code);
    this.code = code;
  }

  /** Why. */
  public Refusal refusal() {
    return refusal;
  }

  /** The number that the agent said, which may be one of a later version. */
  public int code() {
    return code;
  }
}
