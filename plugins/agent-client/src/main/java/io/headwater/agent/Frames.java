package io.headwater.agent;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * The frames of docs/agent-protocol.md, part 1, without I/O. Parsing is strict: every length has a bound, nothing follows the last field.
 *
 * <pre>
 * 0        4      5
 * | length | kind | fields ...      length counts what follows it, so at least 1
 * </pre>
 */
final class Frames {
  /** The version that this client speaks. */
  static final int VERSION = 1;

  /** The longest frame of an agent, without its length field. */
  static final int LONGEST_FROM_AGENT = 1 << 20;

  private static final int LONGEST_NAME = 255;
  private static final int LONGEST_PATH = 4095;
  private static final int SHORTEST_TOKEN = 16;
  private static final int LONGEST_TOKEN = 64;
  private static final byte[] MAGIC = {'H', 'W', 'a', 'g'};

  private static final int HELLO = 1;
  private static final int REGISTER = 2;
  private static final int UNREGISTER = 3;
  private static final int DROP = 4;
  private static final int FETCH = 5;
  private static final int CREDIT = 6;
  private static final int CANCEL = 7;
  private static final int STATUS = 8;
  private static final int WELCOME = 65;
  private static final int DONE = 66;
  private static final int REFUSED = 67;
  private static final int OPENED = 68;
  private static final int DATA = 69;
  private static final int END = 70;
  private static final int BROKEN = 71;
  private static final int STATE = 72;

  private static final int RANGES = 0;
  private static final int HADOOP = 1;
  private static final int SPARK = 2;

  private Frames() {}

  // ---- what the program says

  static ByteBuffer hello(String application, byte[] token) {
    if (token.length < SHORTEST_TOKEN || token.length > LONGEST_TOKEN) {
      throw new IllegalArgumentException("a token has 16 to 64 bytes, not " + token.length);
    }
    byte[] name = name(application);
    ByteBuffer frame = frame(HELLO, MAGIC.length + 2 + 2 + name.length + 1 + token.length);
    frame.put(MAGIC).put((byte) VERSION).put((byte) VERSION);
    text(frame, name).put((byte) token.length).put(token);
    return frame.flip();
  }

  static ByteBuffer register(int request, String output, Path file, Index index) {
    byte[] name = name(output);
    byte[] path = path(file);
    int head = 4 + 2 + name.length + 2 + path.length + 1;
    if (index instanceof Index.Ranges list) {
      ByteBuffer frame = text(text(frame(REGISTER, head + 4 + 24 * list.ranges().size()).putInt(request), name), path);
      frame.put((byte) RANGES).putInt(list.ranges().size());
      for (Range range : list.ranges()) {
        frame.putLong(range.offset()).putLong(range.length()).putLong(range.info());
      }
      return frame.flip();
    }
    boolean hadoop = index instanceof Index.Hadoop;
    byte[] where = path(hadoop ? ((Index.Hadoop) index).file() : ((Index.Spark) index).file());
    ByteBuffer frame = text(text(frame(REGISTER, head + 2 + where.length).putInt(request), name), path);
    return text(frame.put((byte) (hadoop ? HADOOP : SPARK)), where).flip();
  }

  static ByteBuffer unregister(int request, String output) {
    byte[] name = name(output);
    return text(frame(UNREGISTER, 4 + 2 + name.length).putInt(request), name).flip();
  }

  static ByteBuffer drop(int request) {
    return frame(DROP, 4).putInt(request).flip();
  }

  static ByteBuffer fetch(long flow, Fetch fetch) {
    byte[] host = name(fetch.host());
    byte[] output = name(fetch.output());
    ByteBuffer frame = frame(FETCH, 8 + 8 + 2 + host.length + 2 + output.length + 4 + 4 + 8);
    text(text(frame.putLong(flow).putLong(fetch.coflow()), host), output);
    return frame.putInt(fetch.first()).putInt(fetch.count()).putLong(fetch.credit()).flip();
  }

  static ByteBuffer credit(long flow, long bytes) {
    return frame(CREDIT, 16).putLong(flow).putLong(bytes).flip();
  }

  static ByteBuffer cancel(long flow) {
    return frame(CANCEL, 8).putLong(flow).flip();
  }

  static ByteBuffer status(int request) {
    return frame(STATUS, 4).putInt(request).flip();
  }

  /** The bytes of a name: 1 to 255 of UTF-8, no control characters. */
  static byte[] name(String text) {
    byte[] bytes = utf8(text);
    if (bytes.length == 0 || bytes.length > LONGEST_NAME || text.chars().anyMatch(Character::isISOControl)) {
      throw new IllegalArgumentException("no name: \"" + text + "\"");
    }
    return bytes;
  }

  private static byte[] path(Path path) {
    byte[] bytes = utf8(path.toString());
    if (!path.isAbsolute() || bytes.length > LONGEST_PATH) {
      throw new IllegalArgumentException("no absolute path of at most " + LONGEST_PATH + " bytes: " + path);
    }
    return bytes;
  }

