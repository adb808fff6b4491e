package io.headwater.hadoop;

import io.headwater.agent.AgentClient;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import javax.crypto.Mac;
import javax.crypto.SecretKey;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.CryptoUtils;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.MRConfig;

/**
 * How tasks of a job reach the agent of their host: the settings, the names, the token.
 *
 * <p>The application is the job. Its token is derived from the job's shuffle secret, which only the job's tasks have: the agent learns
 * nothing by which it could ask the stock shuffle service.
 */
final class JobAgent {
  /** The agent's socket. Hadoop expands variables of the task's environment in it, as in {@code ${env.NM_HOST}}. */
  static final String SOCKET = "headwater.agent.socket";

  static final String DEFAULT_SOCKET = "/run/headwater-agent/agent.sock";

  /** For how long an answer of the agent is awaited, in milliseconds. */
  static final String PATIENCE = "headwater.agent.patience-ms";

  static final int DEFAULT_PATIENCE = 5_000;

  private JobAgent() {}

  /** Why a job with these settings cannot use an agent; none if it can. */
  static String unsupported(Configuration conf) {
    if (conf.getBoolean(MRConfig.SHUFFLE_SSL_ENABLED_KEY, MRConfig.SHUFFLE_SSL_ENABLED_DEFAULT)) {
      return MRConfig.SHUFFLE_SSL_ENABLED_KEY + " is set, and an agent sees plaintext";
    }
    if (CryptoUtils.isEncryptedSpillEnabled(conf)) {
      return "intermediate data is encrypted";
    }
    if (MRConfig.LOCAL_FRAMEWORK_NAME.equals(conf.get(MRConfig.FRAMEWORK_NAME))) {
      return "the job runs in one process";
    }
    return null;
  }

  /** Connects as a task of this job. */
  static AgentClient connect(Configuration conf, JobID job, SecretKey secret) throws IOException {
    Path socket = Path.of(conf.getTrimmed(SOCKET, DEFAULT_SOCKET));
    Duration patience = Duration.ofMillis(conf.getInt(PATIENCE, DEFAULT_PATIENCE));
    try {
      return AgentClient.connect(socket, job.toString(), token(secret.getEncoded(), job), patience);
    } catch (IOException e) {
      throw new IOException("the agent at " + socket + ": " + e.getMessage(), e);
    }
  }

  /** 32 bytes that only tasks of the job know. */
  static byte[] token(byte[] secret, JobID job) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(secret, "HmacSHA256"));
      return mac.doFinal(("headwater agent " + job).getBytes(StandardCharsets.UTF_8));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java has HmacSHA256", e);
    }
  }

  /** The number of the job's coflow: the same on all hosts. */
  static long coflow(JobID job) {
    return job.getId();
  }

  /** The host of a map output as agents call it: the NodeManager's name, without the port of its shuffle service. */
  static String host(String hostAndPort) {
    int colon = hostAndPort.lastIndexOf(':');
    return colon < 0 ? hostAndPort : hostAndPort.substring(0, colon);
  }
}
