package io.headwater.agent;

import java.io.Closeable;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;

/** Takes one connection, greets, and then does what the test says. */
final class FakeAgent implements Closeable {
  interface Script {
    void play(FakeAgent agent) throws IOException;
  }

  final Path socket;
  private final ServerSocketChannel listener;
  private final Thread thread;
  private SocketChannel program;

  FakeAgent(Path folder, Script script) throws IOException {
    Files.createDirectories(folder);
    socket = folder.resolve("fake.sock");
    listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(socket));
    thread =
        new Thread(
            () -> {
              try (SocketChannel accepted = listener.accept()) {
                program = accepted;
                script.play(this);
              } catch (IOException e) {
                // The program has gone, as it should where this agent lies.
                System.getLogger("fake").log(System.Logger.Level.DEBUG, "gone", e);
              }
            },
            "fake-agent");
    thread.setDaemon(true);
    thread.start();
  }

  /** The program's next frame: its kind, and its fields. */
  ByteBuffer hear() throws IOException {
    ByteBuffer head = read(4);
    return read(head.getInt());
  }

  void welcome(int block) throws IOException {
    hear();
    say(65, ByteBuffer.allocate(9).put((byte) 1).putLong(block));
  }

  void say(int kind, ByteBuffer fields) throws IOException {
    fields.flip();
    raw(ByteBuffer.allocate(5 + fields.remaining()).putInt(1 + fields.remaining()).put((byte) kind).put(fields));
  }

  void opened(long flow, long length) throws IOException {
    say(68, ByteBuffer.allocate(24).putLong(flow).putLong(length).putLong(7));
  }

  void data(long flow, long offset, int count) throws IOException {
    say(69, ByteBuffer.allocate(16 + count).putLong(flow).putLong(offset).position(16 + count));
  }

  void end(long flow) throws IOException {
    say(70, ByteBuffer.allocate(8).putLong(flow));
  }

  void raw(ByteBuffer bytes) throws IOException {
    bytes.flip();
    while (bytes.hasRemaining()) {
      program.write(bytes);
    }
  }

  /** Waits until the program has gone. */
  void rest() throws IOException {
    ByteBuffer any = ByteBuffer.allocate(4096);
    while (program.read(any) >= 0) {
      any.clear();
    }
  }

  private ByteBuffer read(int count) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(count);
    while (bytes.hasRemaining()) {
      if (program.read(bytes) < 0) {
        throw new IOException("the program has gone");
      }
    }
    return bytes.flip();
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
