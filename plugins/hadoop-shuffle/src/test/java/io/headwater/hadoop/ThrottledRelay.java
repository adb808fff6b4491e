package io.headwater.hadoop;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** A slow link in front of an agent: what it serves passes at a rate that all its connections share. */
final class ThrottledRelay implements Closeable {
  private final ServerSocket listener;
  private final String to;
  private final long bytesPerSecond;

  /** When what has passed so far has passed at the rate. */
  private long busyUntil = System.nanoTime();

  ThrottledRelay(String to, long bytesPerSecond) throws IOException {
    this.to = to;
    this.bytesPerSecond = bytesPerSecond;
    listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
    Daemon.start(
        () -> {
          while (true) {
            Socket from = listener.accept();
            Daemon.start(() -> serve(from));
          }
        });
  }

  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  private void serve(Socket from) throws IOException {
    int colon = to.lastIndexOf(':');
    // Small buffers, so that what is on its way is soon there.
    try (from;
        Socket there = new Socket(to.substring(0, colon), Integer.parseInt(to.substring(colon + 1)))) {
      from.setSendBufferSize(64 << 10);
      there.setReceiveBufferSize(64 << 10);
      Daemon.start(() -> from.getInputStream().transferTo(there.getOutputStream()));
      InputStream in = there.getInputStream();
      OutputStream out = from.getOutputStream();
      byte[] some = new byte[16 << 10];
      for (int count; (count = in.read(some)) > 0; ) {
        pass(count);
        out.write(some, 0, count);
      }
    }
  }

  private void pass(int count) throws IOException {
    long wait;
    synchronized (this) {
      busyUntil = Math.max(busyUntil, System.nanoTime()) + count * 1_000_000_000L / bytesPerSecond;
      wait = busyUntil - System.nanoTime();
    }
    try {
      Thread.sleep(wait / 1_000_000);
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
