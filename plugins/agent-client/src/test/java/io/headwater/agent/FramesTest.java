package io.headwater.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

class FramesTest {
  private static ByteBuffer bytes(String hex) {
    return ByteBuffer.wrap(HexFormat.of().parseHex(hex.replace(" ", "")));
  }

  private static String hex(ByteBuffer frame) {
    byte[] bytes = new byte[frame.remaining()];
    frame.get(bytes);
    return HexFormat.of().formatHex(bytes);
  }

  /** The example of docs/agent-protocol.md. */
  @Test
  void helloIsAsInTheSpecification() {
    byte[] token = new byte[16];
    String expected = "00000020 01 48576167 0101 0006 6a6f625f3137 10".replace(" ", "") + "00".repeat(16);
    assertEquals(expected, hex(Frames.hello("job_17", token)));
  }

  @Test
  void framesOfAProgramHaveTheirFieldsInOrder() {
    assertEquals(
        "00000028 05 0000000000000001 0000000000000011 0002 6862 0001 6f 00000005 00000001 0000000000010000".replace(" ", ""),
        hex(Frames.fetch(1, new Fetch(17, "hb", "o", 5, 1, 65_536))));
    assertEquals("00000011060000000000000001ffffffffffffffff", hex(Frames.credit(1, -1)));
    assertEquals("00000009070000000000000002", hex(Frames.cancel(2)));
    assertEquals("000000050400000003", hex(Frames.drop(3)));
    assertEquals("00000008030000000300016f", hex(Frames.unregister(3, "o")));
    assertEquals("000000050800000009", hex(Frames.status(9)));
    Index index = new Index.Ranges(List.of(new Range(1, 2, 3)));
    assertEquals(
        "00000029 02 00000007 0001 6f 0002 2f66 00 00000001 0000000000000001 0000000000000002 0000000000000003".replace(" ", ""),
        hex(Frames.register(7, "o", Path.of("/f"), index)));
    assertEquals(
        "00000011 02 00000007 0001 6f 0002 2f66 01 0002 2f69".replace(" ", ""),
        hex(Frames.register(7, "o", Path.of("/f"), new Index.Hadoop(Path.of("/i")))));
    assertEquals(
        "00000011 02 00000007 0001 6f 0002 2f66 02 0002 2f69".replace(" ", ""),
        hex(Frames.register(7, "o", Path.of("/f"), new Index.Spark(Path.of("/i")))));
  }

  @Test
  void framesOfAnAgentAreUnderstood() throws FrameException {
    assertEquals(new Frame.Welcome(1, 65_536), Frames.parse(bytes("0000000a 41 01 0000000000010000")));
    assertEquals(new Frame.Done(3), Frames.parse(bytes("00000005 42 00000003")));
    assertEquals(new Frame.Refused(3, 4, "no"), Frames.parse(bytes("0000000b 43 00000003 0004 0002 6e6f")));
    assertEquals(new Frame.Opened(1, 2, 3), Frames.parse(bytes("00000019 44 0000000000000001 0000000000000002 0000000000000003")));
    assertEquals(new Frame.End(1), Frames.parse(bytes("00000009 46 0000000000000001")));
    assertEquals(new Frame.Broken(1, 12, ""), Frames.parse(bytes("0000000d 47 0000000000000001 000c 0000")));
    assertEquals(new Frame.State(1, "{}"), Frames.parse(bytes("00000007 48 00000001 7b7d")));
    Frame.Data data = (Frame.Data) Frames.parse(bytes("00000013 45 0000000000000001 0000000000000009 abcd"));
    byte[] of = new byte[2];
    data.bytes().get(of);
    assertEquals(9, data.offset());
    assertArrayEquals(new byte[] {(byte) 0xab, (byte) 0xcd}, of);
  }

  @Test
  void whatIsNotInTheProtocolIsRefused() {
    for (String frame :
        List.of(
            "00000000", // no kind
            "00100001 45", // longer than frames may be
            "ffffffff 45",
            "00000001 00", // unknown kinds
            "00000001 01",
            "00000001 40",
            "00000001 49",
            "00000001 ff",
            "00000004 42 000000", // ends before its fields
            "00000006 42 00000003 00", // goes on after them
            "0000000a 43 00000003 0004 0002 6e", // a text that is longer than the frame
            "0000000a 43 00000003 0004 0001 ff", // no UTF-8
            "00000011 45 0000000000000001 0000000000000000", // data without bytes
            "00000012 45 0000000000000001 8000000000000000 00", // an offset of 2^63
            "00000019 44 0000000000000001 ffffffffffffffff 0000000000000003", // a length of 2^64 - 1
            "0000000a 41 02 0000000000010000", // a version that was not offered
            "0000000a 41 01 0000000000000000", // blocks of nothing
            "0000000a 41 01 0000000100000000", // blocks of more than a frame
            "00000006 48 00000001 ff")) {
      assertThrows(FrameException.class, () -> Frames.parse(bytes(frame)), frame);
    }
  }

  /** Whatever bytes come, it is a frame or a FrameException; and every frame cut short is refused. */
  @Test
  void noBytesMakeTheParserFailOtherwise() {
    java.util.Random random = new java.util.Random(30);
    int frames = 0;
    for (int round = 0; round < 200_000; round++) {
      byte[] fields = new byte[random.nextInt(40)];
      random.nextBytes(fields);
      ByteBuffer frame = ByteBuffer.allocate(5 + fields.length).putInt(1 + fields.length).put((byte) (64 + random.nextInt(10)));
      frame.put(fields).flip();
      try {
        Frames.parse(frame);
        frames++;
      } catch (FrameException refused) {
        continue;
      }
      ByteBuffer cut = ByteBuffer.wrap(frame.array(), 0, frame.limit() - 1);
      assertThrows(FrameException.class, () -> Frames.parse(cut));
    }
    assertTrue(frames > 1_000, "only " + frames + " of them were frames at all");
  }

  @Test
  void whatCannotBeSaidIsNotSent() {
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("", new byte[16]));
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("a\nb", new byte[16]));
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("é".repeat(128), new byte[16]));
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("\ud800", new byte[16]));
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("a", new byte[15]));
    assertThrows(IllegalArgumentException.class, () -> Frames.hello("a", new byte[65]));
    assertThrows(IllegalArgumentException.class, () -> new Fetch(0, "h", "o", 0, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> new Fetch(0, "h", "o", Integer.MAX_VALUE, 1, 0));
    assertThrows(IllegalArgumentException.class, () -> new Fetch(0, "h", "o", 0, 1, -1));
    assertThrows(IllegalArgumentException.class, () -> new Range(Long.MAX_VALUE, 1, 0));
    assertThrows(IllegalArgumentException.class, () -> new Index.Ranges(Collections.nCopies(4097, new Range(0, 0, 0))));
    assertThrows(IllegalArgumentException.class, () -> Frames.register(1, "o", Path.of("relative"), new Index.Ranges(List.of())));
    assertEquals(255, Frames.name("a".repeat(255)).length);
    assertEquals("é", new String(Frames.name("é"), StandardCharsets.UTF_8));
  }

  @Test
  void refusalsHaveTheirNumbers() {
    for (Refusal refusal : Refusal.values()) {
      assertEquals(refusal, Refusal.of(refusal.code()));
    }
    assertEquals(Refusal.FAILED, Refusal.of(9_999));
    assertEquals(12, Refusal.UNREACHABLE.code());
  }
}
