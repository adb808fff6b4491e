package io.headwater.agent;

import java.nio.ByteBuffer;

/** What an agent says (docs/agent-protocol.md, part 1). */
sealed interface Frame {
  record Welcome(int version, long block) implements Frame {}

  record Done(int request) implements Frame {}

  record Refused(int request, int code, String text) implements Frame {}

  record Opened(long flow, long length, long info) implements Frame {}

  /** The bytes are a view of the buffer that was parsed. */
  record Data(long flow, long offset, ByteBuffer bytes) implements Frame {}

  record End(long flow) implements Frame {}

  record Broken(long flow, int code, String text) implements Frame {}

  record State(int request, String json) implements Frame {}
}
