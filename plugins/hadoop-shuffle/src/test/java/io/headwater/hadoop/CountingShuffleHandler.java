package io.headwater.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.mapred.ShuffleChannelHandlerContext;
import org.apache.hadoop.mapred.ShuffleHandler;

/**
 * The stock shuffle service behind a relay that counts its connections. A connection cannot be told by its address, since all hosts of
 * the test are this machine; but its first request says which reducer it is of.
 */
public class CountingShuffleHandler extends ShuffleHandler {
  /** The setting that says which host this is. */
  static final String HOST = "headwater.test.host";

  private static final Pattern REQUEST = Pattern.compile("job=(job_\\d+_\\d+)&reduce=(\\d+)&");
  private static final Map<String, List<Connection>> CONNECTIONS = new ConcurrentHashMap<>();

  /** A connection to the shuffle service of a host, by the reducer of its first request. */
  record Connection(String job, int reduce) {}

  private ServerSocket listener;
  private ShuffleChannelHandlerContext context;
  private int shufflePort;

  /** All connections that the service of this host has had so far. */
  static List<Connection> connections(String host) {
    List<Connection> all = CONNECTIONS.get(host);
    synchronized (all) {
      return List.copyOf(all);
    }
  }

  @Override
  protected ShuffleChannelHandlerContext createHandlerContext() {
    context = super.createHandlerContext();
    return context;
  }

  @Override
  protected void serviceStart() throws Exception {
    super.serviceStart();
    shufflePort = ShuffleHandler.deserializeMetaData(super.getMetaData());
    String host = getConfig().get(HOST);
    List<Connection> seen = new ArrayList<>();
    CONNECTIONS.put(host, seen);
    listener = new ServerSocket(0, 128, InetAddress.getByName(host));
    // The reducer's proof is over the port that it dialled.
    context.port = listener.getLocalPort();
    Daemon.start(
        () -> {
          while (true) {
            Socket from = listener.accept();
            Daemon.start(() -> relay(from, seen));
          }
        });
  }

  @Override
  protected void serviceStop() throws Exception {
    listener.close();
    super.serviceStop();
  }

  @Override
  public synchronized ByteBuffer getMetaData() {
    try {
      return serializeMetaData(listener.getLocalPort());
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private void relay(Socket from, List<Connection> seen) throws IOException {
    try (from;
        Socket to = new Socket(InetAddress.getLoopbackAddress(), shufflePort)) {
      Daemon.start(
          () -> {
            to.getInputStream().transferTo(from.getOutputStream());
            from.shutdownOutput();
          });
      InputStream in = from.getInputStream();
      OutputStream out = to.getOutputStream();
      StringBuilder head = new StringBuilder();
      boolean known = false;
      byte[] some = new byte[8192];
      for (int count; (count = in.read(some)) > 0; ) {
        if (!known) {
          head.append(new String(some, 0, count, StandardCharsets.US_ASCII));
          Matcher request = REQUEST.matcher(head);
          if (request.find()) {
            known = true;
            synchronized (seen) {
              seen.add(new Connection(request.group(1), Integer.parseInt(request.group(2))));
            }
          }
        }
        out.write(some, 0, count);
      }
    }
  }
}
