package io.headwater.hadoop;

import io.headwater.agent.AgentClient;
import io.headwater.agent.RefusedException;
import io.headwater.agent.Refusal;
import java.io.IOException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a reducer can fetch through its agent, and what goes the stock way from now on. Each reason is logged once. Safe for use by many
 * threads.
 */
final class Sources {
  private static final Logger LOG = LoggerFactory.getLogger(Sources.class);

  private final AgentClient agent;
  private final AtomicBoolean agentIsGone = new AtomicBoolean();
  private final Set<String> stockHosts = ConcurrentHashMap.newKeySet();
  private final Set<TaskAttemptID> stockOutputs = ConcurrentHashMap.newKeySet();

  /** Hosts and refusals of single outputs that the log knows already. */
  private final Set<String> logged = ConcurrentHashMap.newKeySet();

  Sources(AgentClient agent) {
    this.agent = agent;
  }

  AgentClient agent() {
    return agent;
  }

  /** Whether anything may be asked of this host's agent. */
  boolean has(String host) {
    return agent.isOpen() && !stockHosts.contains(host);
  }

  /** Whether this output may be asked for, if its host's agent may. */
  boolean has(TaskAttemptID output) {
    return !stockOutputs.contains(output);
  }

  /** A flow has failed. What it was goes the stock way, and with it all that would fail for the same reason. */
  void failed(String host, TaskAttemptID output, IOException why) {
    Refusal refusal = why instanceof RefusedException refused ? refused.refusal() : null;
    if (!agent.isOpen() || refusal == Refusal.CONNECTION_LOST || refusal == Refusal.STOPPING) {
      if (agentIsGone.compareAndSet(false, true)) {
        LOG.warn("Headwater: the agent of this host is gone, all else is fetched the stock way: {}", why.getMessage());
      }
      agent.close();
    } else if (refusal == Refusal.UNKNOWN_HOST || refusal == Refusal.UNREACHABLE) {
      if (stockHosts.add(host)) {
        LOG.warn("Headwater: outputs of {} are fetched the stock way: {}", host, why.getMessage());
      }
    } else {
      stockOutputs.add(output);
      if (logged.add(host + " " + (refusal == null ? why.getClass().getName() : refusal.name()))) {
        LOG.warn(
            "Headwater: {} of {} is fetched the stock way, as will be others for the same reason: {}", output, host, why.getMessage());
      }
    }
  }
}
