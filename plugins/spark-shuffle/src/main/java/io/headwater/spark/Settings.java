package io.headwater.spark;

import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * What the plugin is told: {@code spark.headwater.*}, or the executor's own Java properties and environment, which come first since hosts
 * differ and Spark's properties do not.
 *
 * @param socket the agent's socket
 * @param host the executor's host, as the list of agents calls it
 * @param application the application's name at the agents
 * @param token the application's token
 * @param patience for how long a block is awaited without a byte before it is fetched the stock way
 */
record Settings(Path socket, String host, String application, byte[] token, Duration patience) {
  static final String SOCKET = "spark.headwater.socket";
  static final String HOST = "spark.headwater.host";

  /** Holds "token", so that Spark's default redaction keeps it out of logs and pages. */
  static final String TOKEN = "spark.headwater.token";

  static final String PATIENCE = "spark.headwater.patience";

  private static final String DEFAULT_SOCKET = "/run/headwater-agent/agent.sock";
  private static final int TOKEN_BYTES = 32;

  /** The driver's part: what executors must have is in the configuration before the first of them asks for it. */
  static void prepare(SparkConf conf) {
    if (!conf.contains(TOKEN)) {
      byte[] token = new byte[TOKEN_BYTES];
      new SecureRandom().nextBytes(token);
      conf.set(TOKEN, HexFormat.of().formatHex(token), false);
    }
    // Reading another executor's files needs that executor alive, to say where they are. The agent of the host needs nobody.
    conf.setIfMissing("spark.shuffle.readHostLocalDisk", "false");
  }

  static Settings of(SparkEnv env) {
    SparkConf conf = env.conf();
    String executor = env.executorId();
    String own = env.blockManager().blockManagerId().host();
    String socket = find("headwater.socket", "HEADWATER_SOCKET", conf.get(SOCKET, DEFAULT_SOCKET));
    String host = find("headwater.host", "HEADWATER_HOST", conf.get(HOST, own));
    return new Settings(
        Path.of(socket.replace("{{EXECUTOR_ID}}", executor)),
        host.replace("{{EXECUTOR_ID}}", executor).replace("{{HOSTNAME}}", own),
        conf.getAppId(),
        HexFormat.of().parseHex(conf.get(TOKEN)),
        Duration.ofSeconds(conf.getTimeAsSeconds(PATIENCE, conf.get("spark.network.timeout", "120s"))));
  }

  private static String find(String property, String variable, String otherwise) {
    String value = System.getProperty(property, System.getenv(variable));
    return value == null || value.isEmpty() ? otherwise : value;
  }
}
