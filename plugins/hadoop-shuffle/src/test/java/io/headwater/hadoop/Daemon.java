package io.headwater.hadoop;

import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A thread of a test that relays bytes until one of its connections ends. */
final class Daemon {
  private static final Logger LOG = LoggerFactory.getLogger(Daemon.class);

  interface Work {
    void run() throws IOException;
  }

  private Daemon() {}

  static void start(Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (IOException e) {
                // One of both sides has closed: the other sees it as well.
                LOG.debug("a relayed connection ended", e);
              }
            },
            "relay");
    thread.setDaemon(true);
    thread.start();
  }
}