  private static byte[] utf8(String text) {
    try {
      ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(java.nio.CharBuffer.wrap(text));
      byte[] exact = new byte[bytes.remaining()];
      bytes.get(exact);
      return exact;
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException("no Unicode: \"" + text + "\"", e);
    }
  }

  private static ByteBuffer frame(int kind, int fields) {
    return ByteBuffer.allocate(5 + fields).putInt(1 + fields).put((byte) kind);
  }

  private static ByteBuffer text(ByteBuffer frame, byte[] text) {
    return frame.putShort((short) text.length).put(text);
  }

  // ---- what the agent says

  /**
   * Bytes of the frame that begins here, with its length field; 0 if too little of it is there to know. Refuses what is longer than
   * frames may be before anything of it is kept.
   */
  static int length(ByteBuffer bytes) throws FrameException {
    if (bytes.remaining() < 4) {
      return 0;
    }
    long length = Integer.toUnsignedLong(bytes.getInt(bytes.position()));
    if (length == 0) {
      throw new FrameException("a frame without a kind");
    }
    if (length > LONGEST_FROM_AGENT) {
      throw new FrameException("a frame of " + length + " bytes, more than " + LONGEST_FROM_AGENT);
    }
    return 4 + (int) length;
  }

  /** The frame in these bytes, which are exactly one ({@link #length}). */
  static Frame parse(ByteBuffer bytes) throws FrameException {
    int length = length(bytes);
    if (length == 0 || length != bytes.remaining()) {
      throw new FrameException("a frame of " + length + " bytes in " + bytes.remaining());
    }
    int kind = bytes.get(bytes.position() + 4) & 0xff;
    Fields fields = new Fields(kind, bytes.slice(bytes.position() + 5, length - 5));
    Frame frame =
        switch (kind) {
          case WELCOME -> welcome(fields);
          case DONE -> new Frame.Done(fields.u32());
          case REFUSED -> new Frame.Refused(fields.u32(), fields.u16(), fields.text());
          case OPENED -> new Frame.Opened(fields.u64(), fields.size(), fields.u64());
          case DATA -> new Frame.Data(fields.u64(), fields.size(), fields.rest());
          case END -> new Frame.End(fields.u64());
          case BROKEN -> new Frame.Broken(fields.u64(), fields.u16(), fields.text());
          case STATE -> new Frame.State(fields.u32(), fields.utf8(fields.left()));
          default -> throw new FrameException("a frame of unknown kind " + kind);
        };
    fields.end();
    return frame;
  }

  private static Frame welcome(Fields fields) throws FrameException {
    Frame.Welcome welcome = new Frame.Welcome(fields.u8(), fields.u64());
    boolean possible = welcome.version() == VERSION && welcome.block() > 0 && welcome.block() <= LONGEST_FROM_AGENT;
    if (!possible) {
      throw new FrameException("version " + welcome.version() + " with blocks of " + welcome.block() + " bytes");
    }
    return welcome;
  }

  /** The fields of a frame that are still to be read. */
  private record Fields(int kind, ByteBuffer bytes) {
    private ByteBuffer take(int count) throws FrameException {
      if (count > bytes.remaining()) {
        throw new FrameException("a frame of kind " + kind + " ends before its fields do");
      }
      ByteBuffer taken = bytes.slice(bytes.position(), count);
      bytes.position(bytes.position() + count);
      return taken;
    }

    int left() {
      return bytes.remaining();
    }

    int u8() throws FrameException {
      return take(1).get() & 0xff;
    }

    int u16() throws FrameException {
      return take(2).getShort() & 0xffff;
    }

    int u32() throws FrameException {
      return take(4).getInt();
    }

    long u64() throws FrameException {
      return take(8).getLong();
    }

    /** A length or offset: no file has 2^63 bytes. */
    long size() throws FrameException {
      long size = u64();
      if (size < 0) {
        throw new FrameException("a frame of kind " + kind + " has a field of impossible value");
      }
      return size;
    }

    String text() throws FrameException {
      return utf8(u16());
    }

    String utf8(int length) throws FrameException {
      ByteBuffer taken = take(length);
      try {
        return StandardCharsets.UTF_8
            .newDecoder()
            .onMalformedInput(CodingErrorAction.REPORT)
            .onUnmappableCharacter(CodingErrorAction.REPORT)
            .decode(taken)
            .toString();
      } catch (CharacterCodingException e) {
        throw new FrameException("a frame of kind " + kind + " has a text that is no UTF-8");
      }
    }

    /** All that is left, at least a byte. */
    ByteBuffer rest() throws FrameException {
      if (bytes.remaining() == 0) {
        throw new FrameException("a frame of kind " + kind + " ends before its fields do");
      }
      return take(bytes.remaining());
    }

    void end() throws FrameException {
      if (bytes.hasRemaining()) {
        throw new FrameException("a frame of kind " + kind + " goes on after its last field");
      }
    }
  }
}
