package io.headwater.agent;

import java.io.IOException;

/** What an agent said is not in the protocol. The connection ends with it. */
public final class FrameException extends IOException {
  FrameException(String message) {
    super(message);
  }
}
