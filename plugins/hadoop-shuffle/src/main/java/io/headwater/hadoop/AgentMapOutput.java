package io.headwater.hadoop;

import io.headwater.agent.AgentClient;
import io.headwater.agent.Index;
import java.io.IOException;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.MapOutputCollector;
import org.apache.hadoop.mapred.MapTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The stock sort and spill of a map task. When the output is complete, the agent of the host is told where it is; the task does it,
 * since an agent takes files only from their owner, and that is the task's user with every container executor (docs/decisions/0041).
 *
 * <p>Whatever goes wrong with that is one line in the task's log: the output is there all the same, and reducers fetch it the stock way.
 *
 * <p>{@code mapreduce.job.map.output.collector.class=io.headwater.hadoop.AgentMapOutput}
 */
public class AgentMapOutput<K, V> extends MapTask.MapOutputBuffer<K, V> {
  private static final Logger LOG = LoggerFactory.getLogger(AgentMapOutput.class);

  private JobConf conf;
  private MapTask task;

  @Override
  public void init(MapOutputCollector.Context context) throws IOException, ClassNotFoundException {
    super.init(context);
    conf = context.getJobConf();
    task = context.getMapTask();
  }

  @Override
  public void flush() throws IOException, ClassNotFoundException, InterruptedException {
    super.flush();
    try {
      register();
    } catch (IOException | RuntimeException e) {
      LOG.warn("Headwater: the agent does not offer {}, reducers fetch it the stock way: {}", task.getTaskID(), e.getMessage());
    }
  }

  private void register() throws IOException {
    String why = JobAgent.unsupported(conf);
    if (why != null) {
      LOG.info("Headwater: {} is left to the stock shuffle: {}", task.getTaskID(), why);
      return;
    }
    Path file = local(task.getMapOutputFile().getOutputFile());
    Path index = local(task.getMapOutputFile().getOutputIndexFile());
    try (AgentClient agent = JobAgent.connect(conf, task.getJobID(), task.getShuffleSecret())) {
      agent.register(task.getTaskID().toString(), file, new Index.Hadoop(index));
    }
    LOG.info("Headwater: the agent offers {}", task.getTaskID());
  }

  private static Path local(org.apache.hadoop.fs.Path path) {
    return Paths.get(path.toUri().getPath()).toAbsolutePath().normalize();
  }
}
